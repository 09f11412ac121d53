//! Names, arguments, schemas and results as data: a row a case, each through the real programs.
//!
//! The rows of `tests/cases/*.jsonl` say what a server lists and answers, what
//! a program writes, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::programs::data;
use ptc_tests::suite::trial;
use ptc_tests::{Client, Daemon, Home, Plan, Run, TestResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    let mut trials = names();
    trials.extend(rows("arguments", Argument::tool, Argument::check));
    trials.extend(rows("schemas", Schema::tool, Schema::check));
    trials.extend(rows("results", Answer::tool, Answer::check));
    trials
}

/// A row's words for itself, and the rest of it.
#[derive(Clone, Debug, Deserialize)]
struct Row<T> {
    case: String,
    #[serde(flatten)]
    rest: T,
}

fn read<T: DeserializeOwned>(kind: &str) -> anyhow::Result<Vec<Row<T>>> {
    let text = std::fs::read_to_string(data("cases").join(format!("{kind}.jsonl")))?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}

/// One trial a row, or the one that says why there are no rows.
fn trials<T: DeserializeOwned>(kind: &str, make: impl Fn(Vec<Row<T>>) -> Vec<Trial>) -> Vec<Trial> {
    match read::<T>(kind) {
        Ok(rows) => make(rows),
        Err(error) => vec![trial(kind, "its cases can be read", move || Err(error))],
    }
}

/// A daemon with one scripted server, which all rows of a kind share.
struct Party {
    client: Mutex<Client>,
    daemon: Daemon,
    _home: Home,
}

impl Party {
    fn new(script: &Value) -> Self {
        let home = Home::new(&Plan::new());
        let script = home.write("script.json", &script.to_string());
        let script = script.to_str().unwrap_or_default();
        home.write_config(&Plan::new().server("p", &["--script", script]).text());
        let daemon = home.daemon();
        daemon.wait_for("p", ServerState::Ready);
        Self {
            client: Mutex::new(home.client()),
            daemon,
            _home: home,
        }
    }

    /// Runs a program that also calls a tool of the same server that nothing is wrong with.
    fn run(&self, program: &str) -> Run {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.run(&format!(
            "{program}\nprint('beside', (await mcp__p__neighbour(x=1))['arguments'])"
        ))
    }

    fn inspect(&self, tool: &str) -> anyhow::Result<Value> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = client.call("inspect_tool", &json!({"tool_name": tool}));
        serde_json::from_str(&shown.text).with_context(|| shown.text)
    }
}

/// What a row adds to the server's script: its tool, and the tool's answer.
type Scripted = (Value, Option<String>);

/// One trial a row. The tool of the row at `index` is called `t<index>`.
fn rows<T>(
    kind: &'static str,
    tool: fn(&T, &str) -> Scripted,
    check: fn(&T, &Party, &str) -> TestResult,
) -> Vec<Trial>
where
    T: DeserializeOwned + Send + Sync + 'static,
{
    trials(kind, |rows| rows_of(kind, rows, tool, check))
}

fn rows_of<T>(
    kind: &'static str,
    rows: Vec<Row<T>>,
    tool: fn(&T, &str) -> Scripted,
    check: fn(&T, &Party, &str) -> TestResult,
) -> Vec<Trial>
where
    T: Send + Sync + 'static,
{
    let mut tools = vec![json!({"name": "neighbour"}), json!({"name": "stats"})];
    let mut answers = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        let name = format!("t{index}");
        let (listed, answer) = tool(&row.rest, &name);
        tools.push(listed);
        if let Some(answer) = answer {
            answers.insert(name, answer);
        }
    }
    let script = Arc::new(json!({"tools": tools, "answers": answers}));
    let party: Arc<OnceLock<Party>> = Arc::default();
    rows.into_iter()
        .enumerate()
        .map(|(index, row)| {
            let (party, script) = (Arc::clone(&party), Arc::clone(&script));
            trial(kind, &row.case.clone(), move || {
                let party = party.get_or_init(|| Party::new(&script));
                let before = party.daemon.server("p").pid;
                check(&row.rest, party, &format!("mcp__p__t{index}"))?;
                // Whatever a server says, its connection goes on.
                assert_eq!(party.daemon.server("p").pid, before);
                Ok(())
            })
        })
        .collect()
}

