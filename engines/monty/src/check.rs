//! Finds what a program uses and the engine lacks, before anything of it runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr as _;

use monty::MontyRepl;
use monty_types::{
    CompileOptions, ExcType, MontyObject, MontyType, PrintWriter, ResourceLimits, ResourceTracker,
};

use crate::reading::{Gap, Reading, Use};
use crate::remedy::{self, sentence};

/// Builtins of Python that stand in no module; those the interpreter has are found by asking it.
const BUILTINS: [&str; 63] = [
    "__build_class__",
    "__import__",
    "BaseExceptionGroup",
    "BlockingIOError",
    "BrokenPipeError",
    "BufferError",
    "BytesWarning",
    "ChildProcessError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "DeprecationWarning",
    "EOFError",
    "EncodingWarning",
    "EnvironmentError",
    "ExceptionGroup",
    "FloatingPointError",
    "FutureWarning",
    "GeneratorExit",
    "IOError",
    "ImportWarning",
    "IndentationError",
    "InterruptedError",
    "ProcessLookupError",
    "ReferenceError",
    "ResourceWarning",
    "RuntimeWarning",
    "StopAsyncIteration",
    "SyntaxWarning",
    "SystemError",
    "TabError",
    "UnicodeError",
    "UnicodeTranslateError",
    "UserWarning",
    "Warning",
    "aiter",
    "anext",
    "ascii",
    "breakpoint",
    "bytearray",
    "callable",
    "classmethod",
    "compile",
    "complex",
    "copyright",
    "credits",
    "delattr",
    "dir",
    "format",
    "globals",
    "help",
    "input",
    "issubclass",
    "license",
    "locals",
    "memoryview",
    "object",
    "open",
    "property",
    "staticmethod",
    "super",
    "vars",
];
/// Builtins that are there and of no use.
const USELESS: [&str; 1] = ["open"];
/// The interpreter's modules that no program has a use for here.
const ONLY_NAMES: [&str; 2] = ["__future__", "typing"];

/// The first thing in the text that the engine lacks.
pub(crate) fn gap(reading: &Reading) -> Option<Gap> {
    let mut gaps = reading.gaps.clone();
    gaps.extend(imports(reading));
    gaps.extend(builtins(reading));
    gaps.extend(attributes(&reading.uses));
    gaps.into_iter().min_by_key(|gap| gap.at)
}

fn imports(reading: &Reading) -> impl Iterator<Item = Gap> {
    let modules = monty::builtin_module_names();
    reading.imports.iter().filter_map(move |(at, module)| {
        let root = module.split('.').next().unwrap_or(module);
        let there =
            modules.contains(&module.as_str()) || ONLY_NAMES.contains(&root) || module.is_empty();
        // A submodule of one that is there fails as an attribute would.
        let there = there
            || (modules.contains(&root)
                && *module == format!("{root}.abc")
                && root == "collections");
        (!there).then(|| Gap {
            at: *at,
            told: sentence(&format!("the module {module}"), remedy::module(root)),
        })
    })
}

fn builtins(reading: &Reading) -> impl Iterator<Item = Gap> {
    let unknown = |name: &str| {
        MontyObject::builtin_function_from_name(name).is_none()
            && MontyType::from_type_name(name).is_none()
            && ExcType::from_str(name).is_err()
    };
    reading.names.iter().filter_map(move |(name, at)| {
        let missing =
            BUILTINS.contains(&name.as_str()) && unknown(name) || USELESS.contains(&name.as_str());
        (missing && !reading.bound.contains(name)).then(|| Gap {
            at: *at,
            told: sentence(name, remedy::builtin(name)),
        })
    })
}

/// Asks the interpreter which attributes its modules have; a table would be one version's.
fn attributes(uses: &[Use]) -> Vec<Gap> {
    let mut modules: BTreeMap<&str, Vec<&Use>> = BTreeMap::new();
    for one in uses {
        modules.entry(&one.module).or_default().push(one);
    }
    let known = monty::builtin_module_names();
    modules.retain(|module, _| known.contains(module));
    if modules.is_empty() {
        return Vec::new();
    }
    let mut text = String::new();
    let mut asked = Vec::new();
    for (at, (module, uses)) in modules.into_iter().enumerate() {
        let _ = writeln!(text, "import {module} as m{at}");
        asked.extend(uses.into_iter().map(|one| (at, one)));
    }
    let questions: Vec<String> = asked
        .iter()
        .map(|(at, one)| format!("hasattr(m{at}, {:?})", one.attribute))
        .collect();
    let _ = write!(text, "[{}]", questions.join(", "));
    let tracker = ResourceTracker::new(ResourceLimits::default());
    let mut repl = MontyRepl::new("questions", tracker, CompileOptions::default());
    // Where the question itself fails, the program finds out by itself.
    let answers = repl.feed_run(&text, Vec::new(), PrintWriter::Disabled);
    let answers = answers.ok().and_then(|list| {
        Some(
            list.as_ref()
                .items()?
                .iter()
                .map(monty_types::ObjectRef::as_bool)
                .collect::<Vec<_>>(),
        )
    });
    let missing = asked
        .iter()
        .zip(answers.unwrap_or_default())
        .filter(|(_, there)| *there == Some(false));
    missing
        .map(|((_, one), _)| Gap {
            at: one.at,
            told: sentence(
                &format!("{}.{}", one.module, one.attribute),
                remedy::attribute(&one.module, &one.attribute),
            ),
        })
        .collect()
}
