//! Makes trouble for a daemon: for its servers, its configuration, and itself.

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ptc_protocol::route;
use ptc_protocol::status::DaemonFile;
use ptc_tests::process::{self, Process};
use ptc_tests::{Home, http};
use rustix::process::Signal;

use super::{PAUSE, Stage, once, plan, status, wait_for};

/// Longest pause between two troubles.
const BREATH: Duration = Duration::from_millis(1500);
/// How long a server that is stopped stays so.
const STILL: Duration = Duration::from_millis(700);

pub(super) struct Trouble<'a> {
    stage: &'a Stage<'a>,
    unruly: bool,
}

impl<'a> Trouble<'a> {
    pub(super) fn new(stage: &'a Stage<'a>, unruly: bool) -> Self {
        Self { stage, unruly }
    }

    fn home(&self) -> &'a Home {
        self.stage.home
    }

    /// Lets so much time pass, with troubles in it.
    pub(super) fn go_on(&mut self, rng: &mut Rng, time: Duration) {
        let end = Instant::now() + time;
        while !self.stage.control.is_over() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let breath = Duration::from_millis(rng.u64(50..1500)).min(BREATH);
            pause(breath.min(left));
            if self.unruly && breath < left {
                self.one(rng);
            }
        }
    }

    fn one(&mut self, rng: &mut Rng) {
        match rng.u8(..10) {
            0..2 => self.signal_server("killed", Signal::KILL),
            2 => {
                self.signal_server("killed", Signal::STOP);
                pause(STILL);
                self.signal_server("killed", Signal::CONT);
            }
            3..5 => self.arm("dies"),
            5 => self.arm("hangs"),
            6..8 => self.restart("floods"),
            8 => {
                let more: &[&str] = if rng.bool() { &["more"] } else { &["other"] };
                self.stage
                    .ledger
                    .count("trouble: the configuration changed");
                self.reload(&plan(self.stage.mark, more).text(), true);
            }
            _ => {
                self.stage
                    .ledger
                    .count("trouble: a configuration with a fault");
                self.reload("servers: [{name: x, nonsense: 1}]\n", false);
                self.plain();
            }
        }
    }

    /// The server's `echo` misbehaves at its next call.
    fn arm(&self, name: &str) {
        let file = once(self.stage.mark, name);
        if std::fs::remove_file(file).is_ok() {
            self.stage
                .ledger
                .count(format!("trouble: a call that {name}"));
        }
    }

    fn signal_server(&self, name: &str, signal: Signal) {
        let Some(status) = status(self.home()) else {
            return;
        };
        let found = status.servers.iter().find(|server| server.name == name);
        let process = found.and_then(|server| server.pid).and_then(Process::of);
        // The number may be another process's by now.
        let Some(process) = process.filter(|process| {
            let words = process.command_line();
            words.first().is_some_and(|word| word.ends_with("mock-mcp"))
                && process::descendants(status.pid).contains(process)
        }) else {
            return;
        };
        process.signal(signal);
        let what = match signal {
            Signal::KILL => "a server was killed",
            Signal::STOP => "a server was stopped for a while",
            _ => return,
        };
        self.stage.ledger.count(format!("trouble: {what}"));
    }

    pub(super) fn restart(&self, name: &str) {
        let route = route::with(route::SERVER_RESTART, &[("name", name)]);
        if http::ask(&self.home().socket(), "POST", &route).is_ok() {
            self.stage.ledger.count("trouble: a server was restarted");
        }
    }

    /// Puts the first configuration in force.
    pub(super) fn plain(&self) {
        self.reload(&plan(self.stage.mark, &[]).text(), true);
    }

    fn reload(&self, text: &str, good: bool) {
        self.home().write_config(text);
        // A daemon that is not there reads the file when it comes.
        let Ok(answer) = http::ask(&self.home().socket(), "POST", route::RELOAD) else {
            return;
        };
        let done: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        if done["ok"] != good {
            let text = format!("a reload that should give {good}: {}", answer.body);
            self.stage.ledger.finding(text);
        }
    }

    /// The daemon that runs now, by the file it left.
    fn daemon(&self) -> Option<Process> {
        let file = std::fs::read(self.home().state().join("daemon.json")).ok()?;
        let told: DaemonFile = serde_json::from_slice(&file).ok()?;
        let config = self.home().config().display().to_string();
        Process::of(told.pid).filter(|process| process.command_line().contains(&config))
    }

    pub(super) fn wait_for_daemon(&self) {
        wait_for("a daemon answers", || status(self.home()));
    }

    /// Ends the daemon without a word; its processes must go, and another one must come.
    pub(super) fn kill_daemon(&self) {
        let process = wait_for("the daemon's process", || self.daemon());
        let before = process::descendants(process.pid);
        process.kill();
        self.stage.ledger.count("trouble: the daemon was killed");
        wait_for("the daemon is gone", || (!process.runs()).then_some(()));
        all_gone(&before, "a killed daemon");
        wait_for("another daemon answers", || {
            status(self.home()).filter(|status| status.pid != process.pid)
        });
    }

    /// Ends the daemon in order.
    pub(super) fn stop_daemon(&mut self) {
        let process = wait_for("the last daemon's process", || self.daemon());
        let before = process::descendants(process.pid);
        http::ask(&self.home().socket(), "POST", route::STOP).expect("the daemon to take it");
        wait_for("the last daemon is gone", || {
            (!process.runs()).then_some(())
        });
        all_gone(&before, "the last daemon");
    }
}

fn all_gone(processes: &[Process], whose: &str) {
    wait_for(&format!("what {whose} had started is gone"), || {
        let left = processes.iter().any(|process| process.runs());
        (!left).then_some(())
    });
}

fn pause(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::park_timeout(PAUSE.min(time));
    }
}

/// Every program left a file of this name in its folder; none of them may be there any more.
pub(super) fn no_scratch_is_left(stage: &Stage<'_>) {
    wait_for("no scratch folder is left", || {
        let left = ["/run", "/tmp", "/var/tmp"]
            .iter()
            .flat_map(|place| entries(Path::new(place)))
            .filter(|path| {
                let name = path
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                name.is_some_and(|name| name.starts_with("ptcd-scratch-"))
            })
            .flat_map(|base| entries(&base))
            .any(|folder| folder.join(stage.mark).exists());
        (!left).then_some(())
    });
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}
