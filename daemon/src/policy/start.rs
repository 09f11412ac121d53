//! Decides whether a client may start a program in an engine.

use super::Policy;

/// The facts about a program that is to be started.
#[derive(Clone, Copy, Debug)]
pub struct StartFacts<'a> {
    /// Name of the client that starts it, as it says itself; the same as for the program's calls.
    pub client: &'a str,
    /// Its version, as it says itself.
    pub version: &'a str,
    /// What is to run it.
    pub engine: &'a str,
}

/// What the policies say of a program's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartDecision {
    /// Why it must not start, in words for the program's author; nothing where it may.
    pub denied: Option<String>,
    /// Sorted ids of the policies that decided.
    pub policies: Vec<String>,
    /// What could not be evaluated.
    pub errors: Vec<String>,
}

impl Policy {
    /// Judges the start of a program. Pure. `None` where no policy is about starts: then programs start.
    pub fn decide_start(&self, start: &StartFacts<'_>) -> Option<StartDecision> {
        self.rules.cedar.as_ref()?.decide_start(start)
    }
}
