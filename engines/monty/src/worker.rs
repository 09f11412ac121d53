//! One worker from its start to its end: limits, hello, the program, its last frame.

use std::process::ExitCode;
use std::time::Duration;

use monty::MontyRepl;
use monty_types::{
    AssertMessageAnnotations, CompileOptions, MONTY_VERSION, OsPolicy, PrintWriter, RandomSeed,
    RandomStart, ResourceLimits, ResourceTracker, SleepMode, memory_limit_with_headroom,
};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::channel::{self, Channel};
use crate::frame::{Done, PROTOCOL, Place, Run, ToWorker};
use crate::output::Host;
use crate::reading::Reading;
use crate::session::{End, Session};
use crate::source::Source;
use crate::{check, last_words, report, system};

/// Longest program, in bytes: compiling takes some two hundred times as much memory.
const MAX_SOURCE: usize = 256 * 1024;
/// Memory where the process has no limit of its own, in bytes.
const MEMORY: usize = 512 * 1024 * 1024;
/// What the process takes beside the interpreter's values: its pages, its stack, gaps of the allocator.
const BESIDE: usize = 24 * 1024 * 1024;
/// The least the interpreter works with, in bytes.
const LEAST: usize = 4 * 1024 * 1024;
/// What is left of the kernel's time for the worker to say where the program was.
const SPARE: Duration = Duration::from_millis(100);
/// Deepest recursion of a program.
const RECURSION: usize = 1000;
/// The names that are no functions. The interpreter's exceptions are a closed list, and nothing else here raises this one.
const PRELUDE: &str = "ToolError = OSError";

#[derive(Serialize)]
struct Hello {
    protocol: u32,
    python: String,
}

#[derive(Serialize)]
struct Where {
    lines: Vec<Place>,
}

/// Serves one program and ends the process.
pub(crate) fn main() -> ExitCode {
    let Some(mut channel) = Channel::open() else {
        // Somebody started it by hand.
        return ExitCode::from(64);
    };
    system::ignore_interrupts();
    if !system::at_exit(last_words::say) {
        return ExitCode::from(71);
    }
    let limits = limits();
    // Before anything of a program is read or compiled.
    if monty_alloc::set_hard_limit(memory_limit_with_headroom(limits.max_memory, false)).is_err() {
        return ExitCode::from(71);
    }
    let tracker = ResourceTracker::new(limits);
    // A failed assertion says what it says in Python.
    let options = CompileOptions {
        assert_message_annotations: AssertMessageAnnotations::Off,
        ..CompileOptions::default()
    };
    let mut repl = MontyRepl::new(crate::source::NAME, tracker, options);
    if repl
        .feed_run(PRELUDE, Vec::new(), PrintWriter::Disabled)
        .is_err()
    {
        return ExitCode::from(71);
    }
    channel.send(
        b'H',
        &Hello {
            protocol: PROTOCOL,
            python: format!("monty {MONTY_VERSION}"),
        },
    );
    let Some(ToWorker::Run(run)) = channel.wait(None) else {
        channel::lost();
    };
    last_words::arm();
    run_program(channel, *run, repl)
}

/// The limits of the interpreter, which lie below those that the process was started with.
fn limits() -> ResourceLimits {
    let of = |resource| {
        getrlimit(resource)
            .current
            .and_then(|limit| usize::try_from(limit).ok())
    };
    let memory = of(Resource::Data).map_or(MEMORY, |limit| limit.saturating_sub(BESIDE).max(LEAST));
    let limits = ResourceLimits::default()
        .max_memory(memory)
        .max_recursion_depth(RECURSION);
    match of(Resource::Cpu) {
        // A little less than the kernel gives, so that the interpreter says where it was.
        Some(seconds) => {
            limits.max_feed_duration(Duration::from_secs(seconds as u64).saturating_sub(SPARE))
        }
        None => limits,
    }
}

fn run_program(channel: Channel, mut run: Run, repl: MontyRepl) -> ! {
    let host = Host::new(channel, run.apart);
    let program = std::mem::take(&mut run.program);
    if program.len() > MAX_SOURCE {
        let told = format!(
            "a program of {} bytes is too long for the engine monty, which takes {MAX_SOURCE}: give data to tools, or run it with engine: cpython",
            program.len()
        );
        let error = report::of_gap(&told, 0, &Source::new(""));
        end(
            host,
            End::Done(Done {
                ok: false,
                error: Some(error),
                ..Done::default()
            }),
        );
    }
    let mut source = Source::new(&program);
    drop(program);
    // A text nested too deep is refused before any parser sees it.
    let reading = repl
        .check_source(&source.text)
        .ok()
        .and_then(|_| Reading::of(&source.text));
    if let Some(reading) = &reading {
        if let Some((at, message)) = reading.faults.first() {
            let error = report::of_fault(message, *at, &source);
            end(
                host,
                End::Done(Done {
                    ok: false,
                    error: Some(error),
                    ..Done::default()
                }),
            );
        }
        if let Some(gap) = check::gap(reading) {
            let error = report::of_gap(&gap.told, gap.at, &source);
            end(
                host,
                End::Done(Done {
                    ok: false,
                    error: Some(error),
                    ..Done::default()
                }),
            );
        }
        for (at, length) in &reading.exits {
            // `exit` is ours to answer, and the interpreter's own takes no number. Every place stays where it is.
            source.overwrite(*at, &format!("{:length$}", "exit"));
        }
    }
    let mut policy = OsPolicy {
        sleep: SleepMode::CallHost,
        ..OsPolicy::default()
    };
    if let Some(seed) = run.seed {
        policy.random_start = RandomStart::Seed(RandomSeed::Int(seed.into()));
    }
    let mut session = Session::new(host, run, source, reading);
    let ended = session.follow(repl.with_os_policy(policy));
    end(session.host, ended)
}

/// Sends the last frame; nothing follows it.
fn end(mut host: Host, ended: End) -> ! {
    host.flush();
    match ended {
        End::Done(done) => host.channel.send(b'D', &done),
        End::Stopped(lines) => {
            host.channel.send(b'W', &Where { lines });
            last_words::disarm();
            // It is the daemon that ends a run; until then its pipes stay open.
            loop {
                host.channel.wait(None);
            }
        }
    }
    last_words::disarm();
    std::process::exit(0)
}
