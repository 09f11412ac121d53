//! Starts the processes of stdio servers.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc;

use rustix::fs::Mode;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::marked::{Mark, Marks};
use super::process::kill_group;
use super::survivors::Survivors;

/// The variables of the daemon that a server gets, beside its own.
const PASSED_ON: [&str; 8] = [
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR",
];
/// Where commands are looked up when the server has no PATH at all.
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The commonest mistake with a command, said where it may have been made.
fn args_hint(path: &Path) -> &'static str {
    if path.as_os_str().as_encoded_bytes().contains(&b' ') {
        " (arguments belong in `args`)"
    } else {
        ""
    }
}

/// What an entry of the configuration says about a process, its variables replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Program: absolute, or a bare name that is looked up on the server's own PATH.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside those that every server gets.
    pub env: BTreeMap<String, String>,
    /// Working directory, absolute.
    pub cwd: PathBuf,
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values and arguments may be secrets.
        formatter
            .debug_struct("Entry")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// A server that cannot be started as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LaunchError {
    /// The entry's texts cannot be read, such as for a variable without a value.
    #[error("{cause}")]
    Entry {
        /// What is missing, and what to do.
        cause: String,
    },
    /// The address cannot be used.
    #[error("{cause}")]
    Address {
        /// What is wrong with it, without its values.
        cause: String,
    },
    /// The command is not there.
    #[error(
        "`{command}` is not in its PATH ({path}){}: write its whole path, or give the server a PATH under env",
        args_hint(Path::new(command))
    )]
    NotInPath {
        /// As configured.
        command: String,
        /// What was searched.
        path: String,
    },
    /// The command is a path to nothing that can be run.
    #[error("`{}` is no executable file{}", path.display(), args_hint(path))]
    NotExecutable {
        /// The resolved path.
        path: PathBuf,
    },
    /// The working directory is not there.
    #[error("its working directory `{}` is not there", path.display())]
    NoFolder {
        /// The resolved path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("`{}` could not be started: {cause}", program.display())]
    Refused {
        /// What was to run.
        program: PathBuf,
        /// The system's words.
        cause: String,
        /// Whether it lacked something that may be there in a while.
        transient: bool,
    },
}

impl LaunchError {
    /// Whether it is of use to try again as it is.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Refused { transient, .. } if *transient)
    }
}

/// Whether the system lacks memory, processes or descriptors now, or the program is just being written.
fn may_pass(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::TXTBSY,
        Errno::INTR,
    ];
    Errno::from_io_error(error).is_some_and(|error| passing.contains(&error))
}

/// Everything that is needed to start one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// The entry as it is started: its program found, its environment whole.
    entry: Entry,
    umask: Mode,
}

impl Launch {
    /// Finds the program and puts the environment together. `recorded` gives
    /// the daemon's recorded variables.
    pub(super) fn plan(
        mut entry: Entry,
        recorded: &(dyn Fn(&str) -> Option<String> + Send + Sync),
        umask: Mode,
    ) -> Result<Self, LaunchError> {
        for name in PASSED_ON {
            if !entry.env.contains_key(name)
                && let Some(value) = recorded(name)
            {
                entry.env.insert(name.to_owned(), value);
            }
        }
        if !entry.cwd.is_dir() {
            return Err(LaunchError::NoFolder { path: entry.cwd });
        }
        entry.command = find_program(&entry.command, &entry.cwd, entry.env.get("PATH"))?;
        Ok(Self { entry, umask })
    }
}

/// Why an entry of the configuration starts nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotThere {
    /// What is missing.
    pub fact: String,
    /// What to do.
    pub fix: &'static str,
}

/// The program that an entry means: what would be started, in the PATH the server would get. Starts nothing.
///
/// # Errors
/// The program or its working folder is not there.
pub fn locate(
    entry: Entry,
    recorded: &(dyn Fn(&str) -> Option<String> + Send + Sync),
) -> Result<PathBuf, NotThere> {
    match Launch::plan(entry, recorded, Mode::empty()) {
        Ok(launch) => Ok(launch.entry.command),
        Err(error) => {
            let text = error.to_string();
            let (fact, fix) = match error {
                LaunchError::NotInPath { .. } => (
                    text.split(": write its").next().unwrap_or(&text).to_owned(),
                    "install it, write its whole path, or give the server a PATH under env",
                ),
                LaunchError::NotExecutable { .. } => (text, "install it, or mend its `command`"),
                LaunchError::NoFolder { .. } => (text, "make the folder, or mend its `cwd`"),
                _ => (text, "mend its entry in the configuration"),
            };
            Err(NotThere { fact, fix })
        }
    }
}

