//! A whole daemon under load and trouble: real clients, servers that misbehave, reloads, ends of the daemon.
//!
//! One course has three parts. In the first the daemon is killed over and over. Then its last
//! generation runs on with all other troubles and is measured twice while everything rests: after
//! a time to warm up, and after the long part. What it holds then must be what it held before.

mod client;
mod ledger;
mod memory;
mod options;
mod record;
mod trouble;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use ptc_protocol::route;
use ptc_protocol::status::{ProcessFigures, ServerState, Status};
use ptc_tests::{Home, Plan, http};
use serde_json::json;

use ledger::Ledger;
pub(crate) use memory::Memory;
pub(crate) use options::Options;
use trouble::Trouble;

/// Longest wait for what must happen soon, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_mins(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Looks at the figures of a daemon that rests.
const LOOKS: usize = 25;
/// Descriptors and bytes by which a resting daemon may differ beside its tenth: one connection, one arena.
const SLACK: (u64, u64) = (4, 4 * 1024 * 1024);

/// What is done with the daemon, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Where the random choices start.
    pub(crate) seed: u64,
    /// Clients at once.
    pub(crate) clients: usize,
    /// Ends of the daemon in the first part.
    pub(crate) kills: usize,
    /// Most time between two of them.
    pub(crate) between: Duration,
    /// Whether servers are troubled and the configuration is changed.
    pub(crate) unruly: bool,
    /// The warming up and the long part; none where only ends are of interest.
    pub(crate) measured: Option<(Duration, Duration)>,
}

/// What the clients do now.
#[derive(Debug, Default)]
struct Control {
    state: AtomicU8,
    resting: AtomicUsize,
}

const RUN: u8 = 0;
const REST: u8 = 1;
const END: u8 = 2;

impl Control {
    fn set(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.state.load(Ordering::SeqCst) == END
    }

    /// Waits while everything rests.
    fn pass(&self) {
        if self.state.load(Ordering::SeqCst) != REST {
            return;
        }
        self.resting.fetch_add(1, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) == REST {
            std::thread::park_timeout(PAUSE);
        }
        self.resting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What one course is carried out on.
struct Stage<'a> {
    home: &'a Home,
    ledger: &'a Ledger,
    control: &'a Control,
    /// A file name that no other test uses.
    mark: &'a str,
}

impl Course {
    /// The form of the ordinary test run.
    pub(crate) fn short(seed: u64) -> Self {
        Self {
            seed,
            clients: 8,
            kills: 2,
            between: Duration::from_secs(6),
            unruly: true,
            measured: Some((Duration::from_secs(25), Duration::from_secs(45))),
        }
    }

    /// Ends of the daemon only, at random moments under load.
    pub(crate) fn of_kills(seed: u64, kills: usize) -> Self {
        Self {
            seed,
            clients: 4,
            kills,
            between: Duration::from_secs(3),
            unruly: false,
            measured: None,
        }
    }

    /// A third of the time with ends of the daemon, a sixth to warm up, the rest is the long part.
    pub(crate) fn of(time: Duration, clients: usize, seed: u64) -> Self {
        let between = Duration::from_secs(6);
        let kills = (time.as_secs() / 3).div_ceil(between.as_secs().max(1));
        Self {
            seed,
            clients,
            kills: usize::try_from(kills).unwrap_or(1).max(1),
            between,
            unruly: true,
            measured: Some((time / 6, time / 2)),
        }
    }

    /// Carries it out; the text is a table of what happened, or what is wrong.
    pub(crate) fn run(&self) -> Result<String, String> {
        let start = Instant::now();
        let mark = format!("soak-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let home = Home::new(&plan(&mark, &[]));
        let (ledger, control) = (Ledger::default(), Control::default());
        let stage = Stage {
            home: &home,
            ledger: &ledger,
            control: &control,
            mark: &mark,
        };
        let measured = std::thread::scope(|scope| {
            let mut rng = Rng::with_seed(self.seed);
            let clients: Vec<_> = (0..self.clients)
                .map(|number| {
                    let (stage, seed) = (&stage, rng.u64(..));
                    scope.spawn(move || guarded(stage, || client::work(stage, number, seed)))
                })
                .collect();
            let measured = guarded(&stage, || self.parts(&stage, &mut rng));
            control.set(END);
            for client in clients {
                let _ = client.join();
            }
            measured.flatten()
        });
        guarded(&stage, || finish(&stage));
        let mut text = ledger.table();
        if let Some((before, after)) = measured {
            text.push_str(&shown(&before, &after));
        }
        let seconds = start.elapsed().as_secs();
        let _ = writeln!(text, "seed {}, {seconds} s", self.seed);
        match ledger.findings() {
            None => Ok(text),
            Some(findings) => Err(format!("{findings}\n{text}")),
        }
    }

    /// The three parts, one after the other.
    fn parts(&self, stage: &Stage<'_>, rng: &mut Rng) -> Option<(ProcessFigures, ProcessFigures)> {
        let mut trouble = Trouble::new(stage, self.unruly);
        trouble.wait_for_daemon();
        for _ in 0..self.kills {
            let millis = u64::try_from(self.between.as_millis()).unwrap_or(u64::MAX);
            let time = Duration::from_millis(rng.u64(100..=millis.max(101)));
            trouble.go_on(rng, time);
            trouble.kill_daemon();
            if stage.ledger.is_bad() {
                return None;
            }
        }
        let (warm, long) = self.measured?;
        trouble.go_on(rng, warm);
        let before = rest(stage, &mut trouble);
        trouble.go_on(rng, long);
        let after = rest(stage, &mut trouble);
        compare(stage.ledger, &before, &after);
        Some((before, after))
    }
}

/// The servers; `more` come on top.
pub(super) fn plan(mark: &str, more: &[&str]) -> Plan {
    let once = |name: &str| once(mark, name).display().to_string();
    let (dies, hangs) = (once("dies"), once("hangs"));
    let mut plan = Plan::new()
        .set("execution.pool", json!({"warm": 2, "max": 2}))
        .set("execution.tool_call_timeout_seconds", 3)
        .server("steady", &[])
        .server("killed", &[])
        .server("dies", &["--die-mid-call", "--once", &dies])
        .server("hangs", &["--hang", "--once", &hangs])
        .server("floods", &["--stderr-flood", "--banner"]);
    for name in more {
        plan = plan.server(name, &[]);
    }
    plan
}

/// While this file is there, that server behaves.
pub(super) fn once(mark: &str, name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{mark}-{name}"))
}

/// Does a part; where it panics, that is a finding and the end.
fn guarded<T>(stage: &Stage<'_>, part: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(value) => Some(value),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            stage.ledger.finding(text.unwrap_or_default());
            stage.control.set(END);
            None
        }
    }
}

