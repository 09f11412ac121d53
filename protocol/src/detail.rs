//! One finished run in full, as the journal keeps it and `ptcctl` shows it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::provenance::Provenance;
use crate::run::{RunRecord, ToolErrorKind};

/// One call of a run; a list of them stands in the order of their ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallEntry {
    /// Number of the call in its run.
    pub call: u64,
    /// Callable name.
    pub tool: String,
    /// Name of the server; absent where the call was refused before it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Arguments, JSON text, masked; cut where it is shorter than `arguments_bytes` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Size of the arguments as sent, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_bytes: Option<usize>,
    /// What the gate said about it; absent where it was refused before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<DecisionEntry>>,
    /// When the program asked, milliseconds since the run's start.
    pub asked_ms: u64,
    /// When it was sent; absent where it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: u64,
    /// Whether a value came back.
    pub ok: bool,
    /// Kind of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolErrorKind>,
    /// What the program was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the same call may succeed later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// What came along with the failure, JSON text, masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Size of the value, in bytes of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
    /// Keyed hash of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_hash: Option<String>,
    /// Keyed hash of the value as it is kept, where a secret is masked in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_hash: Option<String>,
    /// Keyed hash of what a replay goes by; only in the record itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The value, JSON text, masked; only where `journal.record` is `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// What the gate said about one call, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionEntry {
    /// `allow`, `deny` or `ask`.
    pub verdict: String,
    /// The step that decided: `visibility`, `pins`, `effects` (which lets everything through), `cedar`, `risk`, `ask`
    /// (`policy.ask`) or `grant` (`policy.grants`).
    pub step: String,
    /// What the tool does: `read`, `write` or `destructive`.
    pub effect: String,
    /// Ids of the policies that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// What rubrics of `policy.risk` say, in the order in which they were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub risk: Vec<RiskEntry>,
    /// What the program was told, or why a person is asked; not kept where `journal.record` is `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a person said, where one was asked: `once`, `tool` (for all calls of the tool by this program) or `no`, which
    /// nobody's answer is, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What could not be evaluated, masked; not kept where `journal.record` is `off`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Which set of policies: the first digits of its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// What one rubric says of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskEntry {
    /// Name of the rubric.
    pub rubric: String,
    /// `allow`, `ask` or `deny`; absent where nobody was asked, as for a call that is only tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Why: a model's words, or why none was had, masked; not kept where `journal.record` is `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl CallEntry {
    /// Whether it was sent to a server.
    pub fn was_sent(&self) -> bool {
        self.sent_ms.is_some()
    }
}

/// What `GET` on the route of one run gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDetail {
    /// Version of this form.
    pub schema: u32,
    /// What is known of the run.
    pub record: RunRecord,
    /// Where its output comes from.
    pub provenance: Provenance,
    /// Its calls in the order of their ends, without results.
    pub calls: Vec<CallEntry>,
    /// The program, masked; absent where `journal.record` was `off`.
    pub program: Option<String>,
    /// What it printed, masked.
    pub output: Option<String>,
    /// The emitted value, masked.
    pub result: Option<Value>,
    /// Why its recording is not complete enough to be repeated; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_replayable: Option<String>,
}

/// What a replay gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Version of this form.
    pub schema: u32,
    /// The run that was repeated.
    pub run: String,
    /// Whether its code was changed for it.
    pub edited: bool,
    /// What it came to.
    pub verdict: Verdict,
    /// Where it parts from the record, in the order found.
    pub differences: Vec<String>,
    /// What the program depends on that no record can give again.
    pub depends_on: Vec<String>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// How the repeated run ended.
    pub ending: crate::run::Ending,
    /// Its error.
    pub error: Option<String>,
    /// What it printed.
    pub output: String,
    /// What it emitted.
    pub result: Option<Value>,
    /// Calls it made, and of these the ones answered from the record.
    pub calls: (u64, u64),
}

/// How a replay compares with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Output, result and calls are the same.
    Same,
    /// They are not.
    Different,
    /// They are not, and the program depends on what changes from run to run.
    NotReproducible,
    /// The code was changed, so that nothing is compared but the calls.
    Edited,
}