/// What a program writes as arguments, and what becomes of it.
#[derive(Clone, Debug, Deserialize)]
struct Argument {
    schema: Value,
    call: String,
    sends: Option<Value>,
    /// An exception's class, or the kind of a `ToolError`.
    raises: Option<String>,
    #[serde(default)]
    words: Vec<String>,
    problems: Option<Value>,
}

impl Argument {
    fn tool(&self, name: &str) -> Scripted {
        (json!({"name": name, "inputSchema": self.schema}), None)
    }

    fn check(&self, party: &Party, tool: &str) -> TestResult {
        let call = &self.call;
        let run = party.run(&format!(
            "before = (await mcp__p__stats())['tools/call']\n\
             try:\n    emit((await {tool}({call}))['arguments'])\n    print('sent')\n\
             except ToolError as e:\n    print(e.kind, e.tool, e.server, e.retryable)\n    print(e)\n    emit(e.data)\n\
             except Exception as e:\n    print(type(e).__name__)\n    print(e)\n\
             print((await mcp__p__stats())['tools/call'] - before)"
        ));
        let printed = output(&run);
        let Some(raises) = &self.raises else {
            assert_eq!(Some(&run.structured["result"]), self.sends.as_ref());
            assert_eq!(printed, "sent\n2\n");
            return Ok(());
        };
        let head = if raises == "invalid_arguments" {
            format!("{raises} {tool} p False\n")
        } else {
            format!("{raises}\n")
        };
        assert!(printed.starts_with(&head), "{printed}");
        assert!(printed.ends_with("\n1\n"), "it was sent: {printed}");
        contains_all(&printed, &self.words);
        if let Some(problems) = &self.problems {
            assert_eq!(&run.structured["result"]["problems"], problems);
        }
        Ok(())
    }
}

/// A tool's input schema and calls that fit it or do not.
#[derive(Clone, Debug, Deserialize)]
struct Schema {
    input: Value,
    calls: Vec<Try>,
    /// What `inspect_tool` says of the schema, where it is set aside.
    note: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Try {
    call: String,
    ok: bool,
}

impl Schema {
    fn tool(&self, name: &str) -> Scripted {
        (json!({"name": name, "inputSchema": self.input}), None)
    }

    fn check(&self, party: &Party, tool: &str) -> TestResult {
        let shown = party.inspect(tool)?;
        let note = shown["note"].as_str().unwrap_or_default();
        match &self.note {
            Some(words) => assert!(note.contains(words), "{note}"),
            None => assert!(!note.contains("not checked"), "{note}"),
        }
        if self.input.is_object() {
            assert_eq!(shown["inputSchema"], self.input);
        }
        let mut program = String::new();
        for Try { call, .. } in &self.calls {
            let _ = writeln!(
                program,
                "try:\n    print('ok', (await {tool}({call}))['tool'])\nexcept ToolError as e:\n    print(e.kind, e)"
            );
        }
        let printed = output(&party.run(&program));
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines.len(), self.calls.len(), "{printed}");
        for (line, Try { call, ok }) in lines.iter().zip(&self.calls) {
            let start = if *ok { "ok t" } else { "invalid_arguments " };
            assert!(line.starts_with(start), "{call}: {line}");
        }
        Ok(())
    }
}

/// What a server answers, and what a program gets of it.
#[derive(Clone, Debug, Deserialize)]
struct Answer {
    #[serde(rename = "answer")]
    members: String,
    output: Option<Value>,
    /// The `repr` of the value.
    gives: Option<String>,
    /// The kind of the `ToolError`.
    raises: Option<String>,
    #[serde(default)]
    words: Vec<String>,
    data: Option<Value>,
}

impl Answer {
    fn tool(&self, name: &str) -> Scripted {
        let mut tool = json!({"name": name});
        if let Some(schema) = &self.output {
            tool["outputSchema"] = schema.clone();
        }
        (tool, Some(self.members.clone()))
    }

