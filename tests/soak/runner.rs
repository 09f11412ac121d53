//! Runs one target: makes inputs, catches what goes wrong, keeps the input that did it.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Work on one input longer than this is a hang: time of the processor, so that a loaded machine is none.
const HANG: Duration = Duration::from_secs(2);
/// An input that waits for so long hangs without working.
const STUCK: Duration = Duration::from_mins(2);
/// Memory may grow by so much after the start, in KiB: inputs and what they become are a few MiB at most.
const GROWTH_KIB: u64 = 96 * 1024;
/// Inputs after which memory should not grow any more.
const WARM: u64 = 20_000;
/// Most inputs kept to be mutated further.
const KEPT: usize = 4096;
/// What a thread of the daemon's runtime has.
const STACK: usize = 2 * 1024 * 1024;
/// How often a long run says how far it is.
const TELL: Duration = Duration::from_mins(1);

/// One reader under test.
pub(crate) trait Target: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// A new input, or a kept one changed.
    fn make(&self, rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8>;
    /// What the input led to, in words that are the same for inputs of one kind; or what is broken.
    fn check(&self, input: &[u8]) -> Result<String, String>;
}

/// When a run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// After so many inputs.
    Inputs(u64),
    /// After so long.
    Time(Duration),
}

/// What a run without a finding did.
#[derive(Debug)]
pub(crate) struct Report {
    name: &'static str,
    seed: u64,
    inputs: u64,
    kinds: usize,
    time: Duration,
    grown_kib: u64,
}

/// What is broken, and by which input.
#[derive(Debug)]
pub(crate) struct Finding {
    name: &'static str,
    seed: u64,
    number: u64,
    what: String,
    file: PathBuf,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = self.inputs as f64 / seconds;
        write!(
            f,
            "{}: {} inputs in {seconds:.0} s ({rate:.0}/s), {} kinds of outcome, memory grew by {} KiB, \
             seed {}: no finding",
            self.name, self.inputs, self.kinds, self.grown_kib, self.seed
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}\n  input {} of seed {}, kept in {}",
            self.name,
            self.what,
            self.number,
            self.seed,
            self.file.display()
        )
    }
}

/// Where inputs are kept, beside what cargo builds.
fn folder() -> PathBuf {
    let own = std::env::current_exe().expect("the own path");
    let target = own.ancestors().find(|path| path.ends_with("target"));
    let folder = target.map_or_else(std::env::temp_dir, Path::to_owned);
    let folder = folder.join("soak");
    match std::fs::create_dir_all(&folder) {
        Ok(()) => folder,
        Err(_) => std::env::temp_dir(),
    }
}

/// Feeds a target until the limit, or the first finding.
pub(crate) fn run(target: &dyn Target, seed: u64, limit: Limit) -> Result<Report, Box<Finding>> {
    let name = target.name();
    let file = folder().join(format!("{name}-{seed}-{}.input", std::process::id()));
    // Every input is in the file while it is worked on, so that not even an end of the process loses it.
    let current = File::create(&file).expect("a file for the current input");
    let clock = Clock::default();
    let start = Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| clock.watch(name, seed, &file));
        let worker = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, || work(target, seed, limit, &clock, &current))
            .expect("a thread");
        let outcome = worker.join().expect("what the work came to");
        clock.over.store(true, Ordering::Relaxed);
        outcome
    });
    match outcome {
        Ok(done) => {
            let _ = std::fs::remove_file(&file);
            Ok(Report {
                name,
                seed,
                inputs: clock.number.load(Ordering::Relaxed),
                kinds: done.kinds,
                time: start.elapsed(),
                grown_kib: done.grown_kib,
            })
        }
        Err(what) => Err(Box::new(Finding {
            name,
            seed,
            number: clock.number.load(Ordering::Relaxed),
            what,
            file,
        })),
    }
}

struct Done {
    kinds: usize,
    grown_kib: u64,
}

