//! What only some rooms may do.

use crate::source::{Source, has_word, rust_files};
use crate::{Finding, none_of};

/// Where processes start.
const STARTERS: &[&str] = &[
    // ptcd starts its warden, the warden its workers.
    "daemon/src/sandbox/link.rs",
    "daemon/src/sandbox/warden.rs",
    "daemon/src/sandbox/birth.rs",
    "daemon/src/sandbox/namespaces.rs",
    "daemon/src/sandbox/sys.rs",
    // The probe, docker or podman, and on macOS a guard for each worker.
    "daemon/src/sandbox/interpreter.rs",
    "daemon/src/sandbox/container/engine.rs",
    "daemon/src/sandbox/guarded/mod.rs",
    "daemon/src/sandbox/guard.rs",
    // Servers, the daemon, the service manager, the login shell.
    "daemon/src/downstream/spawn.rs",
    "shim/src/launch.rs",
    "shim/src/manager.rs",
    "shim/src/login.rs",
];

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "daemon/src/sandbox/",
    "daemon/src/downstream/spawn.rs",
    "daemon/src/control/launchd.rs",
];

/// Where a type may be made into JSON.
const BORDERS: &[&str] = &[
    "protocol/src/",
    "daemon/src/pool/frame.rs",
    "daemon/src/journal/",
    "daemon/src/config/raw.rs",
];

/// Where the environment is read.
const READERS: &[&str] = &[
    "protocol/src/paths.rs",
    "daemon/src/main.rs",
    "daemon/src/app.rs",
    "daemon/src/app/",
    "shim/src/bin/",
    // What the hello carries, what the daemon asks for, and what a new daemon is passed.
    "shim/src/handshake.rs",
    "shim/src/forward.rs",
    "shim/src/launch.rs",
    // Whether systemd of this user can be found by it.
    "shim/src/manager.rs",
    // NO_COLOR, and what the daemon asks a `ptcctl run` for.
    "shim/src/ctl/mod.rs",
    "shim/src/ctl/mcp.rs",
];

fn within(path: &str, places: &[&str]) -> bool {
    places
        .iter()
        .any(|place| path == *place || (place.ends_with('/') && path.starts_with(place)))
}

/// Whether the rules for the programs hold for this file.
fn is_program(path: &str) -> bool {
    ["protocol/src/", "shim/src/", "daemon/src/"]
        .iter()
        .any(|place| path.starts_with(place))
}

pub(crate) fn finding(source: &Source, line: usize, what: impl Into<String>) -> Finding {
    Finding {
        path: source.path.clone(),
        line,
        what: what.into(),
    }
}

/// Findings for each line before the tests that holds one of `words` outside `places`.
fn only_in(source: &Source, words: &[&str], places: &[&str], what: &str) -> Vec<Finding> {
    if !is_program(&source.path) || within(&source.path, places) {
        return Vec::new();
    }
    source
        .production()
        .filter(|(_, line)| words.iter().any(|word| has_word(line, word)))
        .map(|(at, _)| finding(source, at, what))
        .collect()
}

fn libraries(source: &Source) -> Vec<Finding> {
    let session_and_downstream = &["daemon/src/session/", "daemon/src/downstream/"];
    [
        only_in(
            source,
            &["rmcp"],
            session_and_downstream,
            "only session and downstream name rmcp",
        ),
        only_in(
            source,
            &["axum"],
            &["daemon/src/control/"],
            "only control names axum",
        ),
        only_in(
            source,
            &["serde_saphyr", "serde_yaml", "yaml_serde", "saphyr"],
            &["daemon/src/config/raw.rs"],
            "only config/raw.rs names YAML",
        ),
    ]
    .concat()
}

/// The door by which tests leave a layer of the sandbox out is no way for the programs.
fn door(source: &Source) -> Vec<Finding> {
    only_in(
        source,
        &["testing::Ground", "testing::Without", "sandbox::testing"],
        &["daemon/src/sandbox/testing.rs"],
        "only tests leave a layer of the sandbox out",
    )
}

fn starts(source: &Source) -> Vec<Finding> {
    let words = [
        "Command::new",
        "posix_spawn",
        "posix_spawnp",
        "fork",
        "vfork",
        "execve",
        "execv",
        "clone3",
        "kernel_execve",
    ];
    let called = |line: &str| {
        words.iter().any(|word| {
            line.match_indices(word).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let is_call = line[at + word.len()..].starts_with('(');
                is_call && !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            })
        })
    };
    if !is_program(&source.path) || within(&source.path, STARTERS) {
        return Vec::new();
    }
    source
        .production()
        .filter(|(_, line)| called(line))
        .map(|(at, _)| finding(source, at, "no process may be started here"))
        .collect()
}

fn unsafe_code(source: &Source) -> Vec<Finding> {
    only_in(source, &["unsafe"], UNSAFE, "no unsafe here")
}

fn serialized(source: &Source) -> Vec<Finding> {
    if !is_program(&source.path) || within(&source.path, BORDERS) {
        return Vec::new();
    }
    let makes = |line: &str| {
        let derives = line.contains("derive(") && has_word(line, "Serialize");
        derives || line.contains("Serialize for ")
    };
    source
        .production()
        .filter(|(_, line)| makes(line))
        .map(|(at, _)| finding(source, at, "Serialize belongs to the borders"))
        .collect()
}

fn environment(source: &Source) -> Vec<Finding> {
    let words = ["env::var", "env::var_os", "env::vars", "env::vars_os"];
    only_in(
        source,
        &words,
        READERS,
        "the environment is read in main, app and paths only",
    )
}

