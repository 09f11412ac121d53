//! The tools of the scripted MCP server.

use std::path::Path;

use serde_json::{Map, Value, json};

/// The definitions, in the order they are listed.
pub(super) fn definitions() -> Vec<Value> {
    let none = || json!({"type": "object", "properties": {}});
    vec![
        tool("echo", "Gives its arguments back.", &none()),
        json!({
            "name": "add",
            "description": "Adds two integers.",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "additionalProperties": false,
            },
            "outputSchema": {
                "type": "object",
                "properties": {"sum": {"type": "integer"}},
                "required": ["sum"],
            },
        }),
        tool(
            "sleep",
            "Answers after so many milliseconds.",
            &one("ms", "integer"),
        ),
        tool(
            "fail",
            "Answers with an error result.",
            &one("message", "string"),
        ),
        tool(
            "raw_result",
            "Answers with the given result member.",
            &one("json", "string"),
        ),
        tool(
            "big",
            "Answers with so many bytes of text.",
            &one("bytes", "integer"),
        ),
        tool("env", "Shows the environment of the server.", &none()),
        tool("cwd", "Shows the working directory of the server.", &none()),
        tool("pid", "Shows the process id of the server.", &none()),
        tool("stats", "Counts what reached the server.", &none()),
        tool(
            "figures",
            "Revenue by quarter of one ticker.",
            &one("ticker", "string"),
        ),
    ]
}

/// The result of a tool that needs nothing of the server's state.
pub(super) fn call(name: &str, arguments: &Map<String, Value>, figures: Option<&Path>) -> Value {
    let text_of = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or("");
    match name {
        "echo" => structured(&Value::Object(arguments.clone())),
        "add" => {
            let part = |key| arguments.get(key).and_then(Value::as_i64).unwrap_or(0);
            structured(&json!({"sum": part("a") + part("b")}))
        }
        "fail" => json!({
            "content": [{"type": "text", "text": text_of("message")}],
            "isError": true,
        }),
        "raw_result" => serde_json::from_str(text_of("json"))
            .unwrap_or_else(|error| failed(&format!("no JSON: {error}"))),
        "big" => {
            let bytes = arguments.get("bytes").and_then(Value::as_u64).unwrap_or(0);
            text(&"x".repeat(usize::try_from(bytes).unwrap_or(0)))
        }
        // Listed by scripts only: so many rows of about a thousand bytes.
        "rows" => {
            let count = arguments.get("count").and_then(Value::as_u64).unwrap_or(0);
            let words = "äöü €\n\"".repeat(70);
            let rows: Vec<Value> = (0..count)
                .map(|n| json!({"n": n, "words": words}))
                .collect();
            json!({"content": [], "structuredContent": {"rows": rows}})
        }
        "env" => structured(&std::env::vars().map(|(k, v)| (k, Value::from(v))).collect()),
        "cwd" => text(
            &std::env::current_dir().map_or_else(|e| e.to_string(), |p| p.display().to_string()),
        ),
        "pid" => structured(&json!({"pid": std::process::id()})),
        "figures" => figures_of(text_of("ticker"), figures),
        _ => failed(&format!("no tool {name}")),
    }
}

/// A result with structured content and its text rendering.
pub(super) fn structured(value: &Value) -> Value {
    json!({
        "content": [{"type": "text", "text": value.to_string()}],
        "structuredContent": value,
    })
}

/// A result of one text block.
pub(super) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn failed(message: &str) -> Value {
    json!({"content": [{"type": "text", "text": message}], "isError": true})
}

fn figures_of(ticker: &str, file: Option<&Path>) -> Value {
    let table: Value = file
        .and_then(|path| std::fs::read(path).ok())
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    match table.get(ticker) {
        Some(list) => structured(&json!({"ticker": ticker, "revenue": list})),
        None => failed(&format!("no figures for {ticker}")),
    }
}

fn tool(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn one(parameter: &str, kind: &str) -> Value {
    json!({
        "type": "object",
        "properties": {parameter: {"type": kind}},
        "required": [parameter],
    })
}
