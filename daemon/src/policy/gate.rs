//! The rules in force, for programs that run while they change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::decision::{Decision, Step, Verdict};
use super::pins::Pins;
use super::{CallFacts, Policy, ProgramFacts};

/// The rules in force. All clones are one, so that a program which runs meets new rules at its next call.
#[derive(Clone, Debug)]
pub struct Gate {
    policy: Arc<Mutex<Policy>>,
    pins: Pins,
}

impl Gate {
    /// A gate with these rules and pins.
    pub fn new(policy: Policy, pins: Pins) -> Self {
        Self {
            policy: Arc::new(Mutex::new(policy)),
            pins,
        }
    }

    /// The pins, which no reload changes.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Judges one call by rules that this gate gave. Pure as [`Policy::decide`] is, but for what is pinned.
    pub fn decide(
        &self,
        policy: &Policy,
        call: &CallFacts<'_>,
        program: &ProgramFacts<'_>,
    ) -> Decision {
        let decision = policy.decide(call, program);
        if decision.step == Step::Visibility {
            return decision;
        }
        match self.pins.denies(&call.tool) {
            None => decision,
            Some(reason) => Decision::new(Verdict::Deny { reason }, Step::Pins, decision.effect),
        }
    }

    /// The rules of this moment.
    pub fn policy(&self) -> Policy {
        self.lock().clone()
    }

    /// Puts other rules in force, as a whole.
    pub fn replace(&self, policy: Policy) {
        *self.lock() = policy;
    }

    fn lock(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
