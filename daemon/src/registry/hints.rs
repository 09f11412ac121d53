//! Says of a name that is no tool why that is so, and what may be meant.

use std::sync::Arc;

use ptc_protocol::status::ServerState;

use super::table::{Entry, Table, server_words};
use super::{Registry, UnknownTool, near, problem, schema};

/// Longest name that an answer repeats, in characters.
const MAX_SHOWN_NAME: usize = 200;

impl Registry {
    /// Why a name is not known in a program, and what may be meant; `None` if nothing can be said.
    ///
    /// What stands behind a dot or a hyphen is taken for a part of the name only where a tool has it.
    pub fn hint(&self, written: &str) -> Option<String> {
        let table = self.table();
        let end = written.find(['.', '-']).unwrap_or(written.len());
        let name = if table.forms(written).is_empty() {
            written.get(..end).unwrap_or(written)
        } else {
            written
        };
        let near = near_tools(&table, name);
        self.reason(&table, name, &near)
    }

    /// How a name of a tool that a client asked for itself is called in a program; `None` where none is meant.
    pub fn call_of(&self, name: &str) -> Option<String> {
        let table = self.table();
        let near = near_tools(&table, name);
        let known = table
            .entries
            .get(name)
            .filter(|entry| entry.visible)
            .map(|entry| entry.callable.clone());
        known.or_else(|| near.into_iter().next())
    }

    pub(super) fn entry(&self, table: &Table, name: &str) -> Result<Arc<Entry>, UnknownTool> {
        if let Some(entry) = table.entries.get(name).filter(|entry| entry.visible) {
            return Ok(Arc::clone(entry));
        }
        let near = near_tools(table, name);
        let hint = self
            .reason(table, name, &near)
            .unwrap_or_else(|| "list_callable_tools() gives the names".to_owned());
        let mut shown: String = name.chars().take(MAX_SHOWN_NAME).collect();
        if shown.len() < name.len() {
            shown.push_str("...");
        }
        Err(UnknownTool {
            name: shown,
            hint,
            near,
        })
    }

    fn reason(&self, table: &Table, name: &str, near: &[String]) -> Option<String> {
        if table.entries.contains_key(name) {
            return Some(format!(
                "it is blocked by {}, which only the user can change: do without it",
                self.state().policy.rule_name()
            ));
        }
        if OWN_NAMES.contains(&name) {
            return Some(
                "it is one of ptc's own functions, not a tool of a server: its description is in tools/list"
                    .to_owned(),
            );
        }
        let server = table.server_of_name(name);
        if let Some(server) = server
            && server.state.state != ServerState::Ready
        {
            let failed = server.state.state == ServerState::Failed;
            let rest = if failed {
                "tools of other servers work"
            } else {
                "its tools come back with it, those of other servers work"
            };
            return Some(format!("{}; {rest}", server_words(server)));
        }
        let forms = table.forms(name);
        let meant = if forms.is_empty() {
            near.to_vec()
        } else {
            forms
        };
        let meant = (!meant.is_empty()).then(|| format!("did you mean {}?", meant.join(" or ")));
        // The server's part of a name is the first to be told wrong.
        let stranger = server.is_none().then(|| server_part(name)).flatten();
        let list = || "list_callable_tools() gives the names".to_owned();
        match (stranger, meant) {
            (Some(stranger), meant) => Some(format!(
                "there is no server {}; {}",
                schema::cut(stranger, problem::MAX_SHOWN_CHARS),
                meant.unwrap_or_else(list)
            )),
            (None, Some(meant)) => Some(meant),
            (None, None) => name.starts_with("mcp__").then(list),
        }
    }
}

/// The functions of ptc itself, which a model may take for tools of a server.
const OWN_NAMES: [&str; 4] = [
    "execute_program",
    "inspect_tool",
    "list_callable_tools",
    "server_status",
];

fn near_tools(table: &Table, name: &str) -> Vec<String> {
    near::near_tools(name, table.visible().map(|entry| entry.callable.as_str()))
}

/// The part of a name with the prefix of tools that is its server's.
fn server_part(name: &str) -> Option<&str> {
    let (server, _) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty()).then_some(server)
}
