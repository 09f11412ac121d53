//! What only time brings to light: mutated inputs for the readers of untrusted bytes, and a whole daemon under load.
//!
//! Without arguments of its own it is a test like the others: a fixed number of
//! inputs from a fixed seed for each target, and the short forms of the courses.
//! `README.md` says how to let each run for long.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a long run tells how far it is"
)]

mod arguments;
mod command;
mod endurance;
mod frames;
mod mutate;
mod results;
mod runner;

use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};

use command::Command;
use endurance::{Course, Options};
use ptc_tests::process::needs_proc;
use ptc_tests::suite;
use runner::{Limit, Target};

/// Inputs a target gets in the ordinary test run.
const SHORT: u64 = 2000;
/// The seed of the ordinary test run.
const SEED: u64 = 1;

fn targets() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(frames::Frames::new()),
        Box::new(results::Results::new()),
        Box::new(arguments::Arguments::new()),
    ]
}

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => return options.run(),
        Ok(None) => {}
        Err(error) => {
            println!("soak: {error}");
            return ExitCode::from(2);
        }
    }
    match Command::parse(std::env::args().skip(1)) {
        Ok(None) => tests(),
        Ok(Some(command)) => command.run(&targets()),
        Err(error) => {
            println!("soak: {error}");
            ExitCode::from(2)
        }
    }
}

fn tests() -> ! {
    let short = targets().into_iter().map(|target| {
        let name = format!("soak::{}_hold_for_{SHORT}_inputs", target.name());
        Trial::test(name, move || {
            let outcome = runner::run(target.as_ref(), SEED, Limit::Inputs(SHORT));
            outcome
                .map(|_| ())
                .map_err(|finding| Failed::from(finding.to_string()))
        })
    });
    let mut trials: Vec<Trial> = short.collect();
    trials.push(Trial::test("soak::a_broken_target_is_caught", || {
        runner::a_broken_target_is_caught();
        Ok(())
    }));
    trials.push(Trial::test("soak::what_is_wrong_is_caught", || {
        endurance::what_is_wrong_is_caught();
        Ok(())
    }));
    for (name, course) in [
        (
            "soak::a_daemon_in_trouble_answers_each_request_once_and_does_not_grow",
            Course::short(SEED),
        ),
        (
            "soak::ten_ends_of_the_daemon_lose_no_finished_run",
            Course::of_kills(SEED, 10),
        ),
    ] {
        trials.push(suite::trial_of(name, move || {
            needs_proc()?;
            course.run().map(|_| ()).map_err(anyhow::Error::msg)
        }));
    }
    suite::run(trials)
}
