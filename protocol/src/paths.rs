//! Where the socket, the configuration, the state and the logs lie.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The one list of environment variables that ptcd, ptc-mcp and ptcctl read for themselves.
pub mod variable {
    /// Configuration file, after `--config`.
    pub const CONFIG: &str = "PTC_MCP_CONFIG";
    /// Socket path, after `--socket`.
    pub const SOCKET: &str = "PTC_SOCKET";
    /// Folder of all state, in place of the one found from the home directory.
    pub const STATE_DIR: &str = "PTC_STATE_DIR";
    /// Log filter of the daemon, in `tracing` syntax.
    pub const LOG: &str = "PTC_LOG";
    /// Runtime folder of the user's login session.
    pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
    /// Configuration folder of the user.
    pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
    /// Project folder that Claude Code names.
    pub const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
    /// Session of Claude Code.
    pub const CLAUDE_CODE_SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
    /// Set to anything: no colours.
    pub const NO_COLOR: &str = "NO_COLOR";
}

/// Longest path a socket can be bound to, in bytes, its NUL not counted.
pub const MAX_SOCKET_PATH: usize = if cfg!(target_os = "macos") { 103 } else { 107 };

/// Why a place could not be worked out.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Neither `HOME` nor the user database names a home directory.
    #[error(
        "cannot find the home directory: HOME is no absolute path, or is not set and the user database has none"
    )]
    NoHome,
    /// A named configuration file cannot be resolved.
    #[error("cannot resolve the configuration file {path}: {source}")]
    Config {
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A socket path is longer than the system takes.
    #[error("the socket path {path} has {length} bytes; this system takes at most {limit}: name a shorter one with --socket or PTC_SOCKET", limit = MAX_SOCKET_PATH)]
    SocketTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
}

/// What decides the places: the command line first, then the environment.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// The environment's answer to a name in [`variable`]; an empty value counts as absent.
    pub environment: Environment,
}

/// The variables of [`variable`], read once.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    home: Option<PathBuf>,
    config: Option<OsString>,
    socket: Option<OsString>,
    state_dir: Option<OsString>,
    runtime_dir: Option<OsString>,
    config_home: Option<OsString>,
}

impl Environment {
    /// Reads the process's environment, and the user database where `HOME` is absent.
    pub fn of_process() -> Self {
        Self::from_lookup(std::env::home_dir(), |name| std::env::var_os(name))
    }

    /// Takes the answers of `lookup`, and `home` as the home directory.
    pub fn from_lookup(home: Option<PathBuf>, lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let get = |name| lookup(name).filter(|value| !value.is_empty());
        // One that is relative is to be passed over, says the specification of these variables: it would mean another
        // folder to each process.
        let whole = |name| get(name).filter(|value| Path::new(value).is_absolute());
        Self {
            home: home.filter(|path| path.is_absolute()),
            config: get(variable::CONFIG),
            socket: get(variable::SOCKET),
            state_dir: get(variable::STATE_DIR),
            runtime_dir: whole(variable::XDG_RUNTIME_DIR),
            config_home: whole(variable::XDG_CONFIG_HOME),
        }
    }
}

impl Environment {
    /// Where the service manager looks for units of this user.
    fn units(&self) -> Option<PathBuf> {
        if cfg!(target_os = "macos") {
            return Some(self.home.as_ref()?.join("Library/LaunchAgents"));
        }
        let config = self.config_home.as_ref().map(PathBuf::from);
        let config = config.or_else(|| Some(self.home.as_ref()?.join(".config")));
        Some(config?.join("systemd/user"))
    }
}

/// Ending of the names of logs of servers.
const LOG_SUFFIX: &str = ".log";

/// The file, in a daemon's folder `servers`, that holds the stderr of the server of this name.
pub fn server_log_name(server: &str) -> String {
    let fold = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = server.chars().map(fold).collect();
    format!("{name}{LOG_SUFFIX}")
}

/// The file beside [`server_log_name`] of a further instance of a server that runs once for each project folder, by its
/// number; the first instance, which has the number 1, writes to that file itself.
pub fn instance_log_name(server: &str, number: usize) -> String {
    let first = server_log_name(server);
    if number <= 1 {
        return first;
    }
    let name = first.strip_suffix(LOG_SUFFIX).unwrap_or(&first);
    format!("{name}.{number}{LOG_SUFFIX}")
}

/// The number of the instance of this server that writes to a file of this name; `None` for every other file.
pub fn instance_of_log(server: &str, file: &str) -> Option<usize> {
    let number = match file.strip_suffix(LOG_SUFFIX)?.rsplit_once('.') {
        None => 1,
        Some((_, number)) => number.parse().ok()?,
    };
    (instance_log_name(server, number) == file).then_some(number)
}

/// Which configuration file a daemon serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChoice {
    /// The default file, present or not.
    Default(PathBuf),
    /// A file that was named and is not the default one; present or not.
    Named(PathBuf),
}

impl ConfigChoice {
    /// The file's path: the real one where the file is present.
    pub fn path(&self) -> &Path {
        match self {
            Self::Default(path) | Self::Named(path) => path,
        }
    }

