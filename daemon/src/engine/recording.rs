//! What a run's calls and helpers go to: the servers, with every answer kept for a replay, or nothing at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ptc_protocol::facts::RunKind;
use ptc_protocol::run::ToolErrorKind;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Answers, Boxed, CallTarget, Parts, Purpose};
use crate::journal::RunRecorder;
use crate::pool::frame::Helper;
use crate::registry::{PreparedCall, ToolError, ToolReply, View};

/// Where one run's calls go, and what answers its helpers.
pub(super) fn sides(
    parts: &Parts,
    view: &View,
    purpose: &Purpose,
    recorder: &RunRecorder,
) -> (Arc<dyn CallTarget>, Arc<dyn Answers>) {
    if purpose.kind != RunKind::Program {
        let none = Arc::new(NoTools(recorder.clone()));
        return (none.clone(), none);
    }
    let answers = parts.answers.seen_by(view);
    let answers = answers.unwrap_or_else(|| Arc::clone(&parts.answers));
    let answers = if recorder.keeps_answers() {
        Arc::new(Kept {
            answers,
            recorder: recorder.clone(),
        })
    } else {
        answers
    };
    let target = parts.target.seen_by(view);
    (target.unwrap_or_else(|| Arc::clone(&parts.target)), answers)
}

/// A number for `random` that no other run has.
pub(super) fn seed() -> u64 {
    let mut bytes = [0_u8; 8];
    if getrandom::fill(&mut bytes).is_err() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        return since.map_or(0, |since| u64::from(since.subsec_nanos()));
    }
    // A number that every reader of JSON keeps exactly.
    u64::from_le_bytes(bytes) >> 11
}

/// The name of a helper in a program.
pub(super) fn helper_name(helper: Helper) -> &'static str {
    match helper {
        Helper::ListCallableTools => "list_callable_tools",
        Helper::InspectTool => "inspect_tool",
        Helper::ServerStatus => "server_status",
    }
}

/// Answers whose every word goes into the record.
#[derive(Debug)]
struct Kept {
    answers: Arc<dyn Answers>,
    recorder: RunRecorder,
}

impl Answers for Kept {
    /// It is made for one run, and so for one client.
    fn seen_by(&self, _: &View) -> Option<Arc<dyn Answers>> {
        None
    }

    fn answer(&self, helper: Helper, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        let answer = self.answers.answer(helper, arguments);
        let asked = Value::Object(arguments.clone()).to_string();
        let name = helper_name(helper);
        match &answer {
            Ok(value) => self.recorder.query(name, &asked, Ok(&value.to_string())),
            Err(error) => self.recorder.query(name, &asked, Err(&error.message)),
        }
        answer
    }

    fn signatures(&self) -> BTreeMap<String, Vec<String>> {
        self.answers.signatures()
    }

    fn hint(&self, name: &str) -> Option<String> {
        self.answers.hint(name)
    }
}

/// For programs that have no tools.
#[derive(Debug)]
struct NoTools(RunRecorder);

impl NoTools {
    fn none(&self, tool: &str) -> ToolError {
        // A cut before could leave the half of a secret.
        let tool = self.0.mask(tool);
        let tool = super::output::head(&tool, 200);
        ToolError {
            kind: ToolErrorKind::UnknownTool,
            message: format!("'{tool}' is not there: this program is run without tools"),
            tool: Some(tool.to_owned()),
            server: None,
            retryable: false,
            data: None,
        }
    }
}

impl CallTarget for NoTools {
    fn seen_by(&self, _: &View) -> Option<Arc<dyn CallTarget>> {
        None
    }

    fn expect<'a>(&'a self, _: &'a str, _: Duration) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn prepare(&self, _: u64, tool: &str, _: &str) -> Result<PreparedCall, ToolError> {
        Err(self.none(tool))
    }

    fn mask(&self, text: &str) -> String {
        self.0.mask(text)
    }

    fn call<'a>(
        &'a self,
        _: u64,
        call: &'a PreparedCall,
        _: Duration,
        _: CancellationToken,
    ) -> Boxed<'a, Result<ToolReply, ToolError>> {
        Box::pin(std::future::ready(Err(self.none(&call.name))))
    }
}

impl Answers for NoTools {
    fn seen_by(&self, _: &View) -> Option<Arc<dyn Answers>> {
        None
    }

    fn answer(&self, helper: Helper, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        match helper {
            Helper::ListCallableTools => Ok(json!([])),
            Helper::ServerStatus => Ok(json!({})),
            Helper::InspectTool => Err(self.none(
                arguments
                    .get("tool_name")
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
            )),
        }
    }

    fn signatures(&self) -> BTreeMap<String, Vec<String>> {
        BTreeMap::new()
    }

    fn hint(&self, _: &str) -> Option<String> {
        Some("this program is run without tools".to_owned())
    }
}
