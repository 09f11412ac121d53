//! The rules in force, for programs that run while they change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Policy;

/// The rules in force. All clones are one, so that a program which runs meets new rules at its next call.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Mutex<Policy>>);

impl Gate {
    /// A gate with these rules.
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(Mutex::new(policy)))
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
