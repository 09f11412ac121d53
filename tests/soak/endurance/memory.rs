//! Looks at a daemon's memory after thousands of small programs and hundreds of large results.

use std::fmt::Write as _;
use std::time::Instant;

use ptc_protocol::status::{ProcessFigures, ServerState};
use ptc_tests::Home;
use ptc_tests::Plan;

use super::{LOOKS, PAUSE, status, wait_for};

/// Clients at once.
const CLIENTS: usize = 4;
/// Bytes of one large result.
const LARGE: usize = 4_000_000;
/// Part of the work that is done before the first measurement: one of so many.
const WARM: usize = 10;

/// How much a daemon is given to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Programs of one line.
    pub(crate) small: usize,
    /// Programs that get a result of 4 MB.
    pub(crate) large: usize,
}

impl Memory {
    /// Does it; the text is a table of what the daemon held after each part.
    pub(crate) fn run(self) -> Result<String, String> {
        let start = Instant::now();
        let home = Home::new(&Plan::new().server("m", &[]));
        let daemon = home.daemon();
        daemon.wait_for("m", ServerState::Ready);
        let mut text = String::new();
        let mut held = Vec::new();
        for (what, small, large) in [
            ("at the start", 0, 0),
            ("small programs to warm up", self.small / WARM, 0),
            ("large results to warm up", 0, self.large / WARM),
            ("small programs", self.small, 0),
            ("large results", 0, self.large),
            ("small programs again", self.small / WARM, 0),
        ] {
            work(&home, small, large);
            let figures = resting(&home);
            let kib = |bytes: Option<u64>| bytes.unwrap_or_default() / 1024;
            let _ = writeln!(
                text,
                "{:>6} {what}: {} KiB resident, {} KiB proportional, {} descriptors",
                small + large,
                kib(figures.rss_bytes),
                kib(figures.pss_bytes),
                figures.open_fds.unwrap_or_default()
            );
            held.push(figures);
        }
        daemon.stop();
        let _ = writeln!(text, "{} s", start.elapsed().as_secs());
        let (warm, end) = (held[2], held[5]);
        let grown = |before: Option<u64>, after: Option<u64>| match (before, after) {
            (Some(before), Some(after)) => after > before + before / 10,
            _ => true,
        };
        if grown(warm.rss_bytes, end.rss_bytes) {
            return Err(format!("memory grew by more than a tenth\n{text}"));
        }
        Ok(text)
    }
}

fn work(home: &Home, small: usize, large: usize) {
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let share = |all: usize| all / CLIENTS + usize::from(number < all % CLIENTS);
            let (small, large) = (share(small), share(large));
            scope.spawn(move || {
                if small + large == 0 {
                    return;
                }
                let mut client = home.client();
                for _ in 0..small {
                    assert_eq!(client.run("print(1)").printed(), "1");
                }
                let program = format!("print(len(await mcp__m__big(bytes={LARGE})))");
                for _ in 0..large {
                    assert_eq!(client.run(&program).printed(), LARGE.to_string());
                }
            });
        }
    });
}

/// The least that the daemon holds while it rests.
fn resting(home: &Home) -> ProcessFigures {
    let mut least = wait_for("no program runs", || {
        let status = status(home)?;
        let pool = status.programs.pool;
        (pool.busy == 0 && status.clients.is_empty()).then_some(status.processes.daemon)
    });
    for _ in 0..LOOKS {
        std::thread::park_timeout(PAUSE * 4);
        if let Some(status) = status(home) {
            let now = status.processes.daemon;
            least.open_fds = least.open_fds.min(now.open_fds);
            least.rss_bytes = least.rss_bytes.min(now.rss_bytes);
            least.pss_bytes = least.pss_bytes.min(now.pss_bytes);
        }
    }
    least
}
