//! The common mistakes of `docs/programs.md`: each program there must get exactly the text under it, under every Python.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::machine;
use ptc_tests::programs::data;
use ptc_tests::pythons::{self, Python};
use ptc_tests::suite::{skip, trial};
use ptc_tests::{Client, Daemon, Home, Plan, Run, TestResult};
use serde_json::json;
use tempfile::TempDir;

/// The page, from the folder of the tests.
const PAGE: &str = "../docs/programs.md";
/// The server whose tools have what those of `data` have not: optional arguments, forms, names that fold alike.
const TRACKER: &str = "cases/tracker.json";
const SECTION: &str = "## Common mistakes\n";
/// The part whose texts are those of one tier.
const CONFINED: &str = "The world outside";
/// Fewer rows than the page promises mean that it was not read as it is written.
const MIN_ROWS: usize = 60;

/// One mistake as the page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// The heading above its own.
    part: String,
    title: String,
    program: String,
    text: String,
    /// The texts of single versions that have one of their own, by the minor version.
    own: BTreeMap<u32, String>,
}

impl Row {
    /// The answer under one version of Python.
    fn text_under(&self, minor: u32) -> &str {
        self.own.get(&minor).unwrap_or(&self.text)
    }
}

/// The daemon all rows of one Python share; it ends with the last of them.
struct Party {
    client: Mutex<Client>,
    _daemon: Daemon,
    _home: Home,
    _copy: Option<TempDir>,
}

impl Party {
    /// What the page says of the daemon behind its rows.
    fn new(python: &Python) -> anyhow::Result<Self> {
        let (path, copy) = python.within_reach()?;
        let script = data(TRACKER);
        let script = script.to_string_lossy();
        let home = Home::new(
            &Plan::new()
                .server("data", &[])
                .server("my-notes", &[])
                .server("tracker", &["--script", &script])
                .entry(json!({
                    "name": "mail", "transport": "stdio", "command": "mail-mcp",
                    "env": {"PATH": "/usr/bin:/bin"},
                }))
                .set("tools.block", json!(["mcp__data__env"]))
                .set("execution.timeout_seconds", 3)
                .set("execution.max_tool_calls", 20)
                .set("execution.max_output_bytes", 1000)
                .set("execution.memory_bytes", 128 << 20)
                .set("execution.trace", "off")
                .set("execution.python", path.display().to_string())
                .set("execution.sandbox", tier_of_the_page()),
        );
        let daemon = home.daemon();
        daemon.wait_for("data", ServerState::Ready);
        daemon.wait_for("my-notes", ServerState::Ready);
        daemon.wait_for("tracker", ServerState::Ready);
        daemon.wait_for("mail", ServerState::Failed);
        Ok(Self {
            client: Mutex::new(home.client()),
            _daemon: daemon,
            _home: home,
            _copy: copy,
        })
    }
}

pub(super) fn tests() -> Vec<Trial> {
    let page = std::fs::read_to_string(data(PAGE)).unwrap_or_default();
    let rows = rows(&page);
    let titles: Vec<String> = rows.iter().map(|row| row.title.clone()).collect();
    let mut trials = vec![trial("mistakes", "the_page_has_its_rows", move || {
        check_titles(titles)
    })];
    let mut pythons = pythons::found();
    pythons.dedup_by_key(|python| python.minor);
    for python in pythons {
        let party: Arc<OnceLock<Result<Party, String>>> = Arc::default();
        trials.extend(rows.iter().map(|row| {
            let title = format!("{}_under_python_3_{}", name(&row.title), python.minor);
            let (row, python, party) = (row.clone(), python.clone(), Arc::clone(&party));
            trial("mistakes", &title, move || check(&row, &python, &party))
        }));
    }
    trials
}

fn check_titles(mut titles: Vec<String>) -> TestResult {
    let count = titles.len();
    assert!(count >= MIN_ROWS, "{count} rows in {PAGE}");
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), count, "two rows have one title");
    Ok(())
}

fn check(row: &Row, python: &Python, party: &OnceLock<Result<Party, String>>) -> TestResult {
    assert!(
        !row.program.is_empty() && !row.text.is_empty(),
        "a row is a program and a text: {row:?}"
    );
    if row.part == CONFINED && tier_of_the_page() != "landlock" {
        return skip("the page shows the landlock tier");
    }
    let party = party
        .get_or_init(|| Party::new(python).map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow::anyhow!(error.clone()))?;
    let run = {
        let mut client = party.client.lock().unwrap_or_else(PoisonError::into_inner);
        let id = client.start_run(&row.program);
        client.finish_run(&id)
    };
    let (told, text) = (settled(&run), row.text_under(python.minor));
    assert!(
        told == text,
        "{PAGE} differs, row {:?} under 3.{}.\n--- the page ---\n{text}\n--- the answer ---\n{told}\n",
        row.title,
        python.minor
    );
    Ok(())
}

/// The tier the page shows, where this machine has it.
fn tier_of_the_page() -> &'static str {
    if cfg!(target_os = "linux") && machine::tier().is_ok() {
        return "landlock";
    }
    machine::sandbox_word()
}

/// The rows of the page, in its order.
fn rows(page: &str) -> Vec<Row> {
    let section = page.split_once(SECTION).map_or("", |(_, section)| section);
    let mut rows: Vec<Row> = Vec::new();
    let mut part = "";
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("### ") {
            part = heading;
        } else if let Some(title) = line.strip_prefix("#### ") {
            rows.push(Row {
                part: part.to_owned(),
                title: title.to_owned(),
                program: String::new(),
                text: String::new(),
                own: BTreeMap::new(),
            });
        } else if line.starts_with("```") {
            let fence: String = line.chars().take_while(|c| *c == '`').collect();
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != fence).collect();
            let Some(row) = rows.last_mut() else { continue };
            match line.trim_start_matches('`') {
                "python" => row.program = inside.join("\n"),
                "text" => row.text = inside.join("\n"),
                own if own.starts_with("text 3.") => {
                    let minor = own
                        .trim_start_matches("text 3.")
                        .parse()
                        .unwrap_or_default();
                    row.own.insert(minor, inside.join("\n"));
                }
                // No answer is that, so the row fails.
                other => row.text = format!("a block of {other:?}"),
            }
        }
    }
    rows
}

/// The text of an answer, what differs from run to run written as the page writes it.
fn settled(run: &Run) -> String {
    let mut text = run.text.trim_end().to_owned();
    if let Some(id) = run.structured["run"].as_str() {
        text = text.replace(id, "r1");
    }
    number_between(&text, "... ", " more frames", "970")
}

/// `text` with `number` in place of the digits between `before` and `after`.
fn number_between(text: &str, before: &str, after: &str, number: &str) -> String {
    let Some(end) = text.find(after) else {
        return text.to_owned();
    };
    let (head, tail) = text.split_at(end);
    let start = head.trim_end_matches(|c: char| c.is_ascii_digit());
    if start.ends_with(before) && start.len() < head.len() {
        return format!("{start}{number}{tail}");
    }
    text.to_owned()
}

/// A title as the name of a test.
fn name(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("_")
}
