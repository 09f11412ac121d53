//! A home of its own for the programs under test: folders, configuration, environment.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::daemon::Daemon;
use crate::process;
use crate::programs::program;
use crate::wait::eventually;

/// A configuration in the making.
#[derive(Clone, Debug)]
pub struct Plan(Value);

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

impl Plan {
    /// No servers, a small pool, and the confinement this machine has.
    pub fn new() -> Self {
        Self::bare().set("execution.sandbox", crate::machine::sandbox_word())
    }

    /// No servers, a small pool, and the confinement left to the default.
    pub fn bare() -> Self {
        Self(json!({"servers": [], "execution": {"pool": {"warm": 1, "max": 2}}}))
    }

    /// Adds the scripted server under this name, with these switches.
    #[must_use]
    pub fn server(self, name: &str, switches: &[&str]) -> Self {
        self.entry(json!({
            "name": name,
            "transport": "stdio",
            "command": program("mock-mcp"),
            "args": switches,
        }))
    }

    /// Adds a server as it stands.
    #[must_use]
    pub fn entry(mut self, entry: Value) -> Self {
        if let Some(servers) = self.0["servers"].as_array_mut() {
            servers.push(entry);
        }
        self
    }

    /// Sets a key, named with dots.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let place = key
            .split('.')
            .fold(&mut self.0, |place, part| &mut place[part]);
        *place = value.into();
        self
    }

    /// The file's text; JSON is YAML.
    pub fn text(&self) -> String {
        format!("{:#}\n", self.0)
    }
}

/// Folders, configuration and environment that belong to one test.
#[derive(Debug)]
pub struct Home {
    root: TempDir,
}

impl Home {
    /// A home with the configuration of `plan`.
    pub fn new(plan: &Plan) -> Self {
        Self::with_text(&plan.text())
    }

    /// A home with this text as its configuration.
    pub fn with_text(config: &str) -> Self {
        // Not the system's temporary folder, which is a long path on macOS: socket paths are short.
        let root = tempfile::Builder::new()
            .prefix("ptc-")
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        let home = Self { root };
        for (folder, mode) in [("", 0o711), ("home", 0o700), ("run", 0o700)] {
            let path = home.path(folder);
            std::fs::create_dir_all(&path).expect("a folder");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
                .expect("its mode");
        }
        home.write_config(config);
        home
    }

    /// A path below this home.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// Makes a folder below this home where there is none, and gives its real path.
    pub fn folder(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        std::fs::create_dir_all(&path).expect("a folder");
        path.canonicalize().expect("the real path")
    }

    /// Writes a file below this home, and says where.
    pub fn write(&self, relative: &str, text: &str) -> PathBuf {
        let path = self.path(relative);
        std::fs::write(&path, text).expect("a file to be written");
        path
    }

    /// Writes a login shell that has these variables and then does as it is told.
    pub fn login_shell(&self, exports: &str) -> PathBuf {
        let text = format!("#!/bin/sh\n{exports}\nexec /bin/sh \"$@\"\n");
        let path = self.write("shell", &text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("its mode");
        path
    }

    /// Replaces the configuration file.
    pub fn write_config(&self, text: &str) {
        self.write("config.yaml", text);
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.path("config.yaml")
    }

    /// The state folder of this home's configuration; there once a daemon has run.
    pub fn state(&self) -> PathBuf {
        let real = self.config().canonicalize().expect("the real path");
        self.places_for(&real).state_dir
    }

    /// The socket the programs work out by themselves.
    pub fn socket(&self) -> PathBuf {
        self.places_for(&self.config()).socket
    }

    fn places_for(&self, config: &Path) -> ptc_protocol::paths::Places {
        let environment =
            ptc_protocol::paths::Environment::from_lookup(Some(self.path("home")), |name| {
                self.environment()
                    .into_iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value)
            });
        ptc_protocol::paths::Places::find(&ptc_protocol::paths::Sources {
            config: Some(config.to_owned()),
            socket: None,
            environment,
        })
        .expect("places that fit")
    }

