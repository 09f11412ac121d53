//! From the file's nodes to the configuration, every fault on the way noted.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use super::fault::{Fault, shown};
use super::fields::{Section, Words};
use super::raw::{Entry, Node, Value};
use super::{
    Config, ContainerConfig, DaemonConfig, EngineChoice, ExecutionConfig, ExposedTool,
    JournalConfig, PoolConfig, Record, SandboxChoice, Share, StartChoice, StructuredContent,
    ToolFilter, ToolsConfig, engines, foreign, home_path, policy, servers, submit,
};

const TOP_KEYS: [&str; 8] = [
    "servers",
    "tools",
    "policy",
    "execution",
    "daemon",
    "journal",
    "submit",
    "profiles",
];
const TOOLS_KEYS: [&str; 3] = ["allow", "block", "expose"];
const EXECUTION_KEYS: [&str; 21] = [
    "timeout_seconds",
    "max_output_bytes",
    "engine",
    "engines",
    "monty_worker",
    "sandbox",
    "python",
    "max_tool_calls",
    "max_concurrent_calls",
    "tool_call_timeout_seconds",
    "trace",
    "max_tool_result_bytes",
    "memory_bytes",
    "scratch_bytes",
    "max_threads",
    "max_runs",
    "check_arguments",
    "structured_content",
    "step_budget",
    "pool",
    "container",
];
/// Longest path, in bytes: the kernel takes no longer one.
pub(super) const MAX_PATH: usize = 4095;
const CONTAINER_KEYS: [&str; 2] = ["engine", "image"];
const POOL_KEYS: [&str; 3] = ["warm", "max", "start"];
const DAEMON_KEYS: [&str; 2] = ["drain_seconds", "idle_server_seconds"];
const JOURNAL_KEYS: [&str; 6] = [
    "path",
    "record",
    "keep_runs",
    "keep_days",
    "keep_bytes",
    "share",
];

const MIB: u64 = 1024 * 1024;
/// Bounds of what counts calls, runs, threads and the like.
pub(super) const COUNT: (u64, u64) = (1, 1_000_000);
/// Bounds of what counts warm workers; none is fine.
const WARM: (u64, u64) = (0, 1024);
/// Bounds of `max_output_bytes`.
const OUTPUT: (u64, u64) = (1, 4 * MIB);
/// Bounds of `max_tool_result_bytes`.
const RESULT: (u64, u64) = (1, 48 * MIB);
/// Bounds of a program's memory and files: up to 1 TiB.
pub(super) const MEMORY: (u64, u64) = (LEAST_MEMORY, MIB * MIB);
/// Under this an interpreter with the modules of a worker does not start.
const LEAST_MEMORY: u64 = 64 * MIB;
/// Bounds of `step_budget`; any smaller one would end a program before its imports are read.
const STEPS: (u64, u64) = (1_000, 1_000_000_000_000);
const OFF: [&str; 3] = ["off", "false", "no"];
const SCRATCH: (u64, u64) = (1, MIB * MIB);
/// Bounds of what the journal keeps: up to 1 PiB.
const KEEP: (u64, u64) = (1, 1024 * MIB * MIB);

const ENGINE: &Words<EngineChoice> = &[
    (&["auto"], EngineChoice::Auto),
    (&["docker"], EngineChoice::Docker),
    (&["podman"], EngineChoice::Podman),
];
const START: &Words<StartChoice> = &[
    (&["auto"], StartChoice::Auto),
    (&["exec"], StartChoice::Exec),
];
const SANDBOX: &Words<SandboxChoice> = &[
    (&["auto"], SandboxChoice::Auto),
    (&["native"], SandboxChoice::Native),
    (&["full"], SandboxChoice::Full),
    (&["landlock"], SandboxChoice::Landlock),
    (&["seatbelt"], SandboxChoice::Seatbelt),
    (&["container"], SandboxChoice::Container),
    (&["none"], SandboxChoice::None),
];
const TRACE: &Words<bool> = &[(&["summary"], true), (&["off", "false", "no"], false)];
const STRUCTURED: &Words<StructuredContent> = &[
    (&["full"], StructuredContent::Full),
    (&["lean"], StructuredContent::Lean),
    (&["off", "false", "no"], StructuredContent::Off),
];
const RECORD: &Words<Record> = &[
    (&["full"], Record::Full),
    (&["hashes"], Record::Hashes),
    (&["off", "false", "no"], Record::Off),
];
const SHARE: &Words<Share> = &[(&["own"], Share::Own), (&["all"], Share::All)];

