//! Decides whether a call may be made: the one gate between a program and the servers.

mod visibility;

pub use visibility::{Policy, PolicyError};

/// What the gate says about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call may be made.
    Allow,
    /// The call must not be made.
    Deny {
        /// Why, in words for the program's author.
        reason: String,
    },
    /// The call may be made if the person at the client says so. No rule of this version gives this.
    Ask {
        /// What to ask.
        question: String,
    },
}

/// The facts about a call that rules may look at.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// Callable name.
    pub callable: &'a str,
    /// Callable name without the suffix that keeps it apart from others.
    pub plain: &'a str,
    /// Name of the server.
    pub server: &'a str,
    /// Name of the tool as the server gave it.
    pub tool: &'a str,
}

impl Policy {
    /// Judges one call. Pure: the same call gets the same answer.
    pub fn decide(&self, call: &CallFacts<'_>) -> Decision {
        if self.visible(call.callable, call.plain) {
            return Decision::Allow;
        }
        Decision::Deny {
            reason: format!(
                "{} is blocked by {} in the configuration",
                call.callable,
                self.rule_name()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ToolFilter;

    #[test]
    fn the_gate_follows_visibility() {
        let policy = Policy::new(&ToolFilter::Block(vec!["mcp__a__*".into()])).unwrap();
        let facts = |callable| CallFacts {
            callable,
            plain: callable,
            server: "a",
            tool: "x",
        };
        assert_eq!(policy.decide(&facts("mcp__b__x")), Decision::Allow);
        assert_eq!(
            policy.decide(&facts("mcp__a__x")),
            Decision::Deny {
                reason: "mcp__a__x is blocked by tools.block in the configuration".into()
            }
        );
    }
}
