//! Tools and answers that a test gives the scripted MCP server in a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tools;

/// What the server lists and answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    /// The tools it lists, as they stand.
    pub(super) tools: Vec<Value>,
    /// Tool to the text of its answer's members, which need not be JSON.
    #[serde(default)]
    answers: BTreeMap<String, String>,
}

impl Script {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).context("it is no script")
    }

    /// The line that answers a call.
    pub(super) fn answer(&self, id: &Value, tool: &str, arguments: &Map<String, Value>) -> String {
        if let Some(members) = self.answers.get(tool) {
            return format!(r#"{{"jsonrpc":"2.0","id":{id},{members}}}"#);
        }
        let echo = tools::structured(&json!({"tool": tool, "arguments": arguments}));
        json!({"jsonrpc": "2.0", "id": id, "result": echo}).to_string()
    }
}
