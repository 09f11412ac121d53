//! Reads the whole list of a server's tools.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use serde_json::{Map, Value};

use super::param_headers::Annotations;
use super::reply::Reply;
use super::result::kind_of;

/// Most pages that are followed.
const MAX_PAGES: usize = 1000;
/// Most tools of one server.
const MAX_TOOLS: usize = 10_000;
/// Most bytes all pages together may have.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;
/// Longest name of a tool, in bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Most notes that one list gives rise to.
const MAX_NOTES: usize = 20;
/// JSON-RPC: the method is not there.
const METHOD_NOT_FOUND: i64 = -32601;

/// A tool as its server describes it; nothing in it has been changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// Name on the wire.
    pub name: String,
    /// Name for people.
    pub title: Option<String>,
    /// What it does.
    pub description: Option<String>,
    /// Schema of its arguments; `None` where the server gave nothing usable.
    pub input_schema: Option<Value>,
    /// Schema of its structured content.
    pub output_schema: Option<Value>,
    /// Hints of the server about the tool.
    pub annotations: Option<Value>,
}

/// The tools of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Listing {
    pub(super) tools: Vec<ToolDefinition>,
    /// What a person should know about the list.
    pub(super) notes: Vec<String>,
    /// Whether annotations that repeat arguments in headers have a meaning.
    repeated: bool,
}

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListError {
    #[error("its answer to tools/list came not within {} s", limit.as_secs_f32())]
    Timeout { limit: Duration },
    #[error("it answered tools/list with error {code}: {message}")]
    Refused { code: i64, message: String },
    #[error("its answer to tools/list cannot be taken: {fault}")]
    Fault { fault: String },
    #[error("it does not take tools/list: {how}")]
    Turned { how: String },
    #[error("the connection ended before its tools were known")]
    Lost,
}

/// Asks for all pages within one limit. With `repeated`, arguments may have to be repeated in headers.
pub(super) async fn list(
    peer: &Peer<RoleClient>,
    limit: Duration,
    repeated: bool,
) -> Result<Listing, ListError> {
    let deadline = tokio::time::Instant::now() + limit;
    let mut listing = Listing {
        repeated,
        ..Listing::default()
    };
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut total = 0usize;
    for _ in 0..MAX_PAGES {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let (value, bytes) = match page(peer, cursor.clone(), left, limit).await {
            Ok(page) => page,
            Err(ListError::Refused {
                code: METHOD_NOT_FOUND,
                ..
            }) if cursor.is_none() => {
                listing.note("it offers no tools".to_owned());
                return Ok(listing);
            }
            Err(error) => return Err(error),
        };
        total = total.saturating_add(bytes);
        let before = (listing.tools.len(), listing.notes.len());
        let next = listing.take_page(value)?;
        if cursor.as_deref() == Some("") && listing.tools.len() == before.0 {
            // The server meant "no more" and has sent the same page again.
            listing.notes.truncate(before.1);
        }
        if total > MAX_LIST_BYTES || listing.tools.len() >= MAX_TOOLS {
            listing.note(format!(
                "its list of tools is too long; {} are known",
                listing.tools.len()
            ));
            return Ok(listing);
        }
        match next {
            None => return Ok(listing),
            // An empty cursor is lawful, and some servers mean "no more" by it.
            Some(next) if next.is_empty() && seen.contains(&next) => return Ok(listing),
            Some(next) if !seen.insert(next.clone()) => {
                listing.note("its list of tools repeats a cursor".to_owned());
                return Ok(listing);
            }
            Some(next) => cursor = Some(next),
        }
    }
    listing.note(format!("its list of tools has more than {MAX_PAGES} pages"));
    Ok(listing)
}

