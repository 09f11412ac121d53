//! The tools that run programs without tools: `run_python` for inspection, and submissions.

use std::sync::Arc;

use ptc_protocol::facts::{RunKind, Submission, Witness};
use ptc_protocol::provenance::CHECKED_CAVEAT;
use ptc_protocol::run::{Confinement, Ending};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::Instrument as _;

use super::apart::{self, CancelWith};
use super::asking::NoAsker;
use super::outcome::{Fault, Program, Submitted, read};
use super::{Face, Session, failure, session_span};
use crate::engine::checks::{Filed, Filing};
use crate::engine::{Outcome, Progress, Purpose, Request, RunError};

/// Characters of each stream that an answer shows.
const SHOWN: usize = 2000;
/// What a line of a witness begins with.
const WITNESS: &str = "WITNESS";
/// Checks that are made of every submission, by name.
const CHECKS: [&str; 2] = ["form", "programs came to their end"];
const WITNESS_CHECK: &str = "a program printed a WITNESS line";

impl Session {
    /// Why programs without tools are refused here.
    fn refuses_checks(face: &Face) -> Option<CallToolResult> {
        let tier = face.confinement?;
        (tier == Confinement::None).then(|| {
            failure(
                "refused: programs are not confined here (execution.sandbox: none), and what is run for \
                 inspection or submitted must be",
            )
        })
    }

    /// `run_python`.
    pub(super) async fn run_python(
        &self,
        code: String,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let face = self.face();
        if let Some(refusal) = Self::refuses_checks(&face) {
            return refusal;
        }
        let most = face.submit.work_calls;
        let session = &self.client.session;
        let Some(left) = self
            .host
            .engine
            .take_check(session, RunKind::Inspection, most)
        else {
            return failure(&format!(
                "refused: the {most} work calls of this session are used up (submit.work_calls)"
            ));
        };
        let purpose = Purpose {
            kind: RunKind::Inspection,
            part_of: None,
            engine: None,
        };
        match self.run_without_tools(code, purpose, context).await {
            Ok(outcome) => inspected(&outcome, left, most),
            Err(text) => failure(&text),
        }
    }

    /// `submit_execute_unconfirmed`, under either of its names.
    pub(super) async fn submit(
        &self,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let face = self.face();
        if let Some(refusal) = Self::refuses_checks(&face) {
            return refusal;
        }
        let submitted = match read(arguments) {
            Ok(submitted) => submitted,
            Err(faults) => return rejected(&faults, &[]),
        };
        let most = face.submit.submissions;
        let session = &self.client.session;
        if self
            .host
            .engine
            .take_check(session, RunKind::Submission, most)
            .is_none()
        {
            return failure(&format!(
                "refused: the {most} submissions of this session are used up (submit.submissions)"
            ));
        }
        let filing = Filing::default();
        let mut ran = Vec::new();
        for program in &submitted.programs {
            let purpose = Purpose {
                kind: RunKind::Submission,
                part_of: Some(filing.run.clone()),
                engine: None,
            };
            match self
                .run_without_tools(program.code.clone(), purpose, context)
                .await
            {
                Ok(outcome) => ran.push((program, outcome)),
                Err(text) => return failure(&text),
            }
        }
        let judged = judge(&submitted, &ran, face.submit.witness_required);
        self.file(filing, &submitted, &ran, judged, context).await
    }

    async fn run_without_tools(
        &self,
        code: String,
        purpose: Purpose,
        context: &RequestContext<RoleServer>,
    ) -> Result<Outcome, String> {
        let cancel = context.ct.child_token();
        let stop = CancelWith::new(&self.gone, &cancel);
        let request = Request {
            code,
            caller: self.caller(context),
            purpose,
            asker: Arc::new(NoAsker),
            progress: watch::Sender::new(Progress::default()),
            cancel,
        };
        let engine = self.host.engine.clone();
        let span = session_span(&self.client.session);
        let run = async move { engine.run(request).await };
        let ran = apart::apart("a run", Box::pin(run.instrument(span))).await;
        drop(stop);
        let failed = "the daemon failed while it ran this program; its log has the reason";
        ran.unwrap_or(Err(RunError::Inside))
            .map_err(|error| match error {
                RunError::Inside => failed.to_owned(),
                other => other.to_string(),
            })
    }

    /// Writes the record, without which nothing is accepted, and answers.
    async fn file(
        &self,
        filing: Filing,
        submitted: &Submitted,
        ran: &[(&Program, Outcome)],
        (submission, faults): (Submission, Vec<Fault>),
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let programs: Vec<Value> = submitted
            .programs
            .iter()
            .map(|program| json!({"name": program.name, "code": program.code}))
            .collect();
        let filed = Filed {
            programs: Value::Array(programs).to_string(),
            outputs: ran
                .iter()
                .map(|(_, outcome)| outcome.output.clone())
                .collect(),
            deliverable: Value::from(submitted.deliverable.as_str()).to_string(),
            facts: submission,
        };
        let (engine, caller) = (self.host.engine.clone(), self.caller(context));
        let run = filing.run.clone();
        let checks = filed.facts.checks.clone();
        let written = tokio::task::spawn_blocking(move || engine.file(&filing, &caller, &filed));
        match written.await.unwrap_or(Err(RunError::Inside)) {
            Err(error) => failure(&error.to_string()),
            Ok(()) if faults.is_empty() => accepted(&run, &checks, ran),
            Ok(()) => rejected(&faults, ran),
        }
    }
}

