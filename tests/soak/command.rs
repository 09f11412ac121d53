//! The command line of a long run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::runner::{self, Limit, Target};

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run targets for a time.
    Fuzz {
        /// A target's name, or `all`.
        target: String,
        /// How long each.
        time: Duration,
        /// Where the random numbers start.
        seed: u64,
    },
    /// Feed one kept input again.
    Replay {
        /// The target's name.
        target: String,
        /// Where the input is.
        file: PathBuf,
    },
}

impl Command {
    /// `None` where the arguments are those of an ordinary test run.
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let args: Vec<String> = args.collect();
        let Some("--fuzz" | "--replay") = args.first().map(String::as_str) else {
            return Ok(None);
        };
        let value = |name: &str| {
            let at = args.iter().position(|arg| arg == name)?;
            args.get(at + 1).cloned()
        };
        if let Some(target) = value("--replay") {
            let file = value("--file").ok_or("--replay TARGET needs --file FILE")?;
            return Ok(Some(Self::Replay {
                target,
                file: file.into(),
            }));
        }
        let target = value("--fuzz").ok_or("--fuzz needs the name of a target, or all")?;
        let number = |name: &str, default: f64| match value(name) {
            None => Ok(default),
            Some(text) => text
                .parse::<f64>()
                .ok()
                .filter(|number| *number > 0.0)
                .ok_or(format!("{name} needs a number, not {text}")),
        };
        let minutes = number("--minutes", 10.0)?;
        let seed = match value("--seed") {
            None => fastrand::u64(..),
            Some(text) => text
                .parse()
                .map_err(|error| format!("--seed {text}: {error}"))?,
        };
        Ok(Some(Self::Fuzz {
            target,
            time: Duration::from_secs_f64(minutes * 60.0),
            seed,
        }))
    }

    /// Does it.
    pub(crate) fn run(&self, targets: &[Box<dyn Target>]) -> ExitCode {
        let (Self::Fuzz { target, .. } | Self::Replay { target, .. }) = self;
        let chosen: Vec<&dyn Target> = targets
            .iter()
            .map(AsRef::as_ref)
            .filter(|known| target == "all" || known.name() == target)
            .collect();
        if chosen.is_empty() {
            let names: Vec<&str> = targets.iter().map(|target| target.name()).collect();
            println!(
                "soak: no target {target}; there are {} and all",
                names.join(", ")
            );
            return ExitCode::from(2);
        }
        let mut good = true;
        for target in chosen {
            good &= match self {
                Self::Fuzz { time, seed, .. } => {
                    match runner::run(target, *seed, Limit::Time(*time)) {
                        Ok(report) => {
                            println!("{report}");
                            true
                        }
                        Err(finding) => {
                            println!("{finding}");
                            false
                        }
                    }
                }
                Self::Replay { file, .. } => {
                    let input = std::fs::read(file).expect("the kept input");
                    println!("{:?}", target.check(&input));
                    target.check(&input).is_ok()
                }
            };
        }
        if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