/// Looks until there is something, and panics with `what` after [`PATIENCE`].
pub(super) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::park_timeout(PAUSE);
    }
}

/// The status, where there is a daemon now.
pub(super) fn status(home: &Home) -> Option<Status> {
    let answer = http::ask(&home.socket(), "GET", route::STATUS).ok()?;
    serde_json::from_str(&answer.body).ok()
}

/// Lets everything rest, measures the daemon and lets the clients go on.
fn rest(stage: &Stage<'_>, trouble: &mut Trouble<'_>) -> ProcessFigures {
    stage.control.set(REST);
    let clients = stage.ledger.clients();
    wait_for("every client rests", || {
        (stage.control.resting.load(Ordering::SeqCst) >= clients).then_some(())
    });
    trouble.plain();
    for server in status(stage.home)
        .into_iter()
        .flat_map(|status| status.servers)
    {
        if server.state != ServerState::Ready {
            trouble.restart(&server.name);
        }
    }
    wait_for("every server is ready and no program runs", || {
        let status = status(stage.home)?;
        let ready = |state| state == ServerState::Ready;
        let servers = status.servers.iter().all(|server| ready(server.state));
        let pool = status.programs.pool;
        (servers && pool.busy == 0 && pool.warm >= 2).then_some(())
    });
    // What is given back to the system takes a moment; the least of many looks is what is held.
    let mut least: Option<ProcessFigures> = None;
    for _ in 0..LOOKS {
        std::thread::park_timeout(PAUSE * 4);
        let Some(now) = status(stage.home).map(|status| status.processes.daemon) else {
            continue;
        };
        let before = *least.get_or_insert(now);
        least = Some(ProcessFigures {
            pid: now.pid,
            open_fds: before.open_fds.min(now.open_fds),
            rss_bytes: before.rss_bytes.min(now.rss_bytes),
            pss_bytes: before.pss_bytes.min(now.pss_bytes),
        });
    }
    stage.control.set(RUN);
    least.expect("the daemon's figures")
}

fn compare(ledger: &Ledger, before: &ProcessFigures, after: &ProcessFigures) {
    if before.pid != after.pid {
        ledger.finding("the daemon was replaced in the long part".to_owned());
    }
    let over = |before: Option<u64>, after: Option<u64>, slack: u64| match (before, after) {
        (Some(before), Some(after)) => after > before + before / 10 + slack,
        // Where the system does not tell, there is nothing to compare.
        _ => cfg!(target_os = "linux"),
    };
    if over(before.open_fds, after.open_fds, SLACK.0) {
        ledger.finding(format!("descriptors grew: {before:?}, then {after:?}"));
    }
    if over(before.rss_bytes, after.rss_bytes, SLACK.1) {
        ledger.finding(format!("memory grew: {before:?}, then {after:?}"));
    }
}

fn shown(before: &ProcessFigures, after: &ProcessFigures) -> String {
    let kib = |bytes: Option<u64>| bytes.unwrap_or_default() / 1024;
    let line = |what: &str, figures: &ProcessFigures| {
        format!(
            "{what}: {} descriptors, {} KiB resident, {} KiB proportional\n",
            figures.open_fds.unwrap_or_default(),
            kib(figures.rss_bytes),
            kib(figures.pss_bytes)
        )
    };
    line("after the warm-up", before) + &line("after the long part", after)
}

/// Ends the last daemon, and looks at what is left of it all.
fn finish(stage: &Stage<'_>) {
    let mut trouble = Trouble::new(stage, false);
    trouble.stop_daemon();
    wait_for("no process of the home is left", || {
        stage.home.processes().is_empty().then_some(())
    });
    record::check(stage.home, stage.ledger);
    trouble::no_scratch_is_left(stage);
    for name in ["dies", "hangs"] {
        let _ = std::fs::remove_file(once(stage.mark, name));
    }
}

/// What judges the answers and the records must tell right from wrong.
pub(crate) fn what_is_wrong_is_caught() {
    client::a_wrong_answer_is_caught();
    record::a_wrong_record_is_caught();
}