async fn page(
    peer: &Peer<RoleClient>,
    cursor: Option<String>,
    left: Duration,
    limit: Duration,
) -> Result<(Value, usize), ListError> {
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
    let options = PeerRequestOptions::with_timeout(left);
    let sent = peer.send_request_with_option(request, options).await;
    let answer = match sent {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    let reply = match answer {
        Ok(ServerResult::CustomResult(wrapped)) => Reply::unwrap(wrapped.0),
        Ok(_) => Reply::Fault("it is no answer to this request".to_owned()),
        Err(ServiceError::Timeout { .. }) => return Err(ListError::Timeout { limit }),
        Err(_) => return Err(ListError::Lost),
    };
    match reply {
        Reply::Result { value, bytes } => Ok((value, bytes)),
        Reply::Error { code, message, .. } => Err(ListError::Refused { code, message }),
        Reply::Turned { how, .. } => Err(ListError::Turned { how }),
        Reply::Lost { how } => Err(ListError::Fault { fault: how }),
        Reply::Fault(fault) => Err(ListError::Fault { fault }),
        Reply::TooLong => Err(ListError::Fault {
            fault: "it is too long".to_owned(),
        }),
    }
}

impl Listing {
    /// Reads a list that was kept, by the rules for lists of servers.
    pub(super) fn of_kept(page: Value) -> Option<Vec<ToolDefinition>> {
        let mut listing = Self::default();
        let tools = page.get("tools").is_some_and(Value::is_array);
        (tools && listing.take_page(page).is_ok()).then_some(listing.tools)
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    /// Takes in one page and gives its cursor.
    fn take_page(&mut self, page: Value) -> Result<Option<String>, ListError> {
        let Value::Object(mut page) = page else {
            return Err(ListError::Fault {
                fault: format!("it is {}, not an object", kind_of(&page)),
            });
        };
        match page.remove("tools") {
            None | Some(Value::Null) => self.note("it sent no list of tools".to_owned()),
            Some(Value::Array(tools)) => {
                for tool in tools {
                    self.take_tool(tool);
                }
            }
            Some(other) => {
                return Err(ListError::Fault {
                    fault: format!("its tools are {}, not a list", kind_of(&other)),
                });
            }
        }
        Ok(match page.remove("nextCursor") {
            Some(Value::String(cursor)) => Some(cursor),
            _ => None,
        })
    }

    fn take_tool(&mut self, tool: Value) {
        if self.tools.len() >= MAX_TOOLS {
            return;
        }
        let Value::Object(mut tool) = tool else {
            return self.note(format!(
                "one of its tools is left out: it is {}, not an object",
                kind_of(&tool)
            ));
        };
        let name = match tool.remove("name") {
            Some(Value::String(name)) if !name.is_empty() => name,
            _ => return self.note("one of its tools is left out: it has no name".to_owned()),
        };
        if name.len() > MAX_NAME_BYTES {
            return self.note(format!(
                "one of its tools is left out: its name has {} bytes",
                name.len()
            ));
        }
        if self.tools.iter().any(|known| known.name == name) {
            return self.note(format!(
                "the tool {name:?} is listed twice; the first one counts"
            ));
        }
        let input_schema = self.schema(&mut tool, "inputSchema", &name);
        let output_schema = self.schema(&mut tool, "outputSchema", &name);
        if self.repeated
            && let Some(schema) = &input_schema
            && let Err(fault) = Annotations::of(schema)
        {
            return self.note(format!("the tool {name:?} is left out: {fault}"));
        }
        self.tools.push(ToolDefinition {
            title: text(&mut tool, "title"),
            description: text(&mut tool, "description"),
            input_schema,
            output_schema,
            annotations: tool.remove("annotations").filter(Value::is_object),
            name,
        });
    }

    fn schema(&mut self, tool: &mut Map<String, Value>, key: &str, name: &str) -> Option<Value> {
        match tool.remove(key) {
            None | Some(Value::Null) => None,
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => Some(schema),
            Some(other) => {
                self.note(format!(
                    "the {key} of the tool {name:?} is not used: it is {}, not an object",
                    kind_of(&other)
                ));
                None
            }
        }
    }
}

fn text(tool: &mut Map<String, Value>, key: &str) -> Option<String> {
    match tool.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn take(page: Value) -> (Listing, Option<String>) {
        let mut listing = Listing::default();
        let cursor = listing.take_page(page).unwrap();
        (listing, cursor)
    }

    #[test]
    fn a_malformed_tool_is_left_out_and_costs_no_other() {
        let (listing, cursor) = take(json!({
            "tools": [
                {"name": "good", "inputSchema": {"type": "object"}, "description": "d"},
                {"description": "no name"},
                "text",
                {"name": ""},
                {"name": "x".repeat(2000)},
                {"name": "n1", "inputSchema": null},
                {"name": "n2", "inputSchema": [], "outputSchema": "object", "description": 7},
            ],
            "nextCursor": "c",
        }));
        let names: Vec<&str> = listing
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(names, ["good", "n1", "n2"]);
        assert_eq!(listing.notes.len(), 6, "{:?}", listing.notes);
        assert_eq!(cursor.as_deref(), Some("c"));
        assert_eq!(
            listing.tools[0],
            ToolDefinition {
                name: "good".into(),
                title: None,
                description: Some("d".into()),
                input_schema: Some(json!({"type": "object"})),
                output_schema: None,
                annotations: None,
            }
        );
    }

    #[test]
    fn of_two_tools_with_one_name_the_first_counts() {
        let (listing, _) = take(json!({"tools": [
            {"name": "echo", "description": "first"},
            {"name": "echo", "description": "second"},
            {"name": "other"},
        ]}));
        assert_eq!(listing.tools.len(), 2);
        assert_eq!(listing.tools[0].description.as_deref(), Some("first"));
        assert_eq!(
            listing.notes,
            ["the tool \"echo\" is listed twice; the first one counts"]
        );
    }

    #[test]
    fn no_list_is_an_empty_one_with_a_note_and_another_shape_is_a_fault() {
        let (listing, cursor) = take(json!({"tools": null, "nextCursor": 7}));
        assert_eq!((listing.tools.len(), cursor), (0, None));
        assert_eq!(listing.notes, ["it sent no list of tools"]);
        for odd in [json!([]), json!({"tools": "x"}), Value::Null] {
            let error = Listing::default().take_page(odd).unwrap_err();
            assert!(matches!(error, ListError::Fault { .. }), "{error}");
        }
    }
}