fn find_program(command: &Path, cwd: &Path, path: Option<&String>) -> Result<PathBuf, LaunchError> {
    let file = cwd.join(command);
    if command.components().count() != 1 || command.is_absolute() {
        return if is_executable(&file) {
            Ok(file)
        } else {
            Err(LaunchError::NotExecutable { path: file })
        };
    }
    let path = path.map_or(FALLBACK_PATH, String::as_str);
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| cwd.join(folder).join(command))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| LaunchError::NotInPath {
            command: command.display().to_string(),
            path: path.to_owned(),
        })
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The thread from which all servers are started.
///
/// A server asks the kernel to be killed when the thread that started it ends,
/// so that thread must live as long as the daemon: no thread of the runtime is
/// promised to. It ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    jobs: mpsc::Sender<Job>,
    /// Told of every server, for the case that the daemon is killed.
    pub(super) survivors: Survivors,
}

#[derive(Debug)]
struct Job {
    launch: Launch,
    runtime: Handle,
    done: oneshot::Sender<io::Result<Spawned>>,
}

/// A process that has been started.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) child: Child,
    /// What it and its descendants carry.
    pub(super) mark: Option<Mark>,
}

impl Spawner {
    /// `own_program` is started beside the servers, to end what they leave behind.
    pub(super) fn start(own_program: Option<&Path>) -> io::Result<Self> {
        let survivors = own_program.map_or_else(Survivors::default, |program| {
            let program = program.to_owned();
            Survivors::watched_by(move || watch_survivors(&program))
        });
        let told = survivors.clone();
        let mut marks = Marks::new();
        if marks.is_none() && cfg!(target_os = "linux") {
            tracing::warn!(
                "the limit on file locks of this process leaves no room: a process that leaves its server's group by a double fork will outlive it"
            );
        }
        // Each supervisor waits for its one job, so the queue is bounded by their number.
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("server-spawner".to_owned())
            .spawn(move || {
                for job in queue {
                    let _guard = job.runtime.enter();
                    let mark = marks.as_mut().and_then(Marks::next);
                    let child = spawn(&job.launch, mark);
                    if let Some(pid) = child.as_ref().ok().and_then(Child::id) {
                        told.born(pid, mark);
                    }
                    let spawned = child.map(|child| Spawned { child, mark });
                    if let Err(Ok(unwanted)) = job.done.send(spawned)
                        && let Some(pid) = unwanted.child.id()
                    {
                        kill_group(pid);
                    }
                }
            })?;
        Ok(Self { jobs, survivors })
    }

    /// Starts a process. It is killed when nobody waits for it any more.
    pub(super) async fn spawn(&self, launch: Launch) -> Result<Spawned, LaunchError> {
        let program = launch.entry.command.clone();
        let refused = |cause: String, transient: bool| LaunchError::Refused {
            program: program.clone(),
            cause,
            transient,
        };
        let (done, child) = oneshot::channel();
        let runtime = Handle::current();
        let job = Job {
            launch,
            runtime,
            done,
        };
        self.jobs
            .send(job)
            .map_err(|_| refused("the daemon is stopping".to_owned(), false))?;
        match child.await {
            Ok(Ok(spawned)) => Ok(spawned),
            Ok(Err(error)) => Err(refused(error.to_string(), may_pass(&error))),
            Err(_) => Err(refused("the daemon is stopping".to_owned(), false)),
        }
    }
}

/// Starts the process that ends what servers leave behind. It is in a group of its own, so that a signal to the
/// daemon's does not end it first, and it has nothing of the daemon's environment.
fn watch_survivors(program: &Path) -> io::Result<(std::process::Child, ChildStdin)> {
    let mut child = std::process::Command::new(program)
        .arg("survivors")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pipe = child
        .stdin
        .take()
        .ok_or_else(|| io::Error::other("it has no stdin"))?;
    // A process that does not read must not hold up the start of a server.
    rustix::io::ioctl_fionbio(&pipe, true)?;
    Ok((child, pipe))
}

