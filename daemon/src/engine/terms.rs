//! Gathers what one run is given: tools, limits, what its calls share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ptc_protocol::facts::RunKind;
use tokio::sync::Semaphore;

use super::approval::{Approvals, Approver};
use super::call::Desk;
use super::judging::{About, Judge};
use super::record::Opened;
use super::run::Terms;
use super::{Parts, Request, absent, recording};
use crate::config::ExecutionConfig;
use crate::journal::Context;
use crate::metrics::Metrics;
use crate::pool::frame::{Run, RunLimits};

/// Most bytes of JSON in one call's arguments.
const MAX_CALL_BYTES: usize = 4 * 1024 * 1024;

/// What the run's calls share, and what its loop is given.
pub(super) fn prepare(
    parts: &Parts,
    request: Request,
    opened: &Opened,
    (metrics, approvals): (Metrics, Approvals),
) -> (Arc<Desk>, Terms) {
    let (limits, recorder) = (&parts.limits, &opened.recorder);
    let (target, answers) =
        recording::sides(parts, &request.caller.view, &request.purpose, recorder);
    let desk = Desk {
        target,
        judge: Judge::new(
            parts.gate.clone(),
            About::new(recorder.run(), parts.engine, &request.caller),
        ),
        approver: Approver::new(
            parts.approval,
            approvals,
            request.asker,
            Some(opened.lender.clone()),
        ),
        recorder: recorder.clone(),
        metrics,
        places: Semaphore::new(limits.max_concurrent_calls),
        limit: limits.tool_call_timeout,
        barred: request.caller.view.barred,
        progress: request.progress,
        cancel: request.cancel.child_token(),
    };
    let apart = request.purpose.kind != RunKind::Program;
    let tools = answers.signatures();
    let absent = absent::absent(&request.code, &tools, answers.as_ref());
    let seed = recording::seed();
    recorder.context(Context {
        tools: tools.clone(),
        absent: absent.clone(),
        seed: Some(seed),
    });
    let terms = Terms {
        run: Run {
            apart,
            ..run_frame(request.code, tools, absent, Some(seed), limits)
        },
        deadline: Instant::now() + limits.timeout,
        max_calls: limits.max_tool_calls,
        answers,
    };
    (Arc::new(desk), terms)
}

pub(super) fn run_frame(
    program: String,
    tools: BTreeMap<String, Vec<String>>,
    absent: BTreeMap<String, String>,
    seed: Option<u64>,
    limits: &ExecutionConfig,
) -> Run {
    Run {
        program,
        tools,
        absent,
        limits: RunLimits {
            max_emit_bytes: limits.max_output_bytes,
            max_call_bytes: MAX_CALL_BYTES,
            steps: limits.step_budget,
        },
        seed,
        apart: false,
    }
}
