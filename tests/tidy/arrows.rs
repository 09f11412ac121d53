//! Who may use whom among the rooms of the daemon.

use crate::Finding;
use crate::rooms::{check, count, finding};
use crate::source::{Source, has_word};

/// The arrows of the design, from a room to those it may use.
const ARROWS: &[(&str, &[&str])] = &[
    // The warden has one thread and no runtime, so `main` starts it before `app` exists.
    ("main", &["app", "demo", "sandbox"]),
    ("app", ROOMS),
    ("demo", &["app"]),
    ("status", ROOMS),
    ("control", &["session", "status", "journal", "metrics"]),
    ("session", &["engine", "registry", "journal"]),
    (
        "engine",
        &["pool", "policy", "registry", "journal", "metrics"],
    ),
    ("pool", &["sandbox"]),
    ("registry", &["policy", "downstream"]),
    ("sandbox", &[]),
    ("policy", &[]),
    ("downstream", &[]),
    ("journal", &[]),
    ("metrics", &[]),
    ("telemetry", &[]),
    ("names", &[]),
    ("config", &[]),
];

/// Every room of the daemon.
const ROOMS: &[&str] = &[
    "app",
    "demo",
    "status",
    "control",
    "session",
    "engine",
    "pool",
    "registry",
    "sandbox",
    "policy",
    "downstream",
    "journal",
    "metrics",
    "telemetry",
    "names",
    "config",
];

/// What every room may read.
const FOR_ALL: &[&str] = &["config", "names"];

/// The room a file of the daemon stands in.
fn room(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("daemon/src/")?;
    let first = rest.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The identifiers that follow `crate::` or `ptcd::` in a line, braces opened.
fn named_rooms(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for prefix in ["crate::", "ptcd::"] {
        for (at, _) in line.match_indices(prefix) {
            let rest = &line[at + prefix.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                // Only the heads of a group are rooms: `crate::{config::Config, names}`.
                let mut depth = 0;
                let mut head = String::new();
                let mut start = 0;
                for (at, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            head.clear();
                            start = at + 1;
                            continue;
                        }
                        _ => {}
                    }
                    if depth == 0 && head.is_empty() && !c.is_whitespace() {
                        head.push(c);
                        found.push(first_word(group[start..].trim_start()));
                    }
                }
            } else {
                found.push(first_word(rest));
            }
        }
    }
    found
}

fn first_word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    &text[..end]
}

fn arrows(source: &Source) -> Vec<Finding> {
    let Some(own) = room(&source.path).filter(|room| *room != "lib") else {
        return Vec::new();
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| *room == own) else {
        return vec![finding(
            source,
            1,
            format!("`{own}` is no room of the design"),
        )];
    };
    // A group of imports may go over several lines, so the file is taken as one.
    let end = source.lines_without_tests();
    let code: Vec<&str> = source.code.lines().take(end).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for name in named_rooms(&code) {
        let known = ROOMS.contains(&name) && name != own;
        if known && !allowed.contains(&name) && !FOR_ALL.contains(&name) {
            let line = code
                .lines()
                .position(|line| has_word(line, name))
                .map_or(1, |at| at + 1);
            let what = format!("`{own}` may not use `{name}`");
            let new = finding(source, line, what);
            if !found.contains(&new) {
                found.push(new);
            }
        }
    }
    found
}

#[test]
fn rooms_use_each_other_along_the_arrows() {
    check(arrows);
}

#[test]
fn a_forbidden_arrow_is_caught_in_every_form() {
    let at = "daemon/src/pool/worker.rs";
    assert_eq!(count(arrows, at, "use crate::engine::Run;\n"), 1);
    assert_eq!(count(arrows, at, "fn f() { crate::registry::list() }\n"), 1);
    assert_eq!(
        count(
            arrows,
            at,
            "use crate::{\n    config::Config,\n    journal::{A, B},\n    sandbox,\n};\n"
        ),
        1
    );
    assert_eq!(count(arrows, "daemon/src/main.rs", "use ptcd::pool;\n"), 1);
    assert_eq!(count(arrows, "daemon/src/cellar.rs", "\n"), 1);
    assert_eq!(
        count(
            arrows,
            at,
            "use crate::sandbox::Sandbox;\nuse crate::pool::frame;\n"
        ),
        0
    );
    assert_eq!(count(arrows, at, "// use crate::engine::Run;\n"), 0);
    assert_eq!(
        count(
            arrows,
            at,
            "#[cfg(test)]\nmod tests {\nuse crate::engine::Run;\n}\n"
        ),
        0
    );
}