/// Names of variables read by a literal that is not in the one list.
fn unlisted_variables(source: &Source, listed: &[String]) -> Vec<Finding> {
    if !is_program(&source.path) {
        return Vec::new();
    }
    let end = source.lines_without_tests();
    let mut found = Vec::new();
    for (at, line) in source.text.lines().take(end).enumerate() {
        for call in ["env::var(\"", "env::var_os(\"", "option_env!(\""] {
            for (from, _) in line.match_indices(call) {
                let name = line[from + call.len()..]
                    .split('"')
                    .next()
                    .unwrap_or_default();
                if !listed.iter().any(|known| known == name) {
                    let what = format!("{name} is not in protocol/src/paths.rs");
                    found.push(finding(source, at + 1, what));
                }
            }
        }
    }
    found
}

/// The values of the constants in `paths::variable`.
fn listed_variables(paths: &Source) -> Vec<String> {
    paths
        .text
        .lines()
        .filter(|line| line.contains("pub const ") && line.contains(": &str = \""))
        .filter_map(|line| line.split('"').nth(1).map(str::to_owned))
        .collect()
}

#[track_caller]
pub(crate) fn check(rule: impl Fn(&Source) -> Vec<Finding>) {
    let findings: Vec<Finding> = rust_files().iter().flat_map(rule).collect();
    none_of(&findings);
}

#[test]
fn libraries_are_named_in_their_rooms_only() {
    check(libraries);
}

#[test]
fn no_program_goes_through_the_door_of_the_tests() {
    check(door);
    let through = "use crate::sandbox::testing::Ground;\n";
    assert_eq!(count(door, "daemon/src/app/mod.rs", through), 1);
    assert_eq!(count(door, "daemon/src/sandbox/linux.rs", through), 1);
}

#[test]
fn processes_start_in_few_places() {
    check(starts);
}

#[test]
fn unsafe_stands_in_few_places() {
    check(unsafe_code);
}

#[test]
fn serialize_stands_at_the_borders() {
    check(serialized);
}

#[test]
fn the_environment_is_read_in_few_places_and_by_listed_names() {
    check(environment);
    let files = rust_files();
    let paths = files
        .iter()
        .find(|file| file.path == "protocol/src/paths.rs")
        .unwrap();
    let listed = listed_variables(paths);
    assert!(listed.contains(&"PTC_MCP_CONFIG".to_owned()));
    check(|source| unlisted_variables(source, &listed));
}

/// How often a rule finds something in a text that stands at a path.
pub(crate) fn count(rule: impl Fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> usize {
    rule(&Source::new(path, text)).len()
}

#[test]
fn a_library_in_the_wrong_room_is_caught() {
    assert_eq!(
        count(libraries, "daemon/src/engine/mod.rs", "use rmcp::Peer;\n"),
        1
    );
    assert_eq!(
        count(libraries, "daemon/src/session/mod.rs", "use rmcp::Peer;\n"),
        0
    );
    assert_eq!(
        count(libraries, "daemon/src/app.rs", "axum::serve(a);\n"),
        1
    );
    assert_eq!(
        count(
            libraries,
            "daemon/src/config/mod.rs",
            "serde_saphyr::from_str(a);\n"
        ),
        1
    );
    assert_eq!(
        count(
            libraries,
            "daemon/src/telemetry.rs",
            "let f = \"rmcp=warn\";\n"
        ),
        0
    );
}

#[test]
fn a_process_started_in_the_wrong_place_is_caught() {
    let at = "daemon/src/engine/run.rs";
    assert_eq!(
        count(starts, at, "let c = std::process::Command::new(x);\n"),
        1
    );
    assert_eq!(
        count(starts, at, "libc::fork();\nlibc::execve(a, b, c);\n"),
        2
    );
    assert_eq!(
        count(starts, at, "self.fork_server(); workforkers::fork_();\n"),
        0
    );
    assert_eq!(count(starts, "shim/src/launch.rs", "Command::new(x);\n"), 0);
}

#[test]
fn unsafe_in_the_wrong_place_is_caught() {
    assert_eq!(
        count(unsafe_code, "daemon/src/pool/mod.rs", "unsafe { f() }\n"),
        1
    );
    assert_eq!(
        count(
            unsafe_code,
            "daemon/src/sandbox/seccomp.rs",
            "unsafe { f() }\n"
        ),
        0
    );
    assert_eq!(
        count(
            unsafe_code,
            "daemon/src/pool/mod.rs",
            "#![deny(unsafe_code)]\n"
        ),
        0
    );
}

#[test]
fn serialize_away_from_the_borders_is_caught() {
    let derive = "#[derive(Debug, serde::Serialize)]\nstruct A;\n";
    assert_eq!(count(serialized, "daemon/src/engine/mod.rs", derive), 1);
    assert_eq!(count(serialized, "daemon/src/journal/mod.rs", derive), 0);
    assert_eq!(
        count(
            serialized,
            "shim/src/ctl/status.rs",
            "impl Serialize for A {}\n"
        ),
        1
    );
    assert_eq!(
        count(
            serialized,
            "shim/src/connect.rs",
            "#[derive(Deserialize)]\n"
        ),
        0
    );
}

#[test]
fn an_unlisted_variable_and_a_hidden_read_are_caught() {
    let read = "let a = std::env::var_os(\"PTC_SECRET_SWITCH\");\n";
    assert_eq!(count(environment, "daemon/src/engine/mod.rs", read), 1);
    assert_eq!(count(environment, "daemon/src/main.rs", read), 0);
    let listed = ["HOME".to_owned()];
    let rule = |source: &Source| unlisted_variables(source, &listed);
    assert_eq!(count(rule, "daemon/src/main.rs", read), 1);
    assert_eq!(
        count(rule, "daemon/src/main.rs", "std::env::var(\"HOME\");\n"),
        0
    );
}
