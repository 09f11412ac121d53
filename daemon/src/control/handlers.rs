//! One handler a route.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use ptc_protocol::approval::WaitingList;
use ptc_protocol::detail::{Replay, RunDetail};
use ptc_protocol::doctor::Checks;
use ptc_protocol::policy::{PolicyChecked, TrialCall};
use ptc_protocol::run::{Ending, RequestCalls, RunRecord};
use ptc_protocol::status::{ConfigShown, Done, Health, Status, ToolList};
use serde::Deserialize;
use serde_json::Value;

use super::{Control, ServerVerb};
use crate::journal::JournalError;
use crate::metrics;

/// Most runs of one answer: each has an error of up to 8 KiB.
const MAX_RUNS: usize = 1000;

pub(super) async fn health(State(control): State<Control>) -> Json<Health> {
    Json(control.commands.status(Vec::new()).health)
}

pub(super) async fn status(State(control): State<Control>) -> Json<Status> {
    let clients = control.roster.clients(&control.host.live());
    Json(control.commands.status(clients))
}

pub(super) async fn metrics(
    State(control): State<Control>,
) -> Result<([(HeaderName, &'static str); 1], String), (StatusCode, String)> {
    let clients = control.roster.clients(&control.host.live());
    match control.commands.metrics(clients) {
        Ok(text) => Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text)),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be told");
            Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
        }
    }
}

pub(super) async fn tools(State(control): State<Control>) -> Json<ToolList> {
    Json(control.commands.tools())
}

/// The query of routes about one thing.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    name: String,
}

pub(super) async fn tool(
    State(control): State<Control>,
    Query(which): Query<Named>,
) -> Result<Json<Value>, (StatusCode, String)> {
    match control.commands.tool(&which.name) {
        Ok(tool) => Ok(Json(tool)),
        Err(text) => Err((StatusCode::NOT_FOUND, format!("{text}\n"))),
    }
}

pub(super) async fn config(State(control): State<Control>) -> Json<ConfigShown> {
    Json(control.commands.config())
}

/// The query of [`ptc_protocol::route::CONFIG_CHECK`].
#[derive(Debug, Deserialize)]
pub(super) struct WhichFile {
    path: Option<String>,
}

pub(super) async fn check_config(
    State(control): State<Control>,
    Query(which): Query<WhichFile>,
) -> Result<Json<Done>, (StatusCode, String)> {
    let commands = Arc::clone(&control.commands);
    let check = move || commands.check_config(which.path.as_deref());
    match tokio::task::spawn_blocking(check).await {
        Ok(done) => Ok(Json(done)),
        Err(error) => {
            tracing::warn!(%error, "a configuration cannot be checked");
            Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
        }
    }
}

pub(super) async fn check_policy(
    State(control): State<Control>,
    body: String,
) -> Result<Json<PolicyChecked>, (StatusCode, String)> {
    let call: Option<TrialCall> = match body.as_str() {
        "" => None,
        text => Some(serde_json::from_str(text).map_err(|error| {
            let text = format!("the call cannot be read: {error}\n");
            (StatusCode::BAD_REQUEST, text)
        })?),
    };
    let commands = Arc::clone(&control.commands);
    let check = move || commands.check_policy(call.as_ref());
    match tokio::task::spawn_blocking(check).await {
        Ok(checked) => Ok(Json(checked)),
        Err(error) => {
            tracing::warn!(%error, "the policies cannot be checked");
            Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
        }
    }
}

/// The query of [`ptc_protocol::route::TOOLS_PIN`].
#[derive(Debug, Deserialize)]
pub(super) struct WhichPins {
    verb: String,
    #[serde(default)]
    name: String,
}

pub(super) async fn pin_tools(
    State(control): State<Control>,
    Query(which): Query<WhichPins>,
) -> Result<Json<Done>, (StatusCode, String)> {
    if !["show", "pin", "anew", "unpin"].contains(&which.verb.as_str()) {
        return Err((StatusCode::BAD_REQUEST, "no such verb\n".to_owned()));
    }
    let commands = Arc::clone(&control.commands);
    let work = move || commands.pin_tools(&which.verb, &which.name);
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(Json(done)),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
    }
}

pub(super) async fn approvals(State(control): State<Control>) -> Json<WaitingList> {
    Json(control.commands.approvals())
}

/// The query of [`ptc_protocol::route::APPROVALS_ANSWER`].
#[derive(Debug, Deserialize)]
pub(super) struct WhichAnswer {
    id: String,
    answer: String,
}

pub(super) async fn answer_approval(
    State(control): State<Control>,
    Query(which): Query<WhichAnswer>,
) -> Json<Done> {
    Json(control.commands.answer_approval(&which.id, &which.answer))
}

pub(super) async fn restart_server(
    State(control): State<Control>,
    Query(which): Query<Named>,
) -> Json<Done> {
    Json(control.commands.server(ServerVerb::Restart, &which.name))
}

pub(super) async fn enable_server(
    State(control): State<Control>,
    Query(which): Query<Named>,
) -> Json<Done> {
    Json(control.commands.server(ServerVerb::Enable, &which.name))
}

pub(super) async fn disable_server(
    State(control): State<Control>,
    Query(which): Query<Named>,
) -> Json<Done> {
    Json(control.commands.server(ServerVerb::Disable, &which.name))
}

pub(super) async fn reset_names(State(control): State<Control>) -> Json<Done> {
    Json(control.commands.reset_names())
}