/// The configuration that `root` describes, with defaults in the place of what is missing or at fault.
pub(super) fn resolve(root: Option<&Node>, base: &Path, faults: &mut Vec<Fault>) -> Config {
    let mut config = Config::default();
    let Some(root) = root.filter(|root| !root.is_null()) else {
        return config;
    };
    let Value::Map(entries) = &root.value else {
        let message = format!(
            "the file must be a mapping with the keys {}, not {}: begin with `servers:`",
            TOP_KEYS.join(", "),
            root.kind()
        );
        faults.push(Fault::at(root.at, &message));
        return config;
    };
    let top = Section::of_file(root.at, entries);
    for entry in entries {
        if foreign::is_foreign_servers(&entry.key) {
            faults.push(foreign_layout(entry));
        } else if !TOP_KEYS.contains(&entry.key.as_str()) && !entry.key.starts_with("x-") {
            top.unknown(entry, &TOP_KEYS, faults);
        }
    }
    if let Some(entry) = top.get("servers") {
        if matches!(entry.node.value, Value::Map(_)) {
            faults.push(foreign_layout(entry));
        } else {
            config.servers = servers::resolve(&entry.node, base, faults);
        }
    }
    let open = |key: &'static str, known: &[&str], faults: &mut Vec<Fault>| {
        let node = &top.get(key)?.node;
        Section::open(node, key.to_owned(), key, known, faults)
    };
    if let Some(section) = open("tools", &TOOLS_KEYS, faults) {
        config.tools = tools(&section, config.tools, faults);
    }
    if let Some(section) = open("policy", &policy::POLICY_KEYS, faults) {
        config.policy = policy::policy(&section, base, faults);
    }
    if let Some(section) = open("execution", &EXECUTION_KEYS, faults) {
        config.execution = execution(&section, &config.execution, base, faults);
    }
    if let Some(section) = open("daemon", &DAEMON_KEYS, faults) {
        let default = config.daemon;
        config.daemon = DaemonConfig {
            drain: section.seconds("drain_seconds", default.drain, faults),
            idle_server: section.seconds("idle_server_seconds", default.idle_server, faults),
        };
    }
    if let Some(section) = open("journal", &JOURNAL_KEYS, faults) {
        config.journal = journal(&section, &config.journal, base, faults);
    }
    if let Some(section) = open("submit", &submit::SUBMIT_KEYS, faults) {
        config.submit = submit::submit(&section, &config.submit, faults);
    }
    if let Some(section) = open("profiles", &submit::PROFILES_KEYS, faults) {
        config.profiles = submit::profiles(&section, config.profiles, faults);
    }
    config
}

/// The fault of servers written in another program's way, with the first one written in ours.
fn foreign_layout(entry: &Entry) -> Fault {
    let first = match &entry.node.value {
        Value::Map(servers) => match servers.first() {
            // The layout with one more level: `mcp: {servers: {NAME: …}}`.
            Some(inner) if entry.key == "mcp" && inner.key == "servers" => {
                match &inner.node.value {
                    Value::Map(servers) => servers.first(),
                    _ => None,
                }
            }
            first => first,
        },
        _ => None,
    };
    let name = first.map_or("NAME", |entry| entry.key.as_str());
    let key = &entry.key;
    let how = if key == "servers" {
        "servers is a list, not a mapping".to_owned()
    } else {
        format!("{key} is another program's layout")
    };
    Fault::at(
        entry.at,
        &format!(
            "{how}: write `servers: [{{name: {}, transport: stdio, command: COMMAND, args: [ARG]}}]`, an entry a server",
            shown(name)
        ),
    )
}

fn tools(section: &Section<'_>, default: ToolsConfig, faults: &mut Vec<Fault>) -> ToolsConfig {
    let allow = globs(section, "allow", faults);
    let block = globs(section, "block", faults).filter(|globs| !globs.is_empty());
    let filter = match (allow, block) {
        (None, None) => ToolFilter::All,
        (Some(globs), None) => ToolFilter::Allow(globs),
        (None, Some(globs)) => ToolFilter::Block(globs),
        (Some(globs), Some(_)) => {
            if let (Some(allow), Some(block)) = (section.get("allow"), section.get("block")) {
                let message = format!(
                    "tools.allow (line {}) and tools.block exclude each other: keep one of them",
                    allow.at.line
                );
                faults.push(Fault::at(block.at, &message));
            }
            ToolFilter::Allow(globs)
        }
    };
    ToolsConfig {
        filter,
        expose: expose(section, default.expose, faults),
    }
}

