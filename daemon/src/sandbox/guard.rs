//! The hidden mode of ptcd that is the parent of one worker, on systems that end no child with its parent.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
#[cfg(not(target_os = "linux"))]
use std::process::ExitCode;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getppid, kill_process, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};

use super::guard_sys::{footprint, used_by_children};
use super::limits::{Limits, MAX_SCRATCH_DEPTH, MAX_SCRATCH_ENTRIES};

/// How often memory and parent are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often files are measured.
const MEASURE: Duration = Duration::from_millis(250);
/// Longest plan: the text of a worker and its paths.
const LONGEST: u64 = 1 << 20;
/// Descriptors of one worker.
const DESCRIPTORS: u64 = 128;
/// In what a shell counts file sizes.
const BLOCK: u64 = 512;

/// Sets what this process must not have itself, and puts the channel in its place: it comes as descriptor 1. `$1` is
/// processor time, `$2` the largest file, `$3` the number of descriptors.
const SCRIPT: &str = "umask 077 && ulimit -c 0 && ulimit -n \"$3\" && ulimit -t \"$1\" && ulimit -f \"$2\" && shift 3 \
    && exec 3>&1 >&2 && exec \"$@\"";

/// How the worker is made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Plan {
    /// The command line, the program first.
    pub(super) words: Vec<String>,
    /// Its folder, which is not there yet.
    pub(super) scratch: PathBuf,
    pub(super) limits: Limits,
    /// The user to become.
    pub(super) user: Option<u32>,
}

impl Plan {
    /// The line it travels as.
    pub(super) fn to_line(&self) -> String {
        let plan = json!({
            "words": self.words,
            "scratch": self.scratch.to_str(),
            "limits": self.limits.to_json(),
            "user": self.user,
        });
        format!("{plan}\n")
    }
}

/// What the guard tells, a line each.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Report {
    /// The worker was started.
    Started {
        /// Its process id.
        pid: i32,
    },
    /// It could not be.
    Failed {
        /// Why.
        detail: String,
    },
    /// It has ended, and its folder is gone.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        cpu_micros: u64,
        peak_memory_bytes: u64,
        scratch_exceeded: bool,
    },
}

/// Runs the guard: descriptor 0 is the socket to ptcd, 1 the channel, 2 where output goes.
#[cfg(not(target_os = "linux"))]
pub(super) fn main() -> ExitCode {
    let parent = getppid();
    // Whoever started ptcd may have left it descriptors that close by themselves nowhere.
    super::guard_sys::close_from(3);
    let run = || -> io::Result<()> {
        let take = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let control = UnixStream::from(take(rustix::stdio::stdin())?);
        let (channel, output) = (
            take(rustix::stdio::stdout())?,
            take(rustix::stdio::stderr())?,
        );
        // Somebody who started it by hand has no socket there.
        control.peer_addr()?;
        let null = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        serve(&control, channel, output, parent)
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(70),
    }
}

/// Makes one worker and stays until it has ended; without ptcd, or without this process's own parent, it ends at once.
pub(super) fn serve(
    control: &UnixStream,
    channel: OwnedFd,
    output: OwnedFd,
    parent: Option<Pid>,
) -> io::Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new(control.try_clone()?).take(LONGEST);
    reader.read_line(&mut line)?;
    let plan: Plan = serde_json::from_str(&line).map_err(io::Error::other)?;
    // A letter may have come with the line.
    let early = !reader.get_ref().buffer().is_empty();
    let started = make_scratch(&plan).and_then(|()| start(&plan, channel, output));
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            remove(&plan.scratch);
            let failed = json!({"Failed": {"detail": error.to_string()}});
            return tell(control, &failed);
        }
    };
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let told = tell(control, &json!({"Started": {"pid": pid}}));
    let mut watch = Watch {
        control,
        plan: &plan,
        parent,
        pid,
        killed: early || told.is_err(),
        peak: 0,
        exceeded: false,
        measured: Instant::now(),
    };
    let status = watch.until_ended(&mut child)?;
    // Until here its number was nobody else's; what it may have started without confinement has its group.
    kill_group(pid);
    remove(&plan.scratch);
    let (cpu, peak) = used_by_children();
    tell(
        control,
        &json!({"Ended": {
            "code": status.code(),
            "signal": status.signal(),
            "cpu_micros": u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX),
            "peak_memory_bytes": peak.max(watch.peak),
            "scratch_exceeded": watch.exceeded,
        }}),
    )
}

