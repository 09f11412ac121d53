//! Knows what can be called now, and calls it.

pub mod door;
mod error;
mod hints;
mod inspection;
mod integers;
mod modest;
mod names_file;
mod near;
mod prepare;
mod problem;
mod recorded;
mod reply;
mod schema;
mod table;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptc_protocol::status::ServerState;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

pub use error::{ToolError, UnknownTool};
pub use prepare::{MAX_ARGUMENT_BYTES, PreparedCall};
pub use recorded::{recorded, same_data};
pub use reply::{ToolReply, exact_value, unambiguous_value};

pub use crate::downstream::View;

use crate::downstream::{Downstream, Server};
use crate::names::{self, Names};
use crate::policy::{Effect, Policy, ToolFacts};
use inspection::notes;
use names_file::NamesFile;
use table::{Table, state_words};
use tables::Tables;

/// How soon names that could not be written are written again.
const SAVED_AGAIN: Duration = Duration::from_secs(5);
/// Results over this size are read off the runtime's own threads, in bytes.
const BIG_BYTES: usize = 256 * 1024;

/// The tools of all servers under their callable names. Cheap to clone; all clones are one,
/// but for whose eyes they look with.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
    /// The client that looks; the operator where there is none.
    view: Option<View>,
}

#[derive(Debug)]
struct Inner {
    downstream: Downstream,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    policy: Policy,
    check_arguments: bool,
    names: Names,
    file: NamesFile,
    tables: Tables,
}

/// What can be called now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted callable names.
    pub tools: Vec<String>,
    /// Servers whose tools are missing, and why.
    pub unavailable: BTreeMap<String, String>,
}

impl Registry {
    /// `state_file` keeps the names; it is read here and written when tools appear.
    pub fn new(
        downstream: Downstream,
        policy: Policy,
        state_file: PathBuf,
        check_arguments: bool,
    ) -> Self {
        let (file, names) = NamesFile::open(state_file);
        Self {
            inner: Arc::new(Inner {
                downstream,
                state: Mutex::new(State {
                    policy,
                    check_arguments,
                    names,
                    file,
                    tables: Tables::default(),
                }),
            }),
            view: None,
        }
    }

