//! How a source file looks: its header, its size, and words that may not stand in it.

use crate::source::{Source, has_word, python_files, rust_files};
use crate::{Finding, none_of};

/// Most lines of a file, its test module aside.
const MOST_LINES: usize = 500;

fn finding(source: &Source, line: usize, what: impl Into<String>) -> Finding {
    Finding {
        path: source.path.clone(),
        line,
        what: what.into(),
    }
}

fn header(source: &Source) -> Option<Finding> {
    let first = source.text.lines().next().unwrap_or_default();
    let says = first.strip_prefix("//! ").unwrap_or_default().trim();
    (says.split_whitespace().count() < 2).then(|| {
        finding(
            source,
            1,
            "the file does not open with `//!` and its one job",
        )
    })
}

fn size(source: &Source) -> Option<Finding> {
    let lines = source.lines_without_tests();
    (lines > MOST_LINES).then(|| {
        finding(
            source,
            lines,
            format!("{lines} lines without its tests, {MOST_LINES} at most"),
        )
    })
}

fn python_size(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    (lines > MOST_LINES).then(|| finding(source, lines, format!("{lines} lines")))
}

/// Marks that leave something undone, or hide it.
fn marks(source: &Source) -> Vec<Finding> {
    let macros = ["todo!", "unimplemented!", "dbg!"];
    let attributes = ["#[ignore", "#[allow(", "#![allow("];
    let in_code = source.code.lines().enumerate().flat_map(|(at, line)| {
        let macros = macros.iter().filter(move |mark| {
            line.match_indices(**mark)
                .any(|(from, _)| !line[..from].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        });
        let attributes = attributes.iter().filter(move |mark| line.contains(**mark));
        macros
            .chain(attributes)
            .map(move |mark| (at + 1, format!("`{mark}` stands here")))
    });
    let found: Vec<Finding> = in_code
        .map(|(line, what)| finding(source, line, what))
        .collect();
    [found, undone(source)].concat()
}

/// Words in comments that say that work is left.
fn undone(source: &Source) -> Vec<Finding> {
    // Put together here, so that this file does not hold them.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    source
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| words.iter().any(|word| has_word(line, word)))
        .map(|(at, _)| finding(source, at + 1, "work is left here"))
        .collect()
}

#[test]
fn every_file_opens_with_its_one_job() {
    let findings: Vec<Finding> = rust_files().iter().filter_map(header).collect();
    none_of(&findings);
}

#[test]
fn no_file_is_too_long() {
    let rust = rust_files();
    let python = python_files();
    let findings: Vec<Finding> = rust
        .iter()
        .filter_map(size)
        .chain(python.iter().filter_map(python_size))
        .collect();
    none_of(&findings);
}

#[test]
fn nothing_is_left_undone_or_hidden() {
    let rust = rust_files();
    let python = python_files();
    let findings: Vec<Finding> = rust
        .iter()
        .flat_map(marks)
        .chain(python.iter().flat_map(undone))
        .collect();
    none_of(&findings);
}

#[test]
fn a_file_without_a_header_is_caught() {
    for bad in [
        "",
        "use std::fs;\n",
        "//!\nfn a() {}\n",
        "// Says nothing.\n",
        "//! Word\n",
    ] {
        assert!(header(&Source::new("a.rs", bad)).is_some(), "{bad:?}");
    }
    assert_eq!(header(&Source::new("a.rs", "//! Opens doors.\n")), None);
}

#[test]
fn a_long_file_is_caught_and_a_long_test_module_is_not() {
    let long = "fn a() {}\n".repeat(MOST_LINES + 1);
    assert!(size(&Source::new("a.rs", &long)).is_some());
    let tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(size(&Source::new("a.rs", &tests)), None);
}

#[test]
fn marks_are_caught() {
    let cases = [
        "    todo!()\n",
        "    unimplemented!(\"later\")\n",
        "#[ignore]\nfn a() {}\n",
        "#[ignore = \"slow\"]\n",
        "#[allow(dead_code)]\n",
        "#![allow(clippy::all)]\n",
        concat!("// TO", "DO: later\n"),
        concat!("let a = 1; // FIX", "ME\n"),
    ];
    for bad in cases {
        assert_eq!(marks(&Source::new("a.rs", bad)).len(), 1, "{bad:?}");
    }
    let good = "// Nothing to do. #[ignore] in prose is fine.\n#[expect(dead_code, reason = \"x\")]\nlet t = \"todo!\";\n";
    assert_eq!(marks(&Source::new("a.rs", good)), []);
}