    fn check(&self, party: &Party, tool: &str) -> TestResult {
        let run = party.run(&format!(
            "try:\n    print(repr(await {tool}()))\n\
             except ToolError as e:\n    print(e.kind, e.tool, e.server, e.retryable)\n    print(e)\n    emit(e.data)"
        ));
        let printed = output(&run);
        if let Some(gives) = &self.gives {
            assert_eq!(printed, format!("{gives}\n"));
            return Ok(());
        }
        let kind = self.raises.as_deref().unwrap_or_default();
        let head = format!("{kind} {tool} p False\n{tool}: ");
        assert!(printed.starts_with(&head), "{printed}");
        contains_all(&printed, &self.words);
        assert!(printed.contains("server p"), "{printed}");
        assert_eq!(run.structured["result"], json!(self.data));
        Ok(())
    }
}

/// What a program printed, without what stands beside it.
#[track_caller]
fn output(run: &Run) -> String {
    assert!(!run.is_error, "{}", run.text);
    let output = run.structured["output"].as_str().unwrap_or_default();
    let own = output.strip_suffix("beside {'x': 1}\n");
    assert!(own.is_some(), "{output}");
    own.unwrap_or_default().to_owned()
}

#[track_caller]
fn contains_all(text: &str, words: &[String]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

/// What servers list, and the names their tools get.
#[derive(Clone, Debug, Deserialize)]
struct Names {
    servers: BTreeMap<String, Vec<String>>,
    /// Callable name to server and tool.
    published: BTreeMap<String, (String, String)>,
}

fn names() -> Vec<Trial> {
    let one = |row: Row<Names>| trial("names", &row.case.clone(), move || row.rest.check());
    trials("names", |rows| rows.into_iter().map(one).collect())
}

impl Names {
    fn check(&self) -> TestResult {
        let home = Home::new(&Plan::new());
        for (turned, fresh) in [(false, false), (true, false), (true, true)] {
            // In one state folder, listed the other way round, and as if never seen before.
            let other;
            let home = if fresh {
                other = Home::new(&Plan::new());
                &other
            } else {
                &home
            };
            let daemon = self.start(home, turned);
            let got = published(home)?;
            assert_eq!(got, self.published, "turned {turned}, fresh {fresh}");
            daemon.stop();
        }
        Ok(())
    }

    fn start(&self, home: &Home, turned: bool) -> Daemon {
        let mut plan = Plan::new();
        for (index, (server, tools)) in self.servers.iter().enumerate() {
            let mut listed: Vec<Value> = Vec::new();
            let mut answers = BTreeMap::new();
            for tool in tools {
                listed.push(
                    json!({"name": tool, "description": format!("\"\"\" {tool} {{}} %s \\ \u{0}")}),
                );
                let told = json!({"structuredContent": {"who": [server, tool]}});
                answers.insert(tool.clone(), format!("\"result\":{told}"));
            }
            if turned {
                listed.reverse();
            }
            let script = json!({"tools": listed, "answers": answers}).to_string();
            let script = home.write(&format!("script{index}.json"), &script);
            plan = plan.server(server, &["--script", script.to_str().unwrap_or_default()]);
        }
        home.write_config(&plan.text());
        let daemon = home.daemon();
        for server in self.servers.keys() {
            daemon.wait_for(server, ServerState::Ready);
        }
        daemon
    }
}

/// Each callable name with the server and the tool that a call of it reaches.
fn published(home: &Home) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let mut client = home.client();
    let listed = client.call("list_callable_tools", &json!({}));
    let names: Vec<String> = serde_json::from_value(listed.structured["tools"].clone())?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    let mut program = String::from("reached = {}\n");
    for name in &names {
        assert!(
            name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
            "{name}"
        );
        let shown = client.call("inspect_tool", &json!({"tool_name": name}));
        assert!(shown.text.contains("{} %s"), "{}", shown.text);
        let _ = writeln!(program, "reached['{name}'] = (await {name}())['who']");
    }
    program.push_str("emit(reached)\n");
    let run = client.run(&program);
    assert!(!run.is_error, "{}", run.text);
    Ok(serde_json::from_value(run.structured["result"].clone())?)
}