fn tell(mut control: &UnixStream, report: &Value) -> io::Result<()> {
    control.write_all(format!("{report}\n").as_bytes())
}

fn make_scratch(plan: &Plan) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(&plan.scratch)?;
    match plan.user {
        Some(user) => std::os::unix::fs::chown(&plan.scratch, Some(user), Some(user)),
        None => Ok(()),
    }
}

fn start(plan: &Plan, channel: OwnedFd, output: OwnedFd) -> io::Result<Child> {
    let limits = plan.limits;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", SCRIPT, "sh"])
        .arg(limits.cpu_seconds.to_string())
        .arg(limits.file_bytes().div_ceil(BLOCK).to_string())
        .arg(DESCRIPTORS.to_string())
        .args(&plan.words)
        .env_clear()
        .current_dir(&plan.scratch)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::from(channel))
        .stderr(Stdio::from(output));
    if let Some(user) = plan.user {
        command.uid(user).gid(user);
    }
    command.spawn()
}

/// What happens between a worker's start and its end.
struct Watch<'a> {
    control: &'a UnixStream,
    plan: &'a Plan,
    parent: Option<Pid>,
    pid: i32,
    killed: bool,
    /// The most memory it was seen to have.
    peak: u64,
    exceeded: bool,
    measured: Instant,
}

impl Watch<'_> {
    fn until_ended(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let tick = Timespec::try_from(TICK).map_err(io::Error::other)?;
        loop {
            if self.killed {
                kill_group(self.pid);
                return child.wait();
            }
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let mut events = [PollFd::new(self.control, PollFlags::IN)];
            match poll(&mut events, Some(&tick)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => self.obey(),
                Err(error) => {
                    kill_group(self.pid);
                    return Err(error.into());
                }
            }
            self.look();
        }
    }

    /// Follows one letter; without ptcd the worker ends.
    fn obey(&mut self) {
        let mut letter = [0];
        match self.control.read(&mut letter) {
            Ok(1) if letter == *b"i" => {
                if let Some(pid) = Pid::from_raw(self.pid) {
                    let _ = kill_process(pid, Signal::USR1);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.killed = true,
        }
    }

    fn look(&mut self) {
        self.killed |= getppid() != self.parent;
        let limits = self.plan.limits;
        if let Some(bytes) = footprint(self.pid) {
            self.peak = self.peak.max(bytes);
            self.killed |= bytes > limits.memory_bytes;
        }
        if self.measured.elapsed() >= MEASURE {
            self.measured = Instant::now();
            let mut left = (limits.scratch_bytes, MAX_SCRATCH_ENTRIES);
            if !fits(&self.plan.scratch, 0, &mut left) {
                self.exceeded = true;
                self.killed = true;
            }
        }
    }
}

fn kill_group(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Whether what lies in a folder is within the bytes and entries that are left. Links are not followed; what cannot be
/// looked into does not fit, unless it has gone meanwhile.
fn fits(folder: &Path, depth: usize, left: &mut (u64, usize)) -> bool {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    for entry in entries.flatten() {
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let (Some(bytes), Some(count)) = (left.0.checked_sub(found.len()), left.1.checked_sub(1))
        else {
            return false;
        };
        *left = (bytes, count);
        let inside = found.is_dir();
        if inside && (depth == MAX_SCRATCH_DEPTH || !fits(&entry.path(), depth + 1, left)) {
            return false;
        }
    }
    true
}

/// Removes a folder whatever modes its program gave to what is in it. Links are not followed.
fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_ok() {
        return;
    }
    open_up(folder, 0);
    let _ = fs::remove_dir_all(folder);
}

fn open_up(folder: &Path, depth: usize) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if depth < MAX_SCRATCH_DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path(), depth + 1);
        }
    }
}
