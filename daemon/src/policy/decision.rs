//! What the gate says about one call, with its reasons.

use super::effects::Effect;
use super::risk::Opinion;

/// What the gate says about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be made.
    pub verdict: Verdict,
    /// The step that decided.
    pub step: Step,
    /// What the tool does.
    pub effect: Effect,
    /// Ids of the policies that decided.
    pub policies: Vec<String>,
    /// Rubrics by which the call is to be judged as well, before it is made or a person is asked.
    pub rubrics: Vec<String>,
    /// What they say.
    pub opinions: Vec<Opinion>,
    /// Whether a person's yes counts for this call alone, and no earlier yes counts for it.
    pub once_only: bool,
    /// What could not be evaluated; for the journal only, since it may quote arguments.
    pub errors: Vec<String>,
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call may be made.
    Allow,
    /// The call must not be made.
    Deny {
        /// Why, in words for the program's author.
        reason: String,
    },
    /// The call may be made if a person says so.
    Ask {
        /// Why it needs one; may be empty.
        reason: String,
    },
}

impl Verdict {
    /// The word in the journal.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny { .. } => "deny",
            Self::Ask { .. } => "ask",
        }
    }
}

/// A step of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Which tools exist: `tools.allow` and `tools.block`.
    Visibility,
    /// Tools that look otherwise than they were pinned: `ptcctl tools pin`.
    Pins,
    /// What tools do; lets everything through.
    Effects,
    /// The operator's Cedar policies.
    Cedar,
    /// Rubrics in plain language: `policy.risk`.
    Risk,
    /// Calls that need a person: `policy.ask`.
    Ask,
    /// Calls that need a person and were allowed beforehand: `policy.grants`.
    Grant,
}

impl Step {
    /// The word in the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Visibility => "visibility",
            Self::Pins => "pins",
            Self::Effects => "effects",
            Self::Cedar => "cedar",
            Self::Risk => "risk",
            Self::Ask => "ask",
            Self::Grant => "grant",
        }
    }
}

impl Decision {
    /// A decision that no policy by name had a part in.
    pub fn new(verdict: Verdict, step: Step, effect: Effect) -> Self {
        Self {
            verdict,
            step,
            effect,
            policies: Vec::new(),
            rubrics: Vec::new(),
            opinions: Vec::new(),
            once_only: false,
            errors: Vec::new(),
        }
    }
}
