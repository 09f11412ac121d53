//! `ptcctl inspect`: shows one tool as a program would call it.

use clap::Args;
use ptc_protocol::route;
use ptc_protocol::status::SCHEMA;
use serde_json::{Map, Value, json};

use super::output::{print, print_json};
use super::words::plain;
use super::{Context, Exit, request, visible};
use crate::connect::ConnectError;

/// Status of an answer about a name that is not known.
const NOT_FOUND: u16 = 404;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tool's callable name, as `ptcctl tools` gives it
    tool: String,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let tool = match tool(context, &arguments.tool).await? {
        Ok(tool) => tool,
        Err(text) => return Ok(context.output.failure(&text, Exit::Failure)),
    };
    if context.output.json {
        let mut object = Map::from_iter([("schema".to_owned(), json!(SCHEMA))]);
        object.extend(tool.as_object().cloned().unwrap_or_default());
        print_json(&object.into())?;
        return Ok(Exit::Ok);
    }
    print(&text(&tool))?;
    for key in ["inputSchema", "outputSchema"] {
        if let Some(schema) = tool.get(key).filter(|schema| !schema.is_null()) {
            print(&format!("\n{key}: {schema:#}"))?;
        }
    }
    Ok(Exit::Ok)
}

/// What the daemon knows of a tool, or why it knows nothing.
pub(super) async fn tool(context: &Context, name: &str) -> anyhow::Result<Result<Value, String>> {
    let path = request(route::TOOL, &[("name", name)])?;
    match context.connect().await?.get(&path).await {
        Ok(tool) => Ok(Ok(tool)),
        Err(ConnectError::Status {
            status: NOT_FOUND,
            body,
        }) => Ok(Err(plain(&body))),
        Err(error) => Err(error.into()),
    }
}

/// Name, description, parameters and note, for a person to read.
fn text(tool: &Value) -> String {
    let part = |key: &str| tool.get(key).and_then(Value::as_str).map(lines);
    let mut text = part("name").unwrap_or_default();
    for key in ["description", "note"] {
        if let Some(part) = part(key).filter(|part| !part.is_empty()) {
            text = format!("{text}\n{part}");
        }
    }
    if let Some(effect) = part("effect") {
        text = format!("{text}\neffect: {effect}");
    }
    let schema = tool.get("inputSchema");
    let required: Vec<&str> = schema
        .and_then(|schema| schema.get("required"))
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (name, property) in properties(tool).into_iter().flatten() {
        let kind = kind(property);
        let need = if required.contains(&name.as_str()) {
            "required"
        } else {
            "optional"
        };
        let said = property.get("description").and_then(Value::as_str);
        let said = said.map_or_else(String::new, |said| format!(": {}", plain(said)));
        text = format!("{text}\n  {} ({kind}, {need}){said}", plain(name));
    }
    text
}

/// The parameters of a tool, by name.
pub(super) fn properties(tool: &Value) -> Option<&Map<String, Value>> {
    tool.get("inputSchema")?.get("properties")?.as_object()
}

/// What a parameter takes, in the schema's words.
fn kind(property: &Value) -> String {
    match property.get("type") {
        Some(Value::String(kind)) => plain(kind),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            plain(&kinds.join(" or "))
        }
        _ => "any".to_owned(),
    }
}

/// A server's text with its lines kept and nothing in it that steers a terminal.
fn lines(text: &str) -> String {
    let lines = text.lines().map(|line| {
        line.chars()
            .map(|c| {
                if c == '\t' || visible::steers(c) {
                    '\u{fffd}'
                } else {
                    c
                }
            })
            .collect::<String>()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_told_with_its_parameters_and_nothing_steers_the_terminal() {
        let tool = json!({
            "name": "mcp__a__b", "description": "First.\n\u{1b}[2JSecond.", "note": "Set aside.", "effect": "write",
            "inputSchema": {
                "properties": {
                    "query": {"type": "string", "description": "What\nto find"},
                    "limit": {"type": ["integer", "null"]},
                    "any": true,
                },
                "required": ["query"],
            },
        });
        let want = "mcp__a__b\nFirst.\n\u{fffd}[2JSecond.\nSet aside.\neffect: write\n  query (string, required): What to find\n  \
                    limit (integer or null, optional)\n  any (any, optional)";
        assert_eq!(text(&tool), want);
        assert_eq!(text(&json!({"name": "mcp__a__b"})), "mcp__a__b");
    }
}