    /// The folder name of this configuration's state: `default`, or 16 hex digits of a hash of the real path.
    pub fn key(&self) -> String {
        match self {
            Self::Default(_) => "default".to_owned(),
            Self::Named(path) => crate::hex(&Sha256::digest(path.as_os_str().as_bytes())[..8]),
        }
    }
}

/// All places of one user and configuration.
#[derive(Clone, Debug)]
pub struct Places {
    /// The configuration file.
    pub config: ConfigChoice,
    /// The socket, and whether `--socket` or `PTC_SOCKET` named it.
    pub socket: PathBuf,
    /// True when the socket was named and `daemon.json` must not be asked.
    pub socket_named: bool,
    /// The state folder of all configurations; holds the key for masking.
    pub state_root: PathBuf,
    /// The state folder of this configuration.
    pub state_dir: PathBuf,
    /// Where the service manager looks for units of this user; `None` where it may not be asked,
    /// since it serves the default daemon only: default configuration, socket and state.
    pub units: Option<PathBuf>,
}

impl Places {
    /// Works out every place; touches the file system only to resolve links.
    pub fn find(sources: &Sources) -> Result<Self, PathError> {
        let environment = &sources.environment;
        let home = || environment.home.clone().ok_or(PathError::NoHome);
        let state_root = match &environment.state_dir {
            Some(path) => absolute(Path::new(path)),
            None if cfg!(target_os = "macos") => home()?.join(".ptc"),
            None => home()?.join(".local/state/ptc"),
        };
        let config = choose_config(sources)?;
        let key = config.key();
        let named = sources
            .socket
            .clone()
            .or_else(|| environment.socket.clone().map(Into::into));
        let socket_named = named.is_some();
        let socket = if let Some(path) = named {
            absolute(&path)
        } else {
            let folder = match &environment.runtime_dir {
                Some(path) if !cfg!(target_os = "macos") => Path::new(path).join("ptcd"),
                _ if cfg!(target_os = "macos") => home()?.join(".ptc/run"),
                _ => state_root.join("run"),
            };
            folder.join(match &config {
                ConfigChoice::Default(_) => "ptcd.sock".to_owned(),
                ConfigChoice::Named(_) => format!("ptcd-{key}.sock"),
            })
        };
        let is_default = matches!(config, ConfigChoice::Default(_))
            && !socket_named
            && environment.state_dir.is_none();
        let units = environment.units().filter(|_| is_default);
        let length = socket.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(PathError::SocketTooLong {
                path: socket,
                length,
            });
        }
        Ok(Self {
            config,
            socket,
            socket_named,
            state_dir: state_root.join(key),
            state_root,
            units,
        })
    }

    /// Where a running daemon says who and where it is.
    pub fn daemon_file(&self) -> PathBuf {
        self.state_dir.join("daemon.json")
    }

    /// The lock that decides which daemon serves this configuration.
    pub fn lock_file(&self) -> PathBuf {
        self.state_dir.join("lock")
    }

    /// Where a daemon leaves what it says to its clients, as [`crate::said::Said`].
    pub fn said_file(&self) -> PathBuf {
        self.state_dir.join("said.json")
    }

    /// Where a daemon started by a shim writes its log.
    pub fn log_file(&self) -> PathBuf {
        self.state_dir.join("ptcd.log")
    }

    /// The environment recorded for the daemon, as [`crate::environment::RecordedEnvironment`].
    pub fn environment_file(&self) -> PathBuf {
        self.state_dir.join("environment.json")
    }

    /// Where a daemon that ended in order says so, as [`crate::status::LastEnd`].
    pub fn last_end_file(&self) -> PathBuf {
        self.state_dir.join("last-end.json")
    }

    /// The configuration path as a [`crate::Hello`] carries it: `None` for the default file.
    pub fn hello_config(&self) -> Option<String> {
        match &self.config {
            ConfigChoice::Default(_) => None,
            ConfigChoice::Named(path) => Some(path.to_string_lossy().into_owned()),
        }
    }
}

fn choose_config(sources: &Sources) -> Result<ConfigChoice, PathError> {
    let environment = &sources.environment;
    let folder = match (&environment.config_home, &environment.home) {
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(home)) => Some(home.join(".config")),
        (None, None) => None,
    };
    let default = folder.map(|folder| real(&folder.join("ptc/config.yaml")));
    let named = sources
        .config
        .clone()
        .or_else(|| environment.config.clone().map(Into::into));
    match (named, default) {
        (None, Some(default)) => Ok(ConfigChoice::Default(default)),
        (None, None) => Err(PathError::NoHome),
        (Some(path), default) => {
            let path = real(&absolute(&path));
            Ok(if default.as_ref() == Some(&path) {
                ConfigChoice::Default(path)
            } else {
                ConfigChoice::Named(path)
            })
        }
    }
}

