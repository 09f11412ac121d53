//! The keys that choose the engine of programs.

use std::path::{Path, PathBuf};

use super::check::path;
use super::fault::{Fault, shown};
use super::fields::{Section, Words};

const NAMES: &Words<EngineName> = &[
    (&["cpython"], EngineName::Cpython),
    (&["monty"], EngineName::Monty),
];

/// What runs programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineName {
    /// The Python found on the machine.
    #[default]
    Cpython,
    /// An interpreter of part of Python that has no operating system.
    Monty,
}

impl EngineName {
    /// The word in the configuration and in arguments.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpython => "cpython",
            Self::Monty => "monty",
        }
    }

    /// The engine of this name.
    pub fn of(text: &str) -> Option<Self> {
        [Self::Cpython, Self::Monty]
            .into_iter()
            .find(|engine| engine.as_str() == text)
    }
}

/// Which engines programs may run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnginesConfig {
    /// That of a program that names none.
    pub default: EngineName,
    /// Those that a program may name, the default among them.
    pub offered: Vec<EngineName>,
    /// The worker of the engine monty; `None` is the one beside ptcd.
    pub monty_worker: Option<PathBuf>,
}

impl Default for EnginesConfig {
    fn default() -> Self {
        Self {
            default: EngineName::Cpython,
            offered: vec![EngineName::Cpython],
            monty_worker: None,
        }
    }
}

impl EnginesConfig {
    /// Whether some program may run in this engine.
    pub fn offers(&self, engine: EngineName) -> bool {
        self.offered.contains(&engine)
    }
}

/// The keys of the section `execution` that choose engines.
pub(super) fn engines(
    section: &Section<'_>,
    default: &EnginesConfig,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> EnginesConfig {
    let engine = section.word("engine", default.default, NAMES, faults);
    let mut offered = Vec::new();
    for (text, at) in section.texts("engines", faults) {
        match EngineName::of(text) {
            Some(name) if offered.contains(&name) => {
                let message = format!("execution.engines: {text} is already in the list");
                faults.push(Fault::at(at, &message));
            }
            Some(name) => offered.push(name),
            None => {
                let found = shown(text);
                let message =
                    format!("execution.engines: the names are cpython, monty, not {found}");
                faults.push(Fault::at(at, &message));
            }
        }
    }
    if offered.is_empty() {
        offered.push(engine);
    } else if !offered.contains(&engine)
        && let Some(entry) = section.get("engines")
    {
        let message = format!(
            "execution.engines must have {}, which programs that name no engine run in (execution.engine)",
            engine.as_str()
        );
        faults.push(Fault::at(entry.node.at, &message));
    }
    EnginesConfig {
        default: engine,
        offered,
        monty_worker: path(section, "monty_worker", base, faults).map(|path| base.join(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn read(text: &str) -> Result<EnginesConfig, String> {
        parse(text, Path::new("/etc/ptc/config.yaml"))
            .map(|config| config.execution.engines)
            .map_err(|faults| faults.to_string())
    }

    #[test]
    fn the_default_engine_is_offered_alone_unless_a_list_says_otherwise() {
        assert_eq!(read("").unwrap(), EnginesConfig::default());
        let monty = read("execution: {engine: monty}\n").unwrap();
        assert_eq!(monty.default, EngineName::Monty);
        assert_eq!(monty.offered, [EngineName::Monty]);
        let both = read("execution: {engines: [cpython, monty], monty_worker: w}\n").unwrap();
        assert_eq!(both.default, EngineName::Cpython);
        assert!(both.offers(EngineName::Monty));
        assert_eq!(both.monty_worker.as_deref(), Some(Path::new("/etc/ptc/w")));
    }

    #[test]
    fn what_is_no_engine_or_lacks_the_default_is_a_fault_with_its_place() {
        let fault = read("execution:\n  engines: [cpython, pypy]\n").unwrap_err();
        assert!(
            fault.contains("2:22: execution.engines: the names are cpython, monty, not \"pypy\""),
            "{fault}"
        );
        let fault = read("execution:\n  engine: monty\n  engines: [cpython]\n").unwrap_err();
        assert!(
            fault.contains("3:12: execution.engines must have monty"),
            "{fault}"
        );
        let fault = read("execution: {engine: auto}\n").unwrap_err();
        assert!(
            fault.contains("execution.engine must be one of cpython, monty, not \"auto\""),
            "{fault}"
        );
    }
}
