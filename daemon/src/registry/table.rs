//! Joins what servers list with the names and the policy: the tools there are.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ptc_protocol::status::{Level, ServerState};
use serde_json::Value;

use super::problem::MAX_SHOWN_CHARS;
use super::schema::{Schema, cut};
use crate::downstream::{Server, ToolDefinition};
use crate::names::{self, Names};
use crate::policy::{Effect, Policy, ToolFacts};

/// Most parameters whose names are given to a program.
const MAX_PARAMETERS: usize = 256;
/// Most tools with a suffix that are named for a name without one.
const MAX_FORMS: usize = 3;
/// Before a cause that no program and no model can do anything about.
const USERS: &str = "only the user can mend this: ";

/// One tool under its callable name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) callable: String,
    pub(super) plain: String,
    pub(super) server: String,
    pub(super) definition: ToolDefinition,
    /// Whether policy lets it be seen.
    pub(super) visible: bool,
    /// What it does to the world.
    pub(super) effect: Effect,
    /// The names of the parameters, in the schema's order.
    pub(super) parameters: Vec<String>,
    input: OnceLock<Option<Schema>>,
    output: OnceLock<Option<Schema>>,
}

impl Entry {
    /// The input schema, compiled at its first use.
    pub(super) fn input(&self) -> Option<&Schema> {
        let compile = || {
            let schema = self.definition.input_schema.as_ref()?;
            Some(Schema::compile(schema, "input schema"))
        };
        self.input.get_or_init(compile).as_ref()
    }

    /// The output schema, compiled at its first use.
    pub(super) fn output(&self) -> Option<&Schema> {
        let compile = || {
            let schema = self.definition.output_schema.as_ref()?;
            Some(Schema::compile(schema, "output schema"))
        };
        self.output.get_or_init(compile).as_ref()
    }
}

/// Everything that is known at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) entries: BTreeMap<String, Arc<Entry>>,
    pub(super) servers: Vec<Server>,
}

impl Table {
    /// Gives names to tools not seen before and puts the table together.
    /// Entries that have not changed are taken over, with their compiled
    /// schemas. Returns whether the names are to be written down.
    pub(super) fn build(
        before: &Self,
        servers: Vec<Server>,
        names: &mut Names,
        policy: &Policy,
    ) -> (Self, bool) {
        let seen = servers.iter().flat_map(|server| {
            let tools = server.tools.iter();
            tools.map(|tool| (server.name.as_str(), tool.name.as_str()))
        });
        let changed = names.assign(seen);
        let mut entries = BTreeMap::new();
        for server in &servers {
            if server.state.state == ServerState::Disabled {
                continue;
            }
            let same_list = before
                .servers
                .iter()
                .any(|old| old.name == server.name && Arc::ptr_eq(&old.tools, &server.tools));
            for tool in server.tools.iter() {
                let Some(callable) = names.callable(&server.name, &tool.name) else {
                    continue;
                };
                let kept = before.entries.get(callable).filter(|old| {
                    same_list && old.server == server.name && old.definition.name == tool.name
                });
                let entry = kept
                    .cloned()
                    .unwrap_or_else(|| Arc::new(entry(callable, &server.name, tool, policy)));
                entries.insert(callable.to_owned(), entry);
            }
        }
        (Self { entries, servers }, changed)
    }

    /// The tools that exist for programs, whether or not their servers are there now.
    pub(super) fn visible(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values().filter(|entry| entry.visible)
    }

    /// What a server is doing.
    pub(super) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The tools that have a name with a suffix in place of this one, each with the server's own name of it.
    pub(super) fn forms(&self, name: &str) -> Vec<String> {
        let name = name.replace(['.', '-'], "_");
        self.visible()
            .filter(|entry| entry.plain == name && entry.callable != name)
            .take(MAX_FORMS)
            .map(|entry| {
                let own = cut(&entry.definition.name, MAX_SHOWN_CHARS).replace(['\n', '\r'], " ");
                format!("{} ({own})", entry.callable)
            })
            .collect()
    }

    pub(super) fn is_ready(&self, server: &str) -> bool {
        self.server(server)
            .is_some_and(|server| server.state.state == ServerState::Ready)
    }

    /// The server whose tools a name would belong to, by its beginning.
    pub(super) fn server_of_name(&self, name: &str) -> Option<&Server> {
        // The longest that fits: server names may begin with each other.
        self.servers
            .iter()
            .filter(|server| name.starts_with(&names::plain(&server.name, "")))
            .max_by_key(|server| server.name.len())
    }
}

pub(super) fn entry(callable: &str, server: &str, tool: &ToolDefinition, policy: &Policy) -> Entry {
    let plain = names::plain(server, &tool.name);
    Entry {
        visible: policy.visible(callable, &plain),
        effect: policy.effect(&facts(callable, &plain, server, tool)),
        callable: callable.to_owned(),
        plain,
        server: server.to_owned(),
        definition: tool.clone(),
        parameters: parameters(tool.input_schema.as_ref()),
        input: OnceLock::new(),
        output: OnceLock::new(),
    }
}

/// The facts about a tool that rules may look at.
pub(super) fn facts<'a>(
    callable: &'a str,
    plain: &'a str,
    server: &'a str,
    tool: &'a ToolDefinition,
) -> ToolFacts<'a> {
    ToolFacts {
        callable,
        plain,
        server,
        tool: &tool.name,
        description: tool.description.as_deref(),
        annotations: tool.annotations.as_ref(),
        input_schema: tool.input_schema.as_ref(),
        output_schema: tool.output_schema.as_ref(),
    }
}

fn parameters(schema: Option<&Value>) -> Vec<String> {
    schema
        .and_then(|schema| schema.get("properties"))
        .and_then(Value::as_object)
        .map(|properties| properties.keys().take(MAX_PARAMETERS).cloned().collect())
        .unwrap_or_default()
}

/// A server's state and its cause, in words.
pub(super) fn state_words(server: &Server) -> String {
    let health = &server.state.health;
    let state = &health.state;
    match &health.detail {
        // A server that has failed is not tried again by itself.
        Some(detail) if health.level == Level::Blocked => {
            format!("{state}: {USERS}{detail}")
        }
        Some(detail) => format!("{state}: {detail}"),
        None => state.clone(),
    }
}

/// A server and what it is doing, as part of a sentence.
pub(super) fn server_words(server: &Server) -> String {
    let verb = match server.state.state {
        ServerState::Failed => "has",
        _ => "is",
    };
    format!("server {} {verb} {}", server.name, state_words(server))
}