fn spawn(launch: &Launch, mark: Option<Mark>) -> io::Result<Child> {
    let entry = &launch.entry;
    let mut command = Command::new(&entry.command);
    command
        .args(&entry.args)
        .env_clear()
        .envs(&entry.env)
        .current_dir(&entry.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    prepare_child(&mut command, launch.umask, mark);
    command.spawn()
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
fn prepare_child(command: &mut Command, umask: Mode, mark: Option<Mark>) {
    let parent = rustix::process::getpid();
    // SAFETY: the closure runs in the forked child before exec. It makes
    // system calls only, all of them async-signal-safe, allocates nothing and
    // takes no lock: `from_raw_os_error` merely stores its number.
    unsafe {
        command.pre_exec(move || {
            close_inherited_files();
            rustix::process::umask(umask);
            if let Some(mark) = mark {
                mark.put_on()?;
            }
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died before the call above took effect.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        });
    }
}

/// No signal at the parent's death elsewhere; the daemon's orderly end and `kill_on_drop` remain.
#[cfg(not(target_os = "linux"))]
#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
fn prepare_child(command: &mut Command, umask: Mode, _mark: Option<Mark>) {
    // SAFETY: the closure makes one async-signal-safe system call in the
    // forked child, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::umask(umask);
            Ok(())
        });
    }
}

/// Marks everything above stderr to be closed by exec: files that the daemon
/// was handed by whoever started it are not for its servers.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "close_range has no safe wrapper here")]
fn close_inherited_files() {
    // SAFETY: the call changes a flag of this process's descriptors and
    // touches no memory. Where the kernel lacks it, it fails and nothing is
    // lost: everything the daemon opens itself is closed by exec anyway.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(command: &str, env: &[(&str, &str)], cwd: &Path) -> Entry {
        Entry {
            command: PathBuf::from(command),
            args: vec!["secret-argument".to_owned()],
            env: env
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            cwd: cwd.to_owned(),
        }
    }

    fn plan(entry: Entry, recorded: &[(&str, &str)]) -> Result<Launch, LaunchError> {
        let recorded: BTreeMap<String, String> = recorded
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Launch::plan(
            entry,
            &|name| recorded.get(name).cloned(),
            Mode::from_raw_mode(0o022),
        )
    }

    fn executable(folder: &Path, name: &str) {
        let file = folder.join(name);
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_server_gets_the_eight_variables_and_its_own_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        executable(folder.path(), "tool");
        let tool = folder.path().join("tool");
        let launch = plan(
            entry(
                tool.to_str().unwrap(),
                &[("KEY", "secret-value"), ("LANG", "C")],
                folder.path(),
            ),
            &[
                ("HOME", "/h"),
                ("LANG", "en"),
                ("SECRET", "s"),
                ("PATH", "/p"),
            ],
        )
        .unwrap();
        let env: Vec<(&str, &str)> = launch
            .entry
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            env,
            [
                ("HOME", "/h"),
                ("KEY", "secret-value"),
                ("LANG", "C"),
                ("PATH", "/p")
            ]
        );
        let debug = format!("{launch:?}");
        assert!(!debug.contains("secret-"), "{debug}");
    }

    #[test]
    fn commands_are_found_on_the_servers_own_path_only() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        executable(&bin, "tool");
        let recorded = [("PATH", "/nowhere")];
        let launch = plan(entry("tool", &[("PATH", "bin")], folder.path()), &recorded).unwrap();
        assert_eq!(launch.entry.command, bin.join("tool"));
        let error = plan(entry("tool", &[], folder.path()), &recorded).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`tool` is not in its PATH (/nowhere): write its whole path, or give the server a PATH under env"
        );
    }

    #[test]
    fn what_the_system_lacks_only_now_is_tried_again() {
        for (code, again) in [
            (libc::EMFILE, true),
            (libc::EAGAIN, true),
            (libc::ENOMEM, true),
            (libc::ENOENT, false),
            (libc::EACCES, false),
            (libc::ENOEXEC, false),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(may_pass(&error), again, "{error}");
        }
    }

    #[test]
    fn a_folder_or_a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        let error = plan(entry("sh", &[], &none), &[]).unwrap_err();
        assert_eq!(error, LaunchError::NoFolder { path: none });
        let text = folder.path().join("text");
        std::fs::write(&text, "").unwrap();
        let error = plan(entry(text.to_str().unwrap(), &[], folder.path()), &[]).unwrap_err();
        assert_eq!(error, LaunchError::NotExecutable { path: text });
    }
}