/// The globs of `allow` or `block`; `None` where the key is absent.
pub(super) fn globs(
    section: &Section<'_>,
    key: &str,
    faults: &mut Vec<Fault>,
) -> Option<Vec<String>> {
    let entry = section.get(key)?;
    if entry.node.is_null() {
        let path = section.path(key);
        let message = format!("{path} has no value: write [] for none, or leave the key out");
        faults.push(Fault::at(entry.at, &message));
        return None;
    }
    let mut globs = Vec::new();
    for (text, at) in section.texts(key, faults) {
        let fault = if text.is_empty() {
            Some("an empty pattern matches nothing".to_owned())
        } else {
            let glob = GlobBuilder::new(text).literal_separator(false).build();
            let broken = glob.err().map(|error| error.kind().to_string());
            broken.or_else(|| never_matches(text))
        };
        match fault {
            None => globs.push(text.to_owned()),
            Some(fault) => {
                let message = format!("{}: pattern {}: {fault}", section.path(key), shown(text));
                faults.push(Fault::at(at, &message));
            }
        }
    }
    Some(globs)
}

/// Why a pattern can match no callable name, whatever servers there are.
fn never_matches(pattern: &str) -> Option<String> {
    const START: &str = "mcp__";
    let special = |c: char| "*?[".contains(c);
    // What stands in a class may be anything; what stands outside is matched as it is.
    if pattern.contains(['{', '}', '\\']) {
        return Some(
            "a pattern has `*`, `?` and `[...]`, and neither braces nor backslashes".to_owned(),
        );
    }
    if !pattern.contains('[') {
        let odd = |c: char| !c.is_ascii_alphanumeric() && c != '_' && !special(c);
        if pattern.contains(odd) {
            let folded = pattern.replace(odd, "_");
            return Some(format!(
                "it matches no callable name, which has ASCII letters, digits and _ only: write {}",
                shown(&folded)
            ));
        }
    }
    let literal = pattern.split(special).next().unwrap_or_default();
    let begins = literal.starts_with(START) || (START.starts_with(literal) && literal != pattern);
    (!begins).then(|| {
        let written = format!("{START}{}__*", literal.trim_end_matches('_'));
        format!(
            "it matches no callable name, which begins with {START}: write {}",
            shown(&written)
        )
    })
}

fn expose(
    section: &Section<'_>,
    default: Vec<ExposedTool>,
    faults: &mut Vec<Fault>,
) -> Vec<ExposedTool> {
    const ALL: [ExposedTool; 6] = [
        ExposedTool::ExecuteProgram,
        ExposedTool::InspectTool,
        ExposedTool::ListCallableTools,
        ExposedTool::RunPython,
        ExposedTool::SubmitExecuteUnconfirmed,
        ExposedTool::SubmitOutcome,
    ];
    if section.get("expose").is_none() {
        return default;
    }
    let mut tools = Vec::new();
    for (text, at) in section.texts("expose", faults) {
        match ALL.iter().find(|tool| tool.name() == text) {
            Some(tool) if tools.contains(tool) => {
                let message = format!("tools.expose: {text} is already in the list");
                faults.push(Fault::at(at, &message));
            }
            Some(tool) => tools.push(*tool),
            None => {
                let names: Vec<_> = ALL.iter().map(|tool| tool.name()).collect();
                let (found, names) = (shown(text), names.join(", "));
                let message = format!("tools.expose: the names are {names}, not {found}");
                faults.push(Fault::at(at, &message));
            }
        }
    }
    tools
}