    /// The same registry as one client sees it.
    #[must_use]
    pub fn seen_by(&self, view: View) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            view: Some(view),
        }
    }

    /// Takes over the rules of another configuration.
    pub fn reload(&self, policy: Policy, check_arguments: bool) {
        let mut state = self.state();
        state.policy = policy;
        state.check_arguments = check_arguments;
        // Entries carry what policy said of them.
        state.tables = Tables::default();
    }

    /// Forgets all names, so that tools get them anew.
    pub fn reset_names(&self) {
        let mut state = self.state();
        state.names = Names::default();
        state.file.reset();
        let State { names, file, .. } = &mut *state;
        file.save(names);
        state.tables = Tables::default();
    }

    /// Writes down names that could not be written when they were given; to be called before the end.
    pub fn keep_names(&self) {
        let mut state = self.state();
        let State { names, file, .. } = &mut *state;
        file.save_again(names, Duration::ZERO);
    }

    /// Waits while the server that a name would belong to has not yet said what tools it has, at most `limit`.
    pub async fn expect(&self, name: &str, limit: Duration) {
        self.look();
        let mut changed = self.inner.downstream.changed();
        let expected = async {
            loop {
                changed.mark_unchanged();
                let table = self.table();
                let coming = !table.entries.contains_key(name)
                    && table.server_of_name(name).is_some_and(|server| {
                        let state = server.state.state;
                        let starting =
                            matches!(state, ServerState::Connecting | ServerState::Reconnecting);
                        starting && server.tools.is_empty()
                    });
                if !coming || changed.changed().await.is_err() {
                    return;
                }
            }
        };
        // At the limit the caller goes on with what there is.
        let _ = tokio::time::timeout(limit, expected).await;
    }

    /// What a person should know about the names of tools.
    pub fn notes(&self) -> Vec<String> {
        self.state().file.notes.clone()
    }

    /// What can be called now, and which servers are missing.
    pub fn list(&self) -> Listing {
        let table = self.table();
        let barred = self.all_barred(&table);
        let tools = table
            .visible()
            .filter(|entry| table.is_ready(&entry.server) && !barred.contains_key(&entry.server))
            .map(|entry| entry.callable.clone())
            .collect();
        let missing = table.servers.iter().filter(|server| {
            let state = server.state.state;
            let there = state == ServerState::Ready && !barred.contains_key(&server.name);
            !there && state != ServerState::Disabled
        });
        let unavailable = missing
            .map(|server| {
                let why = match barred.get(&server.name) {
                    Some(why) => format!("unavailable: it {why}"),
                    None => state_words(server),
                };
                (server.name.clone(), why)
            })
            .collect();
        Listing { tools, unavailable }
    }

    /// What each tool that exists for programs does to the world.
    pub fn effects(&self) -> BTreeMap<String, Effect> {
        self.table()
            .visible()
            .map(|entry| (entry.callable.clone(), entry.effect))
            .collect()
    }

    /// Looks at all tools that exist for programs, whether or not their servers are there now.
    pub fn with_tools<T>(&self, look: impl FnOnce(&[ToolFacts<'_>]) -> T) -> T {
        let table = self.table();
        let all: Vec<ToolFacts<'_>> = table
            .visible()
            .map(|entry| {
                table::facts(
                    &entry.callable,
                    &entry.plain,
                    &entry.server,
                    &entry.definition,
                )
            })
            .collect();
        look(&all)
    }

    /// How many tools of each server exist for programs.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let state = self.state();
        let servers = self.inner.downstream.servers();
        servers
            .into_iter()
            .map(|server| {
                // A look gives no tool its name: names are given to what is seen together.
                let tools = server.tools.iter().filter(|tool| {
                    let plain = names::plain(&server.name, &tool.name);
                    let callable = state.names.callable(&server.name, &tool.name);
                    state.policy.visible(callable.unwrap_or(&plain), &plain)
                });
                (server.name.clone(), tools.count())
            })
            .collect()
    }

    /// Every tool a program may name, with its parameters in the schema's order.
    ///
    /// Tools of a server that was lost are among them: a call waits for it.
    pub fn signatures(&self) -> BTreeMap<String, Vec<String>> {
        self.table()
            .visible()
            .map(|entry| (entry.callable.clone(), entry.parameters.clone()))
            .collect()
    }

    /// What is known of one tool: name, description, inputSchema, outputSchema or null, effect, and a note.
    ///
    /// # Errors
    /// The name is not known, or hidden by policy.
    pub fn inspect(&self, name: &str) -> Result<Value, UnknownTool> {
        let table = self.table();
        let entry = self.entry(&table, name)?;
        let definition = &entry.definition;
        let mut shown = Map::new();
        shown.insert("name".to_owned(), json!(entry.callable));
        shown.insert("description".to_owned(), json!(definition.description));
        let input = definition.input_schema.clone();
        shown.insert("inputSchema".to_owned(), input.unwrap_or_else(|| json!({})));
        shown.insert("outputSchema".to_owned(), json!(definition.output_schema));
        shown.insert("effect".to_owned(), json!(entry.effect.as_str()));
        let notes = notes(&entry, &table, self.barred(&entry.server).as_deref());
        if !notes.is_empty() {
            shown.insert("note".to_owned(), Value::String(notes.join(" ")));
        }
        Ok(Value::Object(shown))
    }

    /// What `server_status()` gives a program: name to connected, tools and error.
    pub fn status(&self) -> Value {
        let table = self.table();
        let mut status = Map::new();
        for server in &table.servers {
            let barred = self.barred(&server.name);
            let connected = server.state.state == ServerState::Ready && barred.is_none();
            let own = table.visible().filter(|entry| entry.server == server.name);
            let error = (!connected).then(|| match barred {
                Some(why) => format!("it {why}"),
                None => state_words(server),
            });
            let shown = json!({
                "connected": connected,
                "tools": if connected { own.count() } else { 0 },
                "error": error,
            });
            status.insert(server.name.clone(), shown);
        }
        Value::Object(status)
    }

    /// Waits until no server is at its first attempt to connect, or the limit has passed.
    pub async fn settled(&self, limit: Duration) {
        self.settled_of(limit, |_| true).await;
    }

    /// The same for the servers whose tools a program names.
    pub async fn settled_for(&self, code: &str, limit: Duration) {
        self.settled_of(limit, |server| code.contains(&names::plain(server, "")))
            .await;
    }

    async fn settled_of(&self, limit: Duration, counts: impl Fn(&str) -> bool) {
        self.look();
        let mut changed = self.inner.downstream.changed();
        let settled = async {
            loop {
                changed.mark_unchanged();
                let servers = self.servers();
                let connecting = |server: &Server| {
                    server.state.state == ServerState::Connecting && counts(&server.name)
                };
                if !servers.iter().any(connecting) {
                    return;
                }
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        // At the limit the caller goes on with what there is.
        let _ = tokio::time::timeout(limit, settled).await;
    }

    /// Reads, checks and normalises the arguments of a call, once for all that follows.
    ///
    /// # Errors
    /// `unknown_tool`, or `invalid_arguments` with path, found, required and nearest name.
    pub fn prepare(&self, name: &str, arguments_json: &str) -> Result<PreparedCall, ToolError> {
        let table = self.table();
        let entry = self.entry(&table, name).or_else(|unknown| {
            // It quotes the name, as much of it as a line takes.
            let masked = self.mask(name);
            if masked == name {
                return Err(unknown);
            }
            self.entry(&table, &masked)
        })?;
        let check = self.state().check_arguments;
        prepare::prepare(&entry, arguments_json, check).map_err(|error| {
            // It quotes the arguments, cut where they are long, and a program may have been handed
            // a secret by a tool: what is said is said of arguments without it.
            let masked = self.mask(arguments_json);
            if masked == arguments_json {
                return error;
            }
            match prepare::prepare(&entry, &masked, check) {
                Err(error) => error,
                Ok(_) => ToolError::hidden(&entry.callable, &entry.server),
            }
        })
    }

    /// Takes secrets out of a text that is shown or written down.
    pub fn mask(&self, text: &str) -> String {
        self.inner.downstream.mask(text)
    }

    /// Sends a prepared call and gives its value.
    ///
    /// A server that is starting or reconnecting is waited for, up to 10 s
    /// within `limit`. Nothing is sent twice.
    ///
    /// # Errors
    /// See [`ToolError`]: every kind from `timeout` to `cancelled`.
    pub async fn call(
        &self,
        call: &PreparedCall,
        limit: Duration,
        cancel: CancellationToken,
    ) -> Result<ToolReply, ToolError> {
        let downstream = &self.inner.downstream;
        let answer = downstream
            .call(
                &self.view.clone().unwrap_or_default(),
                &call.server,
                &call.tool,
                Arc::clone(&call.encoded),
                limit,
                &cancel,
            )
            .await;
        let max = downstream.max_result_bytes();
        let fits = |data: &Value| data.to_string().len() <= max;
        let reply = match answer {
            Err(error) => Err(ToolError::from_call(&call.name, error)),
            Ok(answer) if answer.bytes > BIG_BYTES => {
                let entry = Arc::clone(&call.entry);
                let words = downstream.words();
                let work = move || reply::finish(&entry, answer, max, &words);
                match tokio::task::spawn_blocking(work).await {
                    Ok(reply) => reply,
                    Err(error) => {
                        tracing::error!(%error, tool = %call.name, "a result could not be read");
                        Err(ToolError::shape(
                            &call.name,
                            &call.server,
                            "it could not be read",
                        ))
                    }
                }
            }
            Ok(answer) => reply::finish(&call.entry, answer, max, &downstream.words()),
        };
        reply.map_err(|error| {
            let mut error = error.with_strangers(call.strangers.as_deref());
            error.message = downstream.mask(&error.message);
            error.data = error.data.filter(|data| fits(data));
            error
        })
    }

    /// The table as of now.
    fn table(&self) -> Arc<Table> {
        let mut state = self.state();
        let State { names, file, .. } = &mut *state;
        file.save_again(names, SAVED_AGAIN);
        // Taken before the servers are looked at: a change since then is seen next time.
        let now = *self.inner.downstream.changed().borrow();
        let project = self.view.as_ref().map(|view| view.project.clone());
        if let Some(table) = state.tables.current(&project, now) {
            return table;
        }
        let servers = self.servers();
        let State {
            policy,
            names,
            file,
            tables,
            ..
        } = &mut *state;
        let (built, changed) = Table::build(&tables.before(&project), servers, names, policy);
        if changed {
            file.save(names);
        }
        tables.put(project, now, built)
    }

    /// The servers as whoever looks sees them.
    fn servers(&self) -> Vec<Server> {
        match &self.view {
            Some(view) => self.inner.downstream.servers_for(view),
            None => self.inner.downstream.servers(),
        }
    }

    /// Starts what this client's look at the tools needs.
    fn look(&self) {
        if let Some(view) = &self.view {
            self.inner.downstream.look(view);
        }
    }

    /// Why this client may not use a server, in words that follow the server's name.
    fn barred(&self, server: &str) -> Option<String> {
        self.view.as_ref()?.barred.why(server)
    }

    fn all_barred(&self, table: &Table) -> BTreeMap<String, String> {
        let servers = table.servers.iter();
        servers
            .filter_map(|server| Some((server.name.clone(), self.barred(&server.name)?)))
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