/// The query of [`ptc_protocol::route::RUNS`].
#[derive(Debug, Deserialize)]
pub(super) struct WhichRuns {
    /// Part of the client's label or name.
    client: Option<String>,
    #[serde(default)]
    failed: bool,
    since_ms: Option<u64>,
    limit: Option<usize>,
}

pub(super) async fn runs(
    State(control): State<Control>,
    Query(which): Query<WhichRuns>,
) -> Json<Vec<RunRecord>> {
    let fits = |record: &RunRecord| {
        let client = record.client.as_deref().unwrap_or_default();
        which
            .client
            .as_ref()
            .is_none_or(|part| client.contains(part.as_str()))
            && !(which.failed && record.ending == Ending::Finished)
            && which
                .since_ms
                .is_none_or(|since| record.ended_ms() >= since)
    };
    let mut runs = control.commands.runs();
    runs.retain(fits);
    runs.truncate(which.limit.unwrap_or(MAX_RUNS).min(MAX_RUNS));
    Json(runs)
}

/// The query of routes about one run.
#[derive(Debug, Deserialize)]
pub(super) struct WhichRun {
    id: String,
}

/// The query of [`ptc_protocol::route::RUN`].
#[derive(Debug, Deserialize)]
pub(super) struct ShownRun {
    id: String,
    /// Whether its output is wanted beyond what is good to look at.
    #[serde(default)]
    whole: bool,
}

pub(super) async fn run(
    State(control): State<Control>,
    Query(which): Query<ShownRun>,
) -> Result<Json<RunDetail>, (StatusCode, String)> {
    let commands = Arc::clone(&control.commands);
    let read = tokio::task::spawn_blocking(move || commands.run(&which.id, which.whole));
    match read.await {
        Ok(Ok(Some(run))) => Ok(Json(run)),
        Ok(Ok(None) | Err(JournalError::RunId)) => {
            let text = "there is no record of that run: `ptcctl runs` lists those that are kept\n";
            Err((StatusCode::NOT_FOUND, text.to_owned()))
        }
        Ok(Err(error)) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
    }
}

pub(super) async fn replay(
    State(control): State<Control>,
    Query(which): Query<WhichRun>,
    code: String,
) -> Result<Json<Replay>, (StatusCode, String)> {
    // No program is empty: without a body the recorded one is repeated.
    let code = Some(code).filter(|code| !code.is_empty());
    match control.commands.replay(which.id, code).await {
        Ok(replay) => Ok(Json(replay)),
        Err(text) => Err((StatusCode::CONFLICT, format!("{text}\n"))),
    }
}

/// The query of [`ptc_protocol::route::CALLS`].
#[derive(Debug, Deserialize)]
pub(super) struct WhichCalls {
    session: String,
    request: String,
}

pub(super) async fn calls(
    State(control): State<Control>,
    Query(which): Query<WhichCalls>,
) -> Result<Json<RequestCalls>, (StatusCode, String)> {
    let Some(request) = request_id(&which.request) else {
        let text = "request: a JSON string or a number\n";
        return Err((StatusCode::BAD_REQUEST, text.to_owned()));
    };
    let commands = Arc::clone(&control.commands);
    let read = move || commands.calls(&which.session, &request);
    let failed = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "the calls of a request cannot be told");
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(calls)) => Ok(Json(calls)),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

/// A JSON-RPC id in the form in which the sessions hand it to the journal.
fn request_id(text: &str) -> Option<Value> {
    match serde_json::from_str(text).ok()? {
        Value::String(name) => Some(name.into()),
        number @ Value::Number(_) => Some(number),
        _ => None,
    }
}

/// The query of [`ptc_protocol::route::RELOAD`].
#[derive(Debug, Deserialize)]
pub(super) struct WhatToReload {
    /// Whether the values of variables that clients sent are forgotten too.
    #[serde(default)]
    env: bool,
}

pub(super) async fn reload(
    State(control): State<Control>,
    Query(what): Query<WhatToReload>,
) -> Json<Done> {
    Json(control.commands.reload(what.env).await)
}

/// The query of [`ptc_protocol::route::DOCTOR`].
#[derive(Debug, Deserialize)]
pub(super) struct WhichServer {
    server: Option<String>,
}

pub(super) async fn doctor(
    State(control): State<Control>,
    Query(which): Query<WhichServer>,
) -> Json<Checks> {
    Json(control.commands.doctor(which.server).await)
}

pub(super) async fn stop(State(control): State<Control>) -> Json<Done> {
    let messages = control.commands.stop();
    Json(Done { ok: true, messages })
}

pub(super) async fn stop_idle(State(control): State<Control>) -> Json<Done> {
    Json(control.commands.stop_if_idle())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_string_or_a_number_and_keeps_its_form() {
        let number = |text: &str| serde_json::from_str(text).ok();
        for text in ["1", "-0", "1.5", "1.0", "9223372036854775808"] {
            assert_eq!(request_id(text), number(text), "{text}");
            assert!(request_id(text).is_some_and(|id| id.is_number()));
        }
        assert_eq!(request_id("\"1\""), Some(Value::from("1")));
        assert_ne!(request_id("1"), request_id("1.0"));
        for bad in ["", "null", "true", "[1]", "1 2"] {
            assert_eq!(request_id(bad), None, "{bad}");
        }
    }
}
