//! Asks the gate about the calls of one run, in the order in which they come.

use std::collections::HashMap;
use std::sync::Mutex;

use ptc_protocol::detail::{DecisionEntry, RiskEntry};

use super::{Caller, lock};
use crate::config::EngineName;
use crate::policy::risk::{Asked, Tab, tightened};
use crate::policy::{Decision, Gate, Policy, ProgramFacts, Verdict};
use crate::registry::PreparedCall;

/// What the gate is told of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    run: String,
    session: String,
    engine: EngineName,
    client: String,
    version: String,
}

impl About {
    pub(super) fn new(run: &str, engine: EngineName, caller: &Caller) -> Self {
        Self {
            run: run.to_owned(),
            session: caller.session.clone(),
            engine,
            client: caller.client.clone().unwrap_or_default(),
            version: caller.version.clone(),
        }
    }
}

/// The gate as one run meets it.
#[derive(Debug)]
pub(super) struct Judge {
    gate: Gate,
    about: About,
    counts: Mutex<Counts>,
    /// What models were asked about its calls.
    tab: Tab,
}

/// What the gate said of a call, and by which counts.
#[derive(Debug)]
pub(super) struct Judged {
    policy: Policy,
    pub(super) decision: Decision,
    pub(super) entry: DecisionEntry,
    /// Calls judged before it, and of its tool let through before it.
    pub(super) counts: (u64, u64),
}

#[derive(Debug, Default)]
struct Counts {
    judged: u64,
    /// Calls let through, by server and the server's own name of the tool.
    let_through: HashMap<(String, String), u64>,
}

impl Judge {
    pub(super) fn new(gate: Gate, about: About) -> Self {
        Self {
            gate,
            about,
            counts: Mutex::default(),
            tab: Tab::default(),
        }
    }

    /// Who started the program.
    pub(super) fn client(&self) -> &str {
        &self.about.client
    }

    /// Why a call that a person allowed is denied now: the rules may have changed while it waited. It is not counted
    /// again, and counts with those it was judged by first.
    pub(super) fn denied_since(
        &self,
        call: &PreparedCall,
        (call_index, calls_to_tool): (u64, u64),
    ) -> Option<String> {
        let program = self.program(call_index, calls_to_tool);
        match self
            .gate
            .decide(&self.gate.policy(), &call.facts(), &program)
            .verdict
        {
            Verdict::Deny { reason } => Some(reason),
            Verdict::Allow | Verdict::Ask { .. } => None,
        }
    }

    fn program(&self, call_index: u64, calls_to_tool: u64) -> ProgramFacts<'_> {
        ProgramFacts {
            client: &self.about.client,
            version: &self.about.version,
            engine: self.about.engine.as_str(),
            run: &self.about.run,
            call_index,
            calls_to_tool,
        }
    }

    /// Judges a call by the rules of this moment and counts it, both in one step: of calls that come at once, each
    /// sees those that were let through before it.
    pub(super) fn decide(&self, call: &PreparedCall) -> Judged {
        let policy = self.gate.policy();
        let tool = (call.server.clone(), call.tool.clone());
        let mut counts = lock(&self.counts);
        let before = counts.let_through.get(&tool).copied().unwrap_or_default();
        let by = (counts.judged, before);
        let decision = self
            .gate
            .decide(&policy, &call.facts(), &self.program(by.0, by.1));
        counts.judged += 1;
        if !matches!(decision.verdict, Verdict::Deny { .. }) {
            *counts.let_through.entry(tool).or_default() += 1;
        }
        drop(counts);
        let entry = entry(&decision, &policy);
        Judged {
            policy,
            decision,
            entry,
            counts: by,
        }
    }

    /// Has a call judged by the rubrics that its decision names. Every wait in it has its limit.
    pub(super) async fn weigh(&self, judged: Judged, call: &PreparedCall, shown: &str) -> Judged {
        let Judged {
            policy,
            decision,
            counts,
            ..
        } = judged;
        let facts = call.facts();
        let asked = Asked {
            tool: facts.tool,
            effect: decision.effect,
            hints: policy.hints(&facts.tool),
            arguments: shown,
            session: &self.about.session,
        };
        let opinions = match policy.risk() {
            Some(risk) => risk.judge(&decision.rubrics, &asked, &self.tab).await,
            None => Vec::new(),
        };
        let decision = tightened(decision, opinions);
        Judged {
            entry: entry(&decision, &policy),
            policy,
            decision,
            counts,
        }
    }
}

/// What rules say of a call that no program makes, as if it were the first one of its run in `engine`.
pub fn judge_alone(
    gate: &Gate,
    call: &PreparedCall,
    engine: EngineName,
    client: &str,
) -> DecisionEntry {
    let program = ProgramFacts {
        client,
        version: "",
        engine: engine.as_str(),
        run: "",
        call_index: 0,
        calls_to_tool: 0,
    };
    let policy = gate.policy();
    entry(&gate.decide(&policy, &call.facts(), &program), &policy)
}

/// A decision as the journal keeps it.
fn entry(decision: &Decision, policy: &Policy) -> DecisionEntry {
    let reason = match &decision.verdict {
        Verdict::Allow => None,
        Verdict::Deny { reason } | Verdict::Ask { reason } => {
            Some(reason.clone()).filter(|reason| !reason.is_empty())
        }
    };
    let said = decision.opinions.iter().map(|opinion| RiskEntry {
        rubric: opinion.rubric.clone(),
        verdict: Some(opinion.verdict.as_str().to_owned()),
        why: Some(opinion.why.clone()).filter(|why| !why.is_empty()),
    });
    // Those after one that denied were not asked.
    let unasked = decision.rubrics.iter().skip(decision.opinions.len());
    let unasked = unasked.map(|rubric| RiskEntry {
        rubric: rubric.clone(),
        ..RiskEntry::default()
    });
    DecisionEntry {
        verdict: decision.verdict.as_str().to_owned(),
        step: decision.step.as_str().to_owned(),
        effect: decision.effect.as_str().to_owned(),
        policies: decision.policies.clone(),
        risk: said.chain(unasked).collect(),
        reason,
        answer: None,
        errors: decision.errors.clone(),
        rules: policy.cedar().map(|said| said.digest.to_owned()),
    }
}
