//! The routes on the daemon's socket.

mod accept;
mod handlers;
#[cfg(target_os = "macos")]
#[expect(
    unsafe_code,
    reason = "launchd hands its socket over through a C function"
)]
pub(crate) mod launchd;
mod roster;
pub mod socket;
mod upgrade;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use ptc_protocol::approval::WaitingList;
use ptc_protocol::detail::{Replay, RunDetail};
use ptc_protocol::doctor::Checks;
use ptc_protocol::policy::{PolicyChecked, TrialCall};
use ptc_protocol::run::{RequestCalls, RunRecord};
use ptc_protocol::status::{ClientStatus, ConfigShown, Done, Status, ToolList};
use ptc_protocol::{Vars, route};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::config::offered::Barred;
use crate::journal::JournalError;
use crate::metrics::MetricsError;
use crate::session::Host;

pub use self::accept::Shortage;
pub use self::roster::Roster;

/// What an operator does to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerVerb {
    /// End its connection and make a new one.
    Restart,
    /// Connect it, whatever the configuration says.
    Enable,
    /// End it and leave it so, whatever the configuration says.
    Disable,
}

/// What the socket lets a client do to the daemon; `app` is behind it.
pub trait Commands: Debug + Send + Sync {
    /// Everything `ptcctl status` shows.
    fn status(&self, clients: Vec<ClientStatus>) -> Status;
    /// Counts and figures as Prometheus text.
    fn metrics(&self, clients: Vec<ClientStatus>) -> Result<String, MetricsError>;
    /// The callable tools.
    fn tools(&self) -> ToolList;
    /// What is known of one tool, or why nothing is.
    fn tool(&self, name: &str) -> Result<Value, String>;
    /// The configuration in force, secrets masked.
    fn config(&self) -> ConfigShown;
    /// Reads a configuration file, the daemon's own where none is named, and takes nothing over. Blocking.
    fn check_config(&self, path: Option<&str>) -> Done;
    /// Reads the policies of the configuration file anew and takes nothing over; judges a call. Blocking.
    fn check_policy(&self, call: Option<&TrialCall>) -> PolicyChecked;
    /// Shows, sets or removes the pins of tools that match: `show`, `pin`, `anew`, `unpin`. Blocking.
    fn pin_tools(&self, verb: &str, pattern: &str) -> Done;
    /// The calls that wait in the daemon for a person.
    fn approvals(&self) -> WaitingList;
    /// Answers one of them with `once`, `tool` or `deny`; every other word is a no.
    fn answer_approval(&self, id: &str, word: &str) -> Done;
    /// Restarts, enables or disables a server.
    fn server(&self, verb: ServerVerb, name: &str) -> Done;
    /// Forgets which callable names were given.
    fn reset_names(&self) -> Done;
    /// The newest finished runs, newest first.
    fn runs(&self) -> Vec<RunRecord>;
    /// One finished run; nothing where it is not kept. May be large, with its `whole` output even more so: call it on a
    /// blocking thread.
    fn run(&self, run: &str, whole: bool) -> Result<Option<RunDetail>, JournalError>;
    /// Repeats a run from its record, with other code where some is given; else why it cannot be.
    fn replay(
        &self,
        run: String,
        code: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<Replay, String>> + Send + '_>>;
    /// What the call log says about one request of the session with this label. May be
    /// large: call it on a blocking thread.
    fn calls(&self, session: &str, request: &Value) -> Result<RequestCalls, JournalError>;
    /// Reads the configuration again, and with `forget_sent` forgets the variables that shims sent.
    fn reload(&self, forget_sent: bool) -> Pin<Box<dyn Future<Output = Done> + Send + '_>>;
    /// Checks what a daemon needs, or one server alone.
    fn doctor(&self, server: Option<String>) -> Pin<Box<dyn Future<Output = Checks> + Send + '_>>;
    /// Drains and ends; returns at once, with what is waited for, a sentence a line.
    fn stop(&self) -> Vec<String>;
    /// Does as [`Commands::stop`], unless a program runs or waits.
    fn stop_if_idle(&self) -> Done;
    /// Variables the configuration uses and the daemon's environment lacks.
    fn wanted_variables(&self) -> Vec<String>;
    /// Takes what a shim sent of the variables it was asked for.
    fn offer_variables(&self, asked: &[String], sent: &Vars) -> Grant;
}

/// What follows for a session from the variables it sent.
#[derive(Debug)]
pub struct Grant {
    /// The servers it may not use, because they run with other values.
    pub barred: Barred,
    /// Cancelled when it is to be asked for other variables.
    pub renew: CancellationToken,
}

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct Control {
    /// What is behind the routes.
    pub commands: Arc<dyn Commands>,
    /// What sessions work with.
    pub host: Host,
    /// Live sessions.
    pub roster: Roster,
    /// Whether connections could be taken.
    pub shortage: Shortage,
    /// The configuration this daemon serves, as [`ptc_protocol::Hello::config`] names it.
    pub config: Option<String>,
    /// Ends every session.
    pub end: CancellationToken,
}

/// Serves the socket until `stop` is cancelled; connections that are there then end by themselves.
pub async fn serve(listener: UnixListener, control: Control, stop: CancellationToken) {
    let shortage = control.shortage.clone();
    let routes = Router::new()
        .route(route::HEALTH, get(handlers::health))
        .route(route::STATUS, get(handlers::status))
        .route(route::METRICS, get(handlers::metrics))
        .route(route::TOOLS, get(handlers::tools))
        .route(route::RUNS, get(handlers::runs))
        .route(route::RUN, get(handlers::run))
        .route(route::REPLAY, post(handlers::replay))
        .route(route::CALLS, get(handlers::calls))
        .route(route::TOOL, get(handlers::tool))
        .route(route::CONFIG, get(handlers::config))
        .route(route::CONFIG_CHECK, post(handlers::check_config))
        .route(route::TOOLS_PIN, post(handlers::pin_tools))
        .route(route::APPROVALS, get(handlers::approvals))
        .route(route::APPROVALS_ANSWER, post(handlers::answer_approval))
        .route(route::POLICY_CHECK, post(handlers::check_policy))
        .route(route::SERVER_RESTART, post(handlers::restart_server))
        .route(route::SERVER_ENABLE, post(handlers::enable_server))
        .route(route::SERVER_DISABLE, post(handlers::disable_server))
        .route(route::NAMES_RESET, post(handlers::reset_names))
        .route(route::RELOAD, post(handlers::reload))
        .route(route::DOCTOR, get(handlers::doctor))
        .route(route::STOP, post(handlers::stop))
        .route(route::STOP_IDLE, post(handlers::stop_idle))
        .route(route::MCP, get(upgrade::upgrade))
        .with_state(control);
    accept::accept(listener, routes, shortage, stop).await;
}
