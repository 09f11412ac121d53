//! The hidden mode of ptcd that is the parent of all workers: one thread, one loop, no memory of programs.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use super::birth;
use super::interpreter::NOBODY;
use super::limits::{Limits, tasks_of};
use super::namespaces::{self, Entered, Inside};
use super::profile;
use super::root::SCRATCH;
use super::scratch::{Base, Scratch};
use super::seccomp::Filters;
use super::step::Step;
use super::sweeper::{self, Sweeper, Task};
use super::sys::{self, Forked};
use super::usage::{Measuring, Usage};
use super::wire::{Plan, Report, Request, receive, send};
use super::without::{Layer, Weakened, Without};
use super::worker::{Making, follow_ptcd};

/// How often the files of workers are measured.
const MEASURE: Duration = Duration::from_millis(250);
/// How long the end of all workers may take when ptcd has gone.
const WORKERS_END: Duration = Duration::from_millis(500);
/// How long removing what they left may take then; the rest is the next warden's. With the time above it is less
/// than ptcd waits.
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Runs the warden on descriptor 0, a packet socket to ptcd, until ptcd closes its end; `inside` runs it in namespaces
/// of its own.
pub fn main(inside: bool) -> ExitCode {
    start(inside, None)
}

/// The same; for tests it follows plans with layers left out, and itself lacks those of `testing`.
pub(super) fn start(inside: bool, testing: Option<&Without>) -> ExitCode {
    let stdin = io::stdin();
    if !sys::is_packet_socket(stdin.as_fd()) {
        // Somebody started it by hand.
        return ExitCode::from(64);
    }
    match run(stdin.as_fd(), inside, testing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(70),
    }
}

fn run(control: BorrowedFd<'_>, inside: bool, testing: Option<&Without>) -> io::Result<()> {
    sys::close_from(3)?;
    // A session of its own keeps the terminal's Ctrl-C for ptcd, which decides when workers end.
    let _ = rustix::process::setsid();
    // A service manager that ends the whole group must not end workers before ptcd has drained.
    sys::ignore_requests_to_end();
    follow_ptcd(inside)?;
    let inside = if inside {
        match namespaces::enter(close_control, testing.unwrap_or(&Without::default())) {
            Ok(Entered::Inside(inside)) => Some(inside),
            Ok(Entered::Outside) => return Ok(()),
            Err(error) => return explain(control, &format!("namespaces: {error}")),
        }
    } else {
        None
    };
    match Warden::start(control, inside) {
        Ok(mut warden) => {
            warden.testing = testing.is_some();
            warden.serve()
        }
        Err(error) => {
            let detail = format!("no scratch folder can be made under /run or /tmp: {error}");
            explain(control, &detail)
        }
    }
}

/// Gives up this process's share in descriptor 0. Where that fails the socket closes with this process.
fn close_control() {
    if let Ok(null) = File::open("/dev/null") {
        let _ = sys::place(null.as_fd(), 0, false);
    }
}

/// Answers the first request with why there is no warden.
fn explain(control: BorrowedFd<'_>, detail: &str) -> io::Result<()> {
    receive(control)?;
    let detail = detail.to_owned();
    send(control, &Report::Unusable { detail }.to_json(), &[])
}

/// One worker.
#[derive(Debug)]
struct Worker {
    id: u64,
    pidfd: OwnedFd,
    /// Its folder; where it has a file system of its own there is none.
    scratch: Option<Scratch>,
    limits: Limits,
    scratch_exceeded: bool,
    /// Its processor time just before its files were last measured.
    ran: Option<Duration>,
}

impl Worker {
    /// Begins to measure its files, unless it did not run since the last time, and so wrote nothing.
    fn measure(&mut self, pid: i32) -> Option<Measuring> {
        let scratch = self.scratch.as_ref()?;
        let ran = sys::processor_time(pid).ok();
        if self.scratch_exceeded || (ran.is_some() && ran == self.ran) {
            return None;
        }
        self.ran = ran;
        let (limit, largest) = (self.limits.scratch_bytes, self.limits.file_bytes());
        Some(scratch.measure(pid, limit, largest))
    }
}