/// The path with its links resolved as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => real(parent).join(name),
        _ => path.to_owned(),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(home: &Path, pairs: &[(&str, &str)]) -> Environment {
        Environment::from_lookup(Some(home.to_owned()), |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    fn find(environment: Environment, config: Option<&str>) -> Places {
        Places::find(&Sources {
            config: config.map(Into::into),
            socket: None,
            environment,
        })
        .unwrap()
    }

    #[test]
    fn the_default_file_has_the_plain_socket_whichever_way_it_is_named() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        std::fs::create_dir_all(home.join(".config/ptc")).unwrap();
        let file = home.join(".config/ptc/config.yaml");
        std::fs::write(&file, "servers: []\n").unwrap();
        let plain = find(environment(&home, &[]), None);
        assert_eq!(plain.config, ConfigChoice::Default(file.clone()));
        assert!(plain.socket.ends_with("run/ptcd.sock"));
        assert!(plain.state_dir.ends_with("default"));
        std::os::unix::fs::symlink(&file, home.join("link.yaml")).unwrap();
        let linked = find(
            environment(&home, &[]),
            Some(home.join("link.yaml").to_str().unwrap()),
        );
        assert_eq!(linked.socket, plain.socket);
        assert_eq!(linked.hello_config(), None);
    }

    #[test]
    fn another_file_has_a_socket_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let one = find(environment(home.path(), &[]), Some("/nowhere/a.yaml"));
        let two = find(
            environment(home.path(), &[(variable::CONFIG, "/nowhere/b.yaml")]),
            None,
        );
        assert_ne!(one.socket, two.socket);
        assert_ne!(one.state_dir, two.state_dir);
        assert_eq!(one.hello_config().as_deref(), Some("/nowhere/a.yaml"));
    }

    #[test]
    fn the_runtime_folder_and_the_named_socket_win_in_order() {
        let home = tempfile::tempdir().unwrap();
        let runtime = [(variable::XDG_RUNTIME_DIR, "/run/user/7")];
        if cfg!(target_os = "linux") {
            assert_eq!(
                find(environment(home.path(), &runtime), None).socket,
                Path::new("/run/user/7/ptcd/ptcd.sock")
            );
        }
        // What would be another folder for each process is as good as absent.
        let relative = [
            (variable::XDG_RUNTIME_DIR, "run"),
            (variable::XDG_CONFIG_HOME, "conf"),
        ];
        let places = find(environment(home.path(), &relative), None);
        let plain = find(environment(home.path(), &[]), None);
        assert_eq!(places.socket, plain.socket);
        assert_eq!(places.config, plain.config);
        let named = [
            (variable::XDG_RUNTIME_DIR, "/run/user/7"),
            (variable::SOCKET, "/x/s"),
        ];
        let places = find(environment(home.path(), &named), None);
        assert_eq!(places.socket, Path::new("/x/s"));
        assert!(places.socket_named);
    }

    #[test]
    fn the_service_manager_is_for_the_default_daemon_only() {
        let home = tempfile::tempdir().unwrap();
        let units = |pairs: &[(&str, &str)], config: Option<&str>| {
            find(environment(home.path(), pairs), config).units
        };
        let own = if cfg!(target_os = "macos") {
            "Library/LaunchAgents"
        } else {
            ".config/systemd/user"
        };
        assert_eq!(units(&[], None), Some(home.path().join(own)));
        assert_eq!(units(&[], Some("/nowhere/a.yaml")), None);
        assert_eq!(units(&[(variable::SOCKET, "/x/s")], None), None);
        assert_eq!(units(&[(variable::STATE_DIR, "/x")], None), None);
        if cfg!(target_os = "linux") {
            let moved = units(&[(variable::XDG_CONFIG_HOME, "/c")], None);
            assert_eq!(moved.as_deref(), Some(Path::new("/c/systemd/user")));
        }
    }

    #[test]
    fn a_servers_log_has_a_name_that_stays_in_its_folder() {
        assert_eq!(server_log_name("git-hub_2"), "git_hub_2.log");
        assert_eq!(server_log_name("../\u{e4} x"), "_____x.log");
    }

    #[test]
    fn each_instance_of_a_server_has_a_log_of_its_own_that_no_other_server_has() {
        assert_eq!(instance_log_name("a.2", 1), "a_2.log");
        assert_eq!(instance_log_name("a.2", 3), "a_2.3.log");
        for (file, number) in [
            ("a.log", Some(1)),
            ("a.2.log", Some(2)),
            ("a.12.log", Some(12)),
            ("a.log.1", None),
            ("a.2.log.1", None),
            ("a_2.log", None),
            ("b.2.log", None),
            ("a.0.log", None),
            ("a.1.log", None),
            ("a.02.log", None),
            ("a..log", None),
        ] {
            assert_eq!(instance_of_log("a", file), number, "{file}");
        }
    }

    #[test]
    fn a_socket_path_that_does_not_fit_is_refused_with_the_limit() {
        let long = format!("/{}", "a".repeat(MAX_SOCKET_PATH));
        let home = tempfile::tempdir().unwrap();
        let error = Places::find(&Sources {
            config: None,
            socket: Some(long.into()),
            environment: environment(home.path(), &[]),
        })
        .unwrap_err();
        assert!(
            error.to_string().contains(&MAX_SOCKET_PATH.to_string()),
            "{error}"
        );
    }
}
