//! `ptcctl call`: calls one tool, as a program of one line would.

use std::collections::BTreeSet;
use std::io::{self, Read as _};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::{Map, Value};

use super::mcp::Session;
use super::output::{print, print_json, say_plainly};
use super::run::{as_json, ended, structured, text_of};
use super::run_text::Parts;
use super::{Context, Exit, Usage, inspect, large, unique, visible};

/// Longest arguments, in bytes: the daemon sends no longer ones.
const MAX_ARGUMENT_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tool's callable name, as `ptcctl tools` gives it
    tool: String,
    /// Arguments: `name=value`, a text where the tool takes text, else JSON where it reads as JSON; `name:=JSON`
    #[arg(value_name = "NAME=VALUE")]
    pairs: Vec<String>,
    /// All arguments as one JSON object, or - to read it from stdin; pairs are added to it
    #[arg(long = "arguments", value_name = "JSON", allow_hyphen_values = true)]
    whole: Option<String>,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let output = context.output;
    // What cannot be meant is said whether a daemon is there or not.
    let given = given(&arguments.pairs, whole(arguments)?.as_deref())
        .map_err(|error| Usage::from(&error))?;
    let tool = match inspect::tool(context, &arguments.tool).await? {
        Ok(tool) => tool,
        Err(text) => return Ok(output.failure(&text, Exit::Failure)),
    };
    let given = fitted(given, &tool).map_err(|error| Usage::from(&error))?;
    let code = program(&arguments.tool, &given)?;
    let Some(answer) = Session::open(context).await?.execute(&code, None).await? else {
        return Ok(output.failure("cancelled", Exit::Failure));
    };
    let structured = structured(&answer);
    if large::is_in(&answer) {
        return large::show(context, &arguments.tool, &answer).await;
    }
    if output.json {
        print_json(&as_json(&answer, structured))?;
        return ended(context, &answer).await;
    }
    let parts = Parts::of(&text_of(&answer), structured);
    let result = structured.and_then(|structured| structured.get("result"));
    if answer.get("isError") == Some(&Value::Bool(true)) {
        say_plainly(&parts.about(true));
    } else {
        print(&result.map_or(parts.output, shown))?;
    }
    ended(context, &answer).await
}

/// A result for a person or a pipe to read: a text as it is, anything else as JSON.
pub(super) fn shown(result: &Value) -> String {
    match result {
        Value::String(text) => visible::text(text),
        value => visible::json(&format!("{value:#}")),
    }
}

/// The program that makes the call. The daemon knows the name, so it is an identifier; the arguments are data in a string.
/// A result that is too large to be emitted is printed, so that the run's record has it.
fn program(tool: &str, arguments: &Map<String, Value>) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    ensure!(
        tool.chars().all(plain) && tool.starts_with("mcp__"),
        "{tool:?} is no callable name"
    );
    // A JSON string is a Python string literal as well.
    let literal = serde_json::to_string(&serde_json::to_string(arguments)?)?;
    Ok(format!(
        "import json\n\
         value = await {tool}(**json.loads({literal}))\n\
         try:\n    emit(value)\n\
         except ValueError:\n    print(json.dumps(value))\n"
    ))
}

/// One argument as it was written.
pub(super) enum Given {
    /// JSON, as it stands.
    Value(Value),
    /// What the tool's schema says what it is.
    Text(String),
}

/// The text of `--arguments`, from stdin where it says so.
fn whole(arguments: &Arguments) -> anyhow::Result<Option<String>> {
    match arguments.whole.as_deref() {
        Some("-") => read_stdin().map(Some),
        whole => Ok(whole.map(str::to_owned)),
    }
}

/// What was written, in that order; no name stands twice.
pub(super) fn given(pairs: &[String], whole: Option<&str>) -> anyhow::Result<Vec<(String, Given)>> {
    let whole = whole.map_or_else(|| Ok(Map::new()), object)?;
    let mut names: BTreeSet<String> = whole.keys().cloned().collect();
    let mut given: Vec<(String, Given)> = whole
        .into_iter()
        .map(|(name, value)| (name, Given::Value(value)))
        .collect();
    for pair in pairs {
        let Some((name, text)) = pair.split_once('=') else {
            bail!("{pair:?} is no argument: write name=value");
        };
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => {
                let value = unique::value(text);
                let value = value.with_context(|| format!("{pair:?}: no JSON that can be sent"))?;
                (name, Given::Value(value))
            }
            None => (name, Given::Text(text.to_owned())),
        };
        ensure!(
            names.insert(name.to_owned()),
            "the argument {name:?} is given twice"
        );
        given.push((name.to_owned(), value));
    }
    Ok(given)
}