/// How workers are made at present.
#[derive(Debug)]
struct Ready {
    plan: Plan,
    /// What workers lack; nothing but in tests.
    without: Without,
    filters: Option<Filters>,
}

#[derive(Debug)]
struct Warden {
    control: OwnedFd,
    /// Where workers have their folders; `None` inside, where each has a file system of its own.
    base: Option<Base>,
    inside: Option<Inside>,
    ready: Option<Ready>,
    workers: BTreeMap<i32, Worker>,
    become_user: Option<u32>,
    own_pid: Pid,
    /// When the last round of measuring began, and who is still to be measured in it.
    measured: Instant,
    unmeasured: VecDeque<i32>,
    /// Who is being measured.
    measuring: Option<(i32, Measuring)>,
    /// Who removes what dead workers left.
    sweeper: Option<Sweeper>,
    /// Whether something was set aside since it was started.
    unswept: bool,
    /// Who removes what dead wardens left.
    cleaner: Option<Sweeper>,
    /// Whether it follows a plan that leaves something out.
    testing: bool,
}

impl Warden {
    fn start(control: BorrowedFd<'_>, inside: Option<Inside>) -> io::Result<Self> {
        let base = match &inside {
            Some(_) => None,
            None => Some(Base::create()?),
        };
        let control = rustix::io::fcntl_dupfd_cloexec(control, 3)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        sys::place(null.as_fd(), 0, false)?;
        // Inside it has no other user to become.
        let root = inside.is_none() && rustix::process::geteuid().is_root();
        Ok(Self {
            control,
            base,
            inside,
            ready: None,
            workers: BTreeMap::new(),
            become_user: root.then_some(NOBODY),
            own_pid: rustix::process::getpid(),
            measured: Instant::now(),
            unmeasured: VecDeque::new(),
            measuring: None,
            sweeper: None,
            unswept: false,
            cleaner: None,
            testing: false,
        })
    }

    /// Answers requests and reaps workers until ptcd has gone.
    fn serve(&mut self) -> io::Result<()> {
        // Where this fails they are left to the next warden.
        self.cleaner = self.fork_sweeper(Task::Remains).ok();
        let outcome = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end_workers();
        self.clear();
        outcome
    }

    /// Ends all workers and waits until they have ended, for a while.
    fn end_workers(&self) {
        let until = Instant::now() + WORKERS_END;
        for (pid, worker) in &self.workers {
            let _ = pidfd_send_signal(&worker.pidfd, Signal::KILL);
            sys::kill_group(*pid);
        }
        for worker in self.workers.values() {
            let left = until.saturating_duration_since(Instant::now());
            let mut event = [PollFd::new(&worker.pidfd, PollFlags::IN)];
            let _ = timespec(left).map(|left| poll(&mut event, Some(&left)));
        }
    }

    /// Removes this warden's folder as far as that goes in the time there is.
    fn clear(&mut self) {
        for sweeper in self.sweeper.take().into_iter().chain(self.cleaner.take()) {
            sweeper.finish(Timespec::default());
        }
        if self.base.as_ref().is_none_or(|base| base.finish().is_ok()) {
            return;
        }
        if let Ok(limit) = timespec(LAST_SWEEP)
            && let Ok(sweeper) = self.fork_sweeper(Task::Everything)
        {
            sweeper.finish(limit);
            let _ = self.base.as_ref().map(Base::finish);
        }
    }

    /// Waits for something to happen and handles it; false when ptcd has gone. Between two looks at what is asked it
    /// measures for a moment only, however many workers there are and whatever they have made.
    fn turn(&mut self) -> io::Result<bool> {
        self.start_sweeper();
        let mut events = vec![PollFd::new(&self.control, PollFlags::IN)];
        for worker in self.workers.values() {
            events.push(PollFd::new(&worker.pidfd, PollFlags::IN));
        }
        for sweeper in self.sweeper.iter().chain(&self.cleaner) {
            events.push(PollFd::new(sweeper.pidfd(), PollFlags::IN));
        }
        if let Some(inside) = &self.inside {
            events.push(PollFd::new(&inside.leash, PollFlags::IN));
        }
        let timeout = self.patience().map(timespec).transpose()?;
        match poll(&mut events, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => other?,
        };
        let asked = events
            .first()
            .is_some_and(|event| !event.revents().is_empty());
        let ended: Vec<i32> = self
            .workers
            .keys()
            .zip(events.iter().skip(1))
            .filter(|(_, event)| !event.revents().is_empty())
            .map(|(pid, _)| *pid)
            .collect();
        let leashed = self.inside.is_some();
        if leashed
            && events
                .last()
                .is_some_and(|event| !event.revents().is_empty())
        {
            // The process that waits outside has gone.
            return Ok(false);
        }
        for pid in ended {
            self.reap(pid)?;
        }
        for slot in [&mut self.sweeper, &mut self.cleaner] {
            slot.take_if(|sweeper| sweeper.reap());
        }
        self.measure();
        if asked { self.answer() } else { Ok(true) }
    }

