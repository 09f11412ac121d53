//! What the papers around the sources must hold.

use std::collections::BTreeSet;
use std::process::Command;

use crate::source::{root, rust_files};

/// A paper at the root.
#[track_caller]
fn paper(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The keys of the example, as dotted paths; those of a list's entries stand right under the list.
///
/// A key that is absent by default stands in a comment: `# key: value`, or any
/// line behind `#| `.
fn example_keys(text: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for line in text.lines() {
        let line = line.strip_prefix("#| ").unwrap_or(line);
        let mut rest = line.trim_start();
        let mut depth = line.len() - rest.len();
        rest = rest.strip_prefix("# ").unwrap_or(rest);
        if let Some(item) = rest.strip_prefix("- ") {
            depth += 2;
            rest = item.trim_start();
        }
        let Some(name) = key_at(rest) else { continue };
        while open.last().is_some_and(|(at, _)| *at >= depth) {
            open.pop();
        }
        open.push((depth, name));
        let path: Vec<&str> = open.iter().map(|(_, name)| *name).collect();
        let path = path.join(".");
        for inner in flow_keys(rest[name.len() + 1..].trim()) {
            keys.insert(format!("{path}.{inner}"));
        }
        keys.insert(path);
    }
    keys
}

/// The key a line starts with.
fn key_at(text: &str) -> Option<&str> {
    let end = text.find(':')?;
    let name = &text[..end];
    let follows = text[end + 1..].chars().next();
    let is_key = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_key && follows.is_none_or(char::is_whitespace)).then_some(name)
}

/// The keys of a map written in braces on one line.
fn flow_keys(value: &str) -> Vec<&str> {
    let Some(inside) = value.strip_prefix('{') else {
        return Vec::new();
    };
    let inside = inside.split('}').next().unwrap_or_default();
    inside
        .split(',')
        .filter_map(|part| key_at(part.trim()))
        .collect()
}

/// The keys in the first column of the tables, under the heading that names their section.
fn documented_keys(text: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.trim();
        }
        let cell = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split('`').next());
        if let Some(key) = cell {
            keys.insert(format!("{section}.{key}"));
        }
    }
    keys
}

/// What stands in only one of the two papers; a key that only holds others needs no row.
fn differences(example: &str, document: &str) -> Vec<String> {
    let all = example_keys(example);
    let holds_others = |key: &String| {
        let inside = format!("{key}.");
        all.iter().any(|other| other.starts_with(&inside))
    };
    let keys: BTreeSet<&String> = all
        .iter()
        .filter(|key| key.contains('.') && !holds_others(key))
        .collect();
    let documented = documented_keys(document);
    let missing = keys
        .iter()
        .filter(|key| !documented.contains(**key))
        .map(|key| format!("{key} is not in docs/configuration.md"));
    let unknown = documented
        .iter()
        .filter(|key| !keys.contains(key))
        .map(|key| format!("{key} is not in config.example.yaml"));
    missing.chain(unknown).collect()
}