    /// The environment programs are started with; nothing else of the test's own gets through.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            ("HOME", self.path("home").into_os_string()),
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("LANG", "C.UTF-8".into()),
        ];
        if cfg!(target_os = "linux") {
            environment.push(("XDG_RUNTIME_DIR", self.path("run").into_os_string()));
        }
        environment
    }

    /// One of the programs under test, to be started in this home.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command
            .env_clear()
            .envs(self.environment())
            .current_dir(self.path("home"))
            .stdin(Stdio::null());
        command
    }

    /// One of the programs under test, started by a shell that does something `first`; `within` is a
    /// program that starts the shell and becomes it, where there is one.
    pub fn under_shell(&self, name: &str, within: &[&str], first: &str) -> Command {
        let script = format!("{first}\nexec \"$0\" \"$@\"");
        let words = within.iter().copied().chain(["/bin/sh", "-ec", &script]);
        let words: Vec<&str> = words.collect();
        let mut command = Command::new(words[0]);
        command
            .env_clear()
            .envs(self.environment())
            .current_dir(self.path("home"))
            .stdin(Stdio::null())
            .args(&words[1..])
            .arg(program(name));
        command
    }

    /// Runs a program to its end, and panics when it has none within `limit`.
    #[track_caller]
    pub fn output_of(&self, name: &str, args: &[&str], limit: Duration) -> Output {
        let out = self.path(&format!("{name}.out"));
        let err = self.path(&format!("{name}.err"));
        let mut child = self
            .command(name)
            .args(args)
            .stdout(std::fs::File::create(&out).expect("a file for stdout"))
            .stderr(std::fs::File::create(&err).expect("a file for stderr"))
            .spawn()
            .expect("the program to start");
        let what = format!("{name} {args:?} ends");
        let status = eventually(&what, limit, || child.try_wait().expect("its state"));
        Output {
            status,
            stdout: std::fs::read(&out).expect("its stdout"),
            stderr: std::fs::read(&err).expect("its stderr"),
        }
    }

    /// Runs `ptcctl` against this home's daemon: exit code, stdout, stderr.
    #[track_caller]
    pub fn ctl(&self, args: &[&str]) -> (i32, String, String) {
        let config = self.config();
        let config = config.to_str().expect("a path in UTF-8");
        let mut all = vec!["--config", config];
        all.extend(args);
        let output = self.output_of("ptcctl", &all, Duration::from_mins(1));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code().unwrap_or(-1),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Starts this home's daemon and waits until it answers.
    #[track_caller]
    pub fn daemon(&self) -> Daemon {
        Daemon::start(self)
    }

    /// Starts a shim and shakes hands through it.
    #[track_caller]
    pub fn client(&self) -> Client {
        let mut client = self.shim();
        client.initialize("2025-11-25");
        client
    }

    /// Starts a shim, and says nothing yet.
    #[track_caller]
    pub fn shim(&self) -> Client {
        self.shim_with(&[])
    }

    /// Starts a shim with more arguments.
    #[track_caller]
    pub fn shim_with(&self, args: &[&str]) -> Client {
        let mut command = self.command("ptc-mcp");
        command.arg("--config").arg(self.config()).args(args);
        self.shim_of(command)
    }

    /// Starts a shim as this command says.
    #[track_caller]
    pub fn shim_of(&self, command: Command) -> Client {
        Client::start(command, &self.path("ptc-mcp.stderr"))
    }

    /// Where the daemon's stderr goes.
    pub fn daemon_log(&self) -> PathBuf {
        self.path("ptcd.stderr")
    }

    /// Every process that was started with a path of this home on its command line.
    pub fn processes(&self) -> Vec<process::Process> {
        process::mentioning(&self.root.path().display().to_string())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A daemon that a shim started, and what a failed test left.
        for process in self.processes() {
            process.kill();
        }
        if std::thread::panicking() {
            for (title, path) in [
                ("ptcd's stderr", self.daemon_log()),
                ("ptcd's log", self.state().join("ptcd.log")),
                ("ptc-mcp's stderr", self.path("ptc-mcp.stderr")),
            ] {
                show_end(title, &path);
            }
        }
    }
}

/// Shows the last lines of a file beside the failed test.
fn show_end(title: &str, path: &Path) {
    use std::io::Write as _;
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(25);
    for line in lines.get(from..).unwrap_or_default() {
        let _ = writeln!(std::io::stderr(), "[{title}] {line}");
    }
}