    /// How long the next turn may wait: until a worker is to be measured, or a sweeper that could not be started is
    /// to be tried again.
    fn patience(&self) -> Option<Duration> {
        if self.measuring.is_some() || !self.unmeasured.is_empty() {
            return Some(Duration::ZERO);
        }
        if self.workers.is_empty() || self.base.is_none() {
            let retried = self.unswept && self.sweeper.is_none();
            return retried.then_some(MEASURE);
        }
        Some(MEASURE.saturating_sub(self.measured.elapsed()))
    }

    /// Receives a request and answers it; false when ptcd has gone.
    fn answer(&mut self) -> io::Result<bool> {
        let Some((text, descriptors)) = receive(&self.control)? else {
            return Ok(false);
        };
        match serde_json::from_slice(&text).map_err(io::Error::other)? {
            Request::Configure => self.configure(descriptors)?,
            Request::Spawn { id, limits } => self.spawn(id, limits, &descriptors)?,
        }
        Ok(true)
    }

    /// Starts a sweeper if there is something to sweep and nobody at it.
    fn start_sweeper(&mut self) {
        if self.unswept
            && self.sweeper.is_none()
            && let Ok(sweeper) = self.fork_sweeper(Task::Dead)
        {
            self.sweeper = Some(sweeper);
            self.unswept = false;
        }
    }

    fn fork_sweeper(&self, task: Task) -> io::Result<Sweeper> {
        let base = self
            .base
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        match sys::fork()? {
            Forked::Child => sweeper::run(base, task, self.own_pid),
            Forked::Parent(pid) => Sweeper::of(pid),
        }
    }

    fn discard(&mut self, scratch: Option<Scratch>) {
        if let (Some(base), Some(scratch)) = (&self.base, scratch) {
            self.unswept |= base.discard(scratch);
        }
    }

    fn tell(&self, report: &Report, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(&self.control, &report.to_json(), descriptors)
    }

    fn configure(&mut self, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut text = String::new();
        let file = descriptors.into_iter().next().map(File::from);
        let mut file = file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        file.read_to_string(&mut text)?;
        let plan: Plan = serde_json::from_str(&text).map_err(io::Error::other)?;
        let Weakened { without } = serde_json::from_str(&text).map_err(io::Error::other)?;
        let profile = without.profile.as_deref().unwrap_or(profile::TEXT);
        let compile = |tier| Filters::compile(profile, tier);
        let filters = plan.tier.as_deref().map(compile).transpose();
        let built = match (&mut self.inside, &plan.root) {
            _ if !self.testing && without != Without::default() => {
                Err("the plan leaves something out".to_owned())
            }
            (None, None) => Ok(()),
            (Some(_), Some(_)) if without.lacks(Layer::Root) => Ok(()),
            (Some(inside), Some(root)) => {
                inside.build(root).map_err(|error| format!("root: {error}"))
            }
            _ => Err("the plan is for another tier".to_owned()),
        };
        let filters = built.and_then(|()| filters.map_err(|error| error.to_string()));
        let report = match filters {
            Ok(filters) => {
                let count = filters.as_ref().map_or(0, Filters::count);
                self.ready = Some(Ready {
                    plan,
                    without,
                    filters,
                });
                Report::Configured { filters: count }
            }
            Err(detail) => {
                self.ready = None;
                Report::Unusable { detail }
            }
        };
        self.tell(&report, &[])
    }

