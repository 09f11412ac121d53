//! What the helpers inside a program answer: the same as the MCP tools, from the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use ptc_protocol::run::ToolErrorKind;
use serde_json::{Map, Value, json};

use crate::engine::Answers;
use crate::pool::frame::Helper;
use crate::registry::{Registry, ToolError, View};

/// Answers from the registry.
#[derive(Clone, Debug)]
pub(super) struct RegistryAnswers(pub(super) Registry);

impl Answers for RegistryAnswers {
    fn seen_by(&self, view: &View) -> Option<Arc<dyn Answers>> {
        Some(Arc::new(Self(self.0.seen_by(view.clone()))))
    }

    fn answer(&self, helper: Helper, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        match helper {
            Helper::ListCallableTools => Ok(json!(self.0.list().tools)),
            Helper::ServerStatus => Ok(self.0.status()),
            Helper::InspectTool => {
                let Some(name) = arguments.get("tool_name").and_then(Value::as_str) else {
                    return Err(error(
                        ToolErrorKind::InvalidArguments,
                        "inspect_tool: arguments.tool_name: required a string".to_owned(),
                        None,
                    ));
                };
                self.0.inspect(name).map_err(|unknown| {
                    error(ToolErrorKind::UnknownTool, unknown.to_string(), Some(name))
                })
            }
        }
    }

    fn signatures(&self) -> BTreeMap<String, Vec<String>> {
        self.0.signatures()
    }

    fn hint(&self, name: &str) -> Option<String> {
        self.0.hint(name)
    }
}

fn error(kind: ToolErrorKind, message: String, tool: Option<&str>) -> ToolError {
    ToolError {
        kind,
        message,
        tool: tool.map(str::to_owned),
        server: None,
        retryable: false,
        data: None,
    }
}