fn execution(
    section: &Section<'_>,
    default: &ExecutionConfig,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> ExecutionConfig {
    ExecutionConfig {
        timeout: section.seconds("timeout_seconds", default.timeout, faults),
        max_output_bytes: section.whole(
            "max_output_bytes",
            default.max_output_bytes,
            OUTPUT,
            faults,
        ),
        engines: engines::engines(section, &default.engines, base, faults),
        sandbox: section.word("sandbox", default.sandbox, SANDBOX, faults),
        python: path(section, "python", base, faults),
        max_tool_calls: section.whole("max_tool_calls", default.max_tool_calls, COUNT, faults),
        max_concurrent_calls: section.whole(
            "max_concurrent_calls",
            default.max_concurrent_calls,
            COUNT,
            faults,
        ),
        tool_call_timeout: section.seconds(
            "tool_call_timeout_seconds",
            default.tool_call_timeout,
            faults,
        ),
        trace: section.word("trace", default.trace, TRACE, faults),
        max_tool_result_bytes: section.whole(
            "max_tool_result_bytes",
            default.max_tool_result_bytes,
            RESULT,
            faults,
        ),
        memory_bytes: section.whole("memory_bytes", default.memory_bytes, MEMORY, faults),
        scratch_bytes: section.whole("scratch_bytes", default.scratch_bytes, SCRATCH, faults),
        max_threads: section.whole("max_threads", default.max_threads, COUNT, faults),
        max_runs: section.whole("max_runs", default.max_runs, COUNT, faults),
        check_arguments: section.switch("check_arguments", default.check_arguments, faults),
        structured_content: section.word(
            "structured_content",
            default.structured_content,
            STRUCTURED,
            faults,
        ),
        step_budget: step_budget(section, faults),
        pool: pool(section, default.pool, faults),
        container: container(section, &default.container, faults),
    }
}

/// A number of steps; without one none are counted.
fn step_budget(section: &Section<'_>, faults: &mut Vec<Fault>) -> Option<u64> {
    let entry = section.get("step_budget")?;
    let off = matches!(&entry.node.value, Value::Text { text, .. } if OFF.contains(&text.as_str()));
    (!off)
        .then(|| section.whole("step_budget", 0, STEPS, faults))
        .filter(|steps| *steps > 0)
}

/// Only the form is judged here: an image that will not do is no fault of a file whose tier is another one.
fn container(
    section: &Section<'_>,
    default: &ContainerConfig,
    faults: &mut Vec<Fault>,
) -> ContainerConfig {
    let name = section.path("container");
    let opened = section.get("container").and_then(|entry| {
        Section::open(
            &entry.node,
            name,
            "execution.container",
            &CONTAINER_KEYS,
            faults,
        )
    });
    let Some(section) = opened else {
        return default.clone();
    };
    ContainerConfig {
        engine: section.word("engine", default.engine, ENGINE, faults),
        image: section
            .text("image", faults)
            .map(|(text, _)| text.to_owned()),
    }
}

fn pool(section: &Section<'_>, default: PoolConfig, faults: &mut Vec<Fault>) -> PoolConfig {
    let name = section.path("pool");
    let opened = section
        .get("pool")
        .and_then(|entry| Section::open(&entry.node, name, "execution.pool", &POOL_KEYS, faults));
    let Some(section) = opened else {
        return default;
    };
    let max = section.whole("max", default.max, (1, WARM.1), faults);
    let warm = section.whole("warm", default.warm.min(max), WARM, faults);
    if warm > max
        && let Some(entry) = section.get("warm")
    {
        let message = format!("execution.pool.warm is {warm} and must not be above max, {max}");
        faults.push(Fault::at(entry.node.at, &message));
    }
    let start = section.word("start", default.start, START, faults);
    PoolConfig { warm, max, start }
}

fn journal(
    section: &Section<'_>,
    default: &JournalConfig,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> JournalConfig {
    JournalConfig {
        path: path(section, "path", base, faults).map(|path| base.join(path)),
        record: section.word("record", default.record, RECORD, faults),
        keep_runs: section.whole("keep_runs", default.keep_runs, COUNT, faults),
        keep_days: section.whole("keep_days", default.keep_days, COUNT, faults),
        keep_bytes: section.whole("keep_bytes", default.keep_bytes, KEEP, faults),
        share: section.word("share", default.share, SHARE, faults),
    }
}

/// A path: `~/` stands for the home directory, and one with a slash starts from the file's folder.
pub(super) fn path(
    section: &Section<'_>,
    key: &str,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Option<PathBuf> {
    let (text, at) = section.text(key, faults)?;
    let path = section.path(key);
    if text.is_empty() || text.contains('\0') || text.len() > MAX_PATH {
        let message = format!("{path} must be a path of at most {MAX_PATH} bytes");
        faults.push(Fault::at(at, &message));
        return None;
    }
    if text.contains("${") {
        let message = format!("{path} takes no variables");
        faults.push(Fault::at(at, &message));
        return None;
    }
    let Some(found) = home_path(text, std::env::home_dir().as_deref()) else {
        let message = format!("{path}: cannot find the home directory that ~ stands for");
        faults.push(Fault::at(at, &message));
        return None;
    };
    Some(if text.contains('/') {
        base.join(found)
    } else {
        found
    })
}

#[cfg(test)]
#[path = "tests/check.rs"]
mod tests;