fn work(
    target: &dyn Target,
    seed: u64,
    limit: Limit,
    clock: &Clock,
    current: &File,
) -> Result<Done, String> {
    let mut rng = Rng::with_seed(seed);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut kinds: HashSet<String> = HashSet::new();
    let mut warm_kib = None;
    let mut grown_kib = 0;
    let start = Instant::now();
    let mut told = start;
    loop {
        let number = clock.number.load(Ordering::Relaxed);
        let over = match limit {
            Limit::Inputs(most) => number >= most,
            Limit::Time(most) => start.elapsed() >= most,
        };
        if over {
            return Ok(Done {
                kinds: kinds.len(),
                grown_kib,
            });
        }
        let input = target.make(&mut rng, &kept);
        current.write_all_at(&input, 0).expect("the input kept");
        current.set_len(input.len() as u64).expect("the input kept");
        let checked = catch_unwind(AssertUnwindSafe(|| target.check(&input)));
        let kind = match checked {
            Ok(Ok(kind)) => kind,
            Ok(Err(what)) => return Err(what),
            Err(panic) => return Err(format!("it panicked: {}", panic_text(panic.as_ref()))),
        };
        if kept.len() < KEPT && kinds.insert(kind) {
            kept.push(input);
        }
        clock.number.store(number + 1, Ordering::Relaxed);
        if number % 1000 == 999 {
            if let (Some(kib), true) = (resident_kib(), number >= WARM) {
                let warm = *warm_kib.get_or_insert(kib);
                grown_kib = kib.saturating_sub(warm);
                if grown_kib > GROWTH_KIB {
                    return Err(format!("memory grew by {grown_kib} KiB over many inputs"));
                }
            }
            if told.elapsed() > TELL {
                told = Instant::now();
                println!(
                    "{}: {} inputs, {} kinds",
                    target.name(),
                    number + 1,
                    kinds.len()
                );
            }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "with no text".to_owned())
}

/// What the watchdog looks at.
#[derive(Debug, Default)]
struct Clock {
    number: AtomicU64,
    over: AtomicBool,
}

impl Clock {
    /// Ends the process when one input takes too long: nothing else ends such a thread.
    fn watch(&self, name: &str, seed: u64, file: &Path) {
        let mut last = (u64::MAX, Instant::now(), cpu());
        while !self.over.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(100));
            let number = self.number.load(Ordering::Relaxed);
            if number != last.0 {
                last = (number, Instant::now(), cpu());
                continue;
            }
            let worked = match (cpu(), last.2) {
                (Some(now), Some(then)) => now.saturating_sub(then),
                _ => Duration::ZERO,
            };
            if worked > HANG || last.1.elapsed() > STUCK {
                println!(
                    "{name}: input {number} of seed {seed} hangs ({:.1} s of work); kept in {}",
                    worked.as_secs_f64(),
                    file.display()
                );
                std::process::exit(3);
            }
        }
    }
}

/// Processor time of this process; `None` where the system does not tell.
fn cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // A tick is 10 ms on every Linux.
    Some(Duration::from_millis(ticks * 10))
}

fn resident_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// A target that is broken in each way, and what the runner makes of it.
pub(crate) fn a_broken_target_is_caught() {
    struct Broken(bool);
    impl Target for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn make(&self, rng: &mut Rng, _: &[Vec<u8>]) -> Vec<u8> {
            vec![rng.u8(..)]
        }
        fn check(&self, input: &[u8]) -> Result<String, String> {
            match input {
                [7] if self.0 => std::panic::resume_unwind(Box::new("seven")),
                [7] => Err("it is seven".to_owned()),
                _ => Ok("fine".to_owned()),
            }
        }
    }
    for (panics, words) in [(true, "it panicked: seven"), (false, "it is seven")] {
        let finding = run(&Broken(panics), 3, Limit::Inputs(100_000)).unwrap_err();
        assert_eq!(std::fs::read(&finding.file).unwrap(), [7]);
        assert!(finding.to_string().contains(words), "{finding}");
        std::fs::remove_file(&finding.file).unwrap();
    }
}