/// The arguments as the tool takes them.
pub(super) fn fitted(
    given: Vec<(String, Given)>,
    tool: &Value,
) -> anyhow::Result<Map<String, Value>> {
    let fit = |(name, given): (String, Given)| {
        let value = match given {
            Given::Value(value) => value,
            Given::Text(text) => value_of(&text, &name, tool)?,
        };
        Ok((name, value))
    };
    given.into_iter().map(fit).collect()
}

/// A value as the tool takes it: text stays text where the schema says string.
fn value_of(text: &str, name: &str, tool: &Value) -> anyhow::Result<Value> {
    let property = inspect::properties(tool).and_then(|all| all.get(name));
    let takes_text = property.and_then(|property| property.get("type")) == Some(&"string".into());
    let read: Option<Value> = if takes_text {
        None
    } else {
        serde_json::from_str(text).ok()
    };
    match read {
        // What has a key twice is no text that was meant as such.
        Some(Value::Object(_) | Value::Array(_)) => {
            unique::value(text).with_context(|| format!("{name}: no JSON that can be sent"))
        }
        Some(value) => Ok(value),
        None => Ok(text.into()),
    }
}

fn object(text: &str) -> anyhow::Result<Map<String, Value>> {
    match unique::value(text).context("--arguments: no JSON that can be sent")? {
        Value::Object(object) => Ok(object),
        _ => bail!("--arguments: required a JSON object"),
    }
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    let mut stdin = io::stdin().lock().take(MAX_ARGUMENT_BYTES + 1);
    stdin
        .read_to_string(&mut text)
        .context("cannot read stdin")?;
    ensure!(
        text.len() as u64 <= MAX_ARGUMENT_BYTES,
        "the arguments have more than {MAX_ARGUMENT_BYTES} bytes"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn collected(pairs: &[&str], whole: Option<&str>) -> anyhow::Result<Value> {
        let tool = json!({"inputSchema": {"properties": {
            "zip": {"type": "string"}, "limit": {"type": "integer"}, "either": {"type": ["string", "integer"]},
        }}});
        let arguments = Arguments {
            tool: "mcp__a__b".to_owned(),
            pairs: pairs.iter().map(|&pair| pair.to_owned()).collect(),
            whole: whole.map(str::to_owned),
        };
        let written = given(&arguments.pairs, arguments.whole.as_deref())?;
        fitted(written, &tool).map(Value::Object)
    }

    #[test]
    fn a_value_is_what_the_schema_takes() {
        let pairs = [
            "zip=00123",
            "limit=1267650600228229401496703205376",
            "either=x=y",
            "other={\"a\":[1]}",
            "z:=\"5\"",
            "=e",
        ];
        let text = "{\"zip\":\"00123\",\"limit\":1267650600228229401496703205376,\"either\":\"x=y\",\
                    \"other\":{\"a\":[1]},\"z\":\"5\",\"\":\"e\"}";
        assert_eq!(collected(&pairs, None).unwrap().to_string(), text);
        let mixed = collected(&["limit=3"], Some("{\"zip\":\"1\"}")).unwrap();
        assert_eq!(mixed, json!({"zip": "1", "limit": 3}));
    }

    #[test]
    fn what_cannot_be_an_argument_is_named() {
        for (pairs, whole, word) in [
            (&["zip"][..], None, "name=value"),
            (&["a=1", "a=2"], None, "given twice"),
            (&["a:=x"], None, "no JSON"),
            (&[], Some("[]"), "JSON object"),
            (&["a:={\"k\":1,\"k\":2}"], None, "\"k\" stands twice"),
            (&["a=[{\"k\":1,\"\\u006b\":2}]"], None, "\"k\" stands twice"),
            (&[], Some("{\"a\":1,\"a\":2}"), "\"a\" stands twice"),
        ] {
            let error = format!("{:#}", collected(pairs, whole).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn arguments_are_data_in_the_program() {
        let hostile = json!({"a": "\"))\nimport os\\ \u{2028}é", "b": "{}"});
        let program = program("mcp__a__b", hostile.as_object().unwrap()).unwrap();
        assert_eq!(program.lines().count(), 6);
        assert!(super::program("x); import os", &Map::new()).is_err());
    }
}