/// What the checks give: the facts for the record, and what is wrong.
fn judge(
    submitted: &Submitted,
    ran: &[(&Program, Outcome)],
    witness_required: bool,
) -> (Submission, Vec<Fault>) {
    let mut faults = Vec::new();
    for (at, (_, outcome)) in ran.iter().enumerate() {
        if outcome.ending != Ending::Finished {
            let path = format!("outcome.programs[{at}]");
            let found = format!("the ending {}", outcome.ending.as_str());
            faults.push(Fault::new(&path, found, "a program that comes to its end"));
        }
    }
    let printed: Vec<&str> = ran
        .iter()
        .flat_map(|(_, outcome)| witnesses(outcome))
        .collect();
    if witness_required && printed.is_empty() {
        let required = "a program that prints a line beginning with WITNESS";
        faults.push(Fault::new("outcome.programs", "no WITNESS line", required));
    }
    let mut checks: Vec<String> = CHECKS.iter().map(|&name| name.to_owned()).collect();
    if witness_required {
        checks.push(WITNESS_CHECK.to_owned());
    }
    let witness = submitted.witness.as_ref().map(|(form, value)| Witness {
        form: form.clone(),
        value: value.clone(),
        reproduced: printed.iter().any(|text| is_value(text, value)),
    });
    let submission = Submission {
        passed: faults.is_empty(),
        checks,
        witness,
        runs: ran
            .iter()
            .filter_map(|(_, outcome)| outcome.run.clone())
            .collect(),
    };
    (submission, faults)
}

/// What stands behind WITNESS, a line each.
fn witnesses(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.output.lines();
    let behind = lines.filter_map(|line| line.trim_start().strip_prefix(WITNESS));
    let behind = behind.filter(|rest| rest.is_empty() || rest.starts_with([' ', ':', '\t']));
    behind
        .map(|rest| rest.trim_start_matches(':').trim())
        .collect()
}

/// Whether a printed text is this value: its JSON, or the text itself.
fn is_value(text: &str, value: &Value) -> bool {
    let read: Option<Value> = serde_json::from_str(text).ok();
    read.as_ref() == Some(value) || value.as_str() == Some(text)
}

/// Both streams as an answer shows them; an error stands at the end of standard error.
fn streams(outcome: &Outcome) -> (String, String) {
    let show = |text: &str| crate::engine::output::visible(text);
    let stdout = show(&outcome.streams.stdout().last(SHOWN));
    let mut stderr = outcome.streams.stderr().last(SHOWN);
    if let Some(error) = &outcome.error {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(error);
    }
    let skip = stderr.chars().count().saturating_sub(SHOWN);
    let stderr: String = stderr.chars().skip(skip).collect();
    (stdout, show(&stderr))
}

/// 0 or 1 for a program that ended by itself; nothing for one that was ended.
fn exit_status(outcome: &Outcome) -> Option<u8> {
    match outcome.ending {
        Ending::Finished => Some(0),
        Ending::ScriptError => Some(1),
        _ => None,
    }
}

fn inspected(outcome: &Outcome, left: u64, most: u64) -> CallToolResult {
    let (stdout, stderr) = streams(outcome);
    let status = exit_status(outcome);
    let shown = status.map_or_else(
        || format!("none: {}", outcome.ending.as_str()),
        |status| status.to_string(),
    );
    let stopped = outcome.limit.unwrap_or("nothing");
    let steps = outcome.steps.map_or_else(
        || "not counted".to_owned(),
        |steps| {
            format!(
                "{} of {}, as far as the program let them be counted",
                steps.used, steps.budget
            )
        },
    );
    let text = format!(
        "exit status: {shown}\nsteps used: {steps}\nstopped by: {stopped}\nstandard output:\n{stdout}\n\
         standard error:\n{stderr}\n[for inspection, not evidence; {left} of {most} work calls are left in this \
         session]"
    );
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({
        "run": outcome.run,
        "ending": outcome.ending.as_str(),
        "exit_status": status,
        "steps": outcome.steps,
        "limit": outcome.limit,
        "stdout": stdout,
        "stderr": stderr,
        "evidence": false,
        "work_calls_left": left,
    }));
    result
}

/// What is known of each program.
fn facts(ran: &[(&Program, Outcome)]) -> Vec<Value> {
    let fact = |(program, outcome): &(&Program, Outcome)| {
        let (stdout, stderr) = streams(outcome);
        json!({
            "name": program.name,
            "run": outcome.run,
            "ending": outcome.ending.as_str(),
            "exit_status": exit_status(outcome),
            "steps": outcome.steps,
            "witness_printed": !witnesses(outcome).is_empty(),
            "stdout": stdout,
            "stderr": stderr,
        })
    };
    ran.iter().map(fact).collect()
}

fn accepted(run: &str, checks: &[String], ran: &[(&Program, Outcome)]) -> CallToolResult {
    let verdict = format!("{CHECKED_CAVEAT}, and nothing verifies it afterwards here");
    let text = format!(
        "accepted: {verdict}.\nchecks: {}\nrecord: ptc://runs/{run}/response",
        checks.join("; ")
    );
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let given = json!({"verdict": verdict, "checks": checks, "run": run});
    result.structured_content = Some(json!({"ok": true, "result": given, "facts": facts(ran)}));
    result
}

fn rejected(faults: &[Fault], ran: &[(&Program, Outcome)]) -> CallToolResult {
    let lines: Vec<String> = faults.iter().map(Fault::line).collect();
    let text = format!("not accepted:\n{}", lines.join("\n"));
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let errors: Vec<Value> = faults.iter().map(Fault::json).collect();
    result.structured_content = Some(json!({"ok": false, "errors": errors, "facts": facts(ran)}));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_is_the_value_or_its_json() {
        assert!(is_value("42", &json!(42)));
        assert!(is_value("[1, 2]", &json!([1, 2])));
        assert!(is_value("prime", &json!("prime")));
        assert!(is_value("\"prime\"", &json!("prime")));
        assert!(!is_value("43", &json!(42)));
    }
}