/// What is wrong with the headings of a changelog.
fn heading_faults(text: &str) -> Vec<String> {
    let kinds = [
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    ];
    let mut faults = Vec::new();
    let mut lines = text.lines().filter(|line| line.starts_with('#'));
    if lines.next() != Some("# Changelog") {
        faults.push("the first heading is not `# Changelog`".to_owned());
    }
    if lines.next() != Some("## [Unreleased]") {
        faults.push("the second heading is not `## [Unreleased]`".to_owned());
    }
    for line in lines {
        let release = line
            .strip_prefix("## [")
            .and_then(|rest| rest.split_once("] - "))
            .is_some_and(|(version, date)| is_version(version) && is_date(date));
        let kind = line
            .strip_prefix("### ")
            .is_some_and(|kind| kinds.contains(&kind));
        if !release && !kind {
            faults.push(format!("`{line}` is no heading of a changelog"));
        }
    }
    faults
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

fn is_date(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [4, 2, 2] && text.chars().all(|c| c.is_ascii_digit() || c == '-')
}

/// The packages of a `cargo tree` that the shim may not link.
fn heavy(tree: &str) -> Vec<&str> {
    let names = ["rmcp", "axum", "jsonschema", "ptcd", "reqwest", "rustls"];
    tree.lines()
        .filter_map(|line| line.split_whitespace().find(|word| names.contains(word)))
        .collect()
}

#[test]
fn every_key_stands_in_the_example_and_in_the_documentation() {
    let found = differences(
        &paper("config.example.yaml"),
        &paper("docs/configuration.md"),
    );
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_changelog_keeps_its_form() {
    assert_eq!(heading_faults(&paper("CHANGELOG.md")), Vec::<String>::new());
}

/// The tests that the last column of a table names, without their area.
fn named_tests(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.rsplit("::").next().unwrap_or(name))
        .filter(|name| name.len() > 20 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect()
}

#[test]
fn every_test_that_the_protocol_page_names_is_there() {
    let page = paper("docs/protocol.md");
    let named = named_tests(&page);
    assert!(named.len() > 20, "{named:?}");
    let sources = rust_files();
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| {
            let start = format!("fn {name}(");
            !sources.iter().any(|source| source.code.contains(&start))
        })
        .collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

#[test]
fn the_readme_has_the_two_commands() {
    let readme = paper("README.md");
    for command in [
        "cargo run --release -p ptcd -- demo",
        "cargo test --workspace",
    ] {
        assert!(readme.contains(command), "`{command}` is not in README.md");
    }
}

#[test]
fn the_shim_links_no_mcp_and_no_http_server() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "-p",
            "ptc-shim",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && tree.contains("ptc-protocol"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(heavy(&tree), Vec::<&str>::new());
}

#[test]
fn a_key_in_only_one_of_the_papers_is_caught() {
    let example = "\
# Prose: with a colon.
servers: []
#| servers:
#|   - name: x        # required: yes
#|     env:
#|       TOKEN: ${T}
#|     cwd: .
execution:
  timeout_seconds: 120   # note: seconds
  # python: /usr/bin/python3
  pool: { warm: 2, max: 8 }
journal:
  share:
    with: all
";
    let keys: Vec<String> = example_keys(example).into_iter().collect();
    assert_eq!(
        keys,
        [
            "execution",
            "execution.pool",
            "execution.pool.max",
            "execution.pool.warm",
            "execution.python",
            "execution.timeout_seconds",
            "journal",
            "journal.share",
            "journal.share.with",
            "servers",
            "servers.cwd",
            "servers.env",
            "servers.name",
        ]
    );
    let document = "\
## servers
| key | meaning |
|---|---|
| `name` | required |
| `cwd` | folder |
| `env` | more |
## execution
| `timeout_seconds` | limit |
| `pool.warm` | see `pool.max` |
| `colour` | none |
| `python` | found |
## journal
| `share.with` | who |
";
    assert_eq!(
        differences(example, document),
        [
            "execution.pool.max is not in docs/configuration.md",
            "execution.colour is not in config.example.yaml",
        ]
    );
}

#[test]
fn a_bad_heading_is_caught() {
    let good = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [0.1.0] - 2026-11-30\n\n### Fixed\n";
    assert_eq!(heading_faults(good), Vec::<String>::new());
    for (from, to) in [
        ("# Changelog", "# Changes"),
        ("## [Unreleased]", "## Unreleased"),
        ("### Added", "### New"),
        ("2026-11-30", "30 November"),
        ("[0.1.0]", "[0.1]"),
    ] {
        assert_eq!(heading_faults(&good.replacen(from, to, 1)).len(), 1, "{to}");
    }
}

#[test]
fn the_tests_of_a_table_are_told_from_other_words() {
    let page = "| 1 | a `trap` | here | `area::a_name_that_is_long_enough`, `another_name_of_a_test` |\n\
        text `a_name_outside_of_a_table`\n";
    assert_eq!(
        named_tests(page),
        ["a_name_that_is_long_enough", "another_name_of_a_test"]
    );
}

#[test]
fn a_heavy_package_is_caught() {
    let tree = "ptc-shim v0.1.0 (/x)\nhyper v1.0.0\naxum v0.8.9\nrmcp v3.11.0 (*)\n";
    assert_eq!(heavy(tree), ["axum", "rmcp"]);
}