    fn spawn(&mut self, id: u64, limits: Limits, ends: &[OwnedFd]) -> io::Result<()> {
        match self.make(id, limits, ends) {
            Ok((pid, worker)) => {
                self.tell(&Report::Spawned { id }, &[worker.pidfd.as_fd()])?;
                self.workers.insert(pid, worker);
                Ok(())
            }
            Err((step, detail)) => self.tell(&Report::Failed { id, step, detail }, &[]),
        }
    }

    fn make(
        &mut self,
        id: u64,
        limits: Limits,
        ends: &[OwnedFd],
    ) -> Result<(i32, Worker), (Step, String)> {
        let at = |step| move |error: io::Error| (step, error.to_string());
        let Some(ready) = &self.ready else {
            return Err((Step::Fork, "there is no plan".to_owned()));
        };
        let user = self
            .become_user
            .unwrap_or_else(|| rustix::process::getuid().as_raw());
        // In a user namespace of its own the kernel counts a worker's threads alone.
        let tasks = match self.inside {
            Some(_) => 0,
            None => tasks_of(user).map_err(at(Step::Limits))?,
        };
        let scratch = match &self.base {
            Some(base) => Some(base.add(self.become_user).map_err(at(Step::Scratch))?),
            None => None,
        };
        let made = birth::start(&Making {
            plan: &ready.plan,
            without: &ready.without,
            filters: ready.filters.as_ref(),
            limits,
            scratch: scratch
                .as_ref()
                .map_or(Path::new(SCRATCH), |scratch| &scratch.path),
            ends,
            tasks,
            become_user: self.become_user,
            warden: self.own_pid,
            inside: self.inside.as_ref().map(Inside::proc),
        });
        match made {
            Ok((pid, pidfd)) => Ok((
                pid,
                Worker {
                    id,
                    pidfd,
                    scratch,
                    limits,
                    scratch_exceeded: false,
                    ran: None,
                },
            )),
            Err(failure) => {
                self.discard(scratch);
                Err(failure)
            }
        }
    }

    fn reap(&mut self, pid: i32) -> io::Result<()> {
        // An unconfined worker may leave processes of its own behind; until it is reaped the number is still its.
        sys::kill_group(pid);
        let Some(ended) = sys::reap(pid)? else {
            return Ok(());
        };
        let Some(worker) = self.workers.remove(&pid) else {
            return Ok(());
        };
        self.measuring.take_if(|(measured, _)| *measured == pid);
        self.discard(worker.scratch);
        let report = Report::Exited {
            id: worker.id,
            code: ended.code,
            signal: ended.signal,
            cpu_micros: u64::try_from(ended.cpu.as_micros()).unwrap_or(u64::MAX),
            peak_memory_bytes: ended.peak_memory_bytes,
            scratch_exceeded: worker.scratch_exceeded,
        };
        self.tell(&report, &[])
    }

    /// Measures for a moment, one worker after the other, and ends those whose files are over their limit. Rounds
    /// begin four times a second, or as soon as the last is over.
    fn measure(&mut self) {
        if self.measuring.is_none() {
            if self.unmeasured.is_empty() && self.measured.elapsed() >= MEASURE {
                self.measured = Instant::now();
                self.unmeasured.extend(self.workers.keys());
            }
            let workers = &mut self.workers;
            self.measuring = std::iter::from_fn(|| self.unmeasured.pop_front())
                .find_map(|pid| Some((pid, workers.get_mut(&pid)?.measure(pid)?)));
        }
        let Some((pid, measuring)) = &mut self.measuring else {
            return;
        };
        let Some(usage) = measuring.go_on() else {
            return;
        };
        if usage == Usage::Over
            && let Some(worker) = self.workers.get_mut(pid)
        {
            worker.scratch_exceeded = true;
            let _ = pidfd_send_signal(&worker.pidfd, Signal::KILL);
        }
        self.measuring = None;
    }
}

fn timespec(duration: Duration) -> io::Result<Timespec> {
    Timespec::try_from(duration).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_request_of_another_shape_is_refused() {
        assert!(serde_json::from_value::<Request>(Value::from("Stop")).is_err());
    }
}
