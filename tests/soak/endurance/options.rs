//! The command line of a long course.

use std::process::ExitCode;
use std::time::Duration;

use super::{Course, Memory};

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Options {
    /// A course.
    Course(Course),
    /// Much work for one daemon, and its memory afterwards.
    Memory(Memory),
}

impl Options {
    /// `None` where the arguments are those of another form.
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let args: Vec<String> = args.collect();
        let Some(form) = args.first().map(String::as_str) else {
            return Ok(None);
        };
        let number = |name: &str, default: u64| match args.iter().position(|arg| arg == name) {
            None => Ok(default),
            Some(at) => args
                .get(at + 1)
                .and_then(|text| text.parse().ok())
                .ok_or(format!("{name} needs a whole number")),
        };
        let size = |name: &str, default: u64| {
            let number = number(name, default)?;
            usize::try_from(number.max(1)).map_err(|error| format!("{name}: {error}"))
        };
        let seed = number("--seed", fastrand::u64(..))?;
        Ok(match form {
            "--life" => {
                let time = Duration::from_secs(number("--minutes", 15)?.max(1) * 60);
                let clients = size("--clients", 8)?;
                Some(Self::Course(Course::of(time, clients, seed)))
            }
            "--kills" => Some(Self::Course(Course::of_kills(seed, size("--kills", 200)?))),
            "--memory" => Some(Self::Memory(Memory {
                small: size("--small", 5000)?,
                large: size("--large", 200)?,
            })),
            _ => None,
        })
    }

    /// Does it.
    pub(crate) fn run(&self) -> ExitCode {
        let outcome = match self {
            Self::Course(course) => course.run(),
            Self::Memory(memory) => memory.run(),
        };
        match outcome {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(text) => {
                println!("{text}");
                ExitCode::FAILURE
            }
        }
    }
}
