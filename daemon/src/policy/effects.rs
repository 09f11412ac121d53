//! Says what a tool does to the world: reads, writes, or may destroy.

use std::collections::BTreeSet;
use std::fmt;

use globset::GlobSet;
use serde_json::Value;

use super::visibility::{PolicyError, compile};
use crate::config::EffectsConfig;

/// What a tool does, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It changes something and destroys nothing.
    Write,
    /// It may destroy something.
    Destructive,
}

impl Effect {
    /// The word in the configuration, in JSON and in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The hints of MCP about a tool, every default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the four hints that MCP defines"
)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy something.
    pub destructive: bool,
    /// A second call changes nothing more.
    pub idempotent: bool,
    /// It reaches what lies outside its server.
    pub open_world: bool,
}

impl Hints {
    /// What annotations say; what they leave out is as MCP's specification has it for tools that say nothing: not read
    /// only, destructive, not idempotent, open world.
    fn of(annotations: Option<&Value>) -> Self {
        let hint = |key: &str, default: bool| {
            annotations
                .and_then(|all| all.get(key))
                .and_then(Value::as_bool)
                .unwrap_or(default)
        };
        Self {
            read_only: hint("readOnlyHint", false),
            destructive: hint("destructiveHint", true),
            idempotent: hint("idempotentHint", false),
            open_world: hint("openWorldHint", true),
        }
    }

    fn effect(self) -> Effect {
        match self {
            Self {
                read_only: true, ..
            } => Effect::Read,
            Self {
                destructive: false, ..
            } => Effect::Write,
            _ => Effect::Destructive,
        }
    }
}

/// What is known of the effects of tools in one configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// Servers whose annotations are believed.
    trusted: BTreeSet<String>,
    read: GlobSet,
    write: GlobSet,
    destructive: GlobSet,
}

impl Effects {
    pub(super) fn new(
        config: &EffectsConfig,
        trusted: BTreeSet<String>,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            trusted,
            read: compile("policy.effects.read", &config.read)?,
            write: compile("policy.effects.write", &config.write)?,
            destructive: compile("policy.effects.destructive", &config.destructive)?,
        })
    }

    /// What is believed of a server's annotations.
    pub(super) fn hints(&self, server: &str, annotations: Option<&Value>) -> Hints {
        Hints::of(annotations.filter(|_| self.trusted.contains(server)))
    }

    /// What a tool does. Of the operator's globs the strictest that matches counts, before what is believed of the
    /// annotations. One that makes a tool look more harmless matches its exact name only, so that a newcomer with a
    /// suffix has nothing of it; one that makes it stricter matches the name without the suffix, too.
    pub(super) fn effect(&self, callable: &str, plain: &str, hints: Hints) -> Effect {
        let believed = hints.effect();
        if self.destructive.is_match(callable) || self.destructive.is_match(plain) {
            Effect::Destructive
        } else if self.write.is_match(callable) {
            Effect::Write
        } else if self.write.is_match(plain) {
            believed.max(Effect::Write)
        } else if self.read.is_match(callable) {
            Effect::Read
        } else {
            believed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn effects(read: &[&str], write: &[&str], destructive: &[&str]) -> Effects {
        let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect();
        let config = EffectsConfig {
            read: owned(read),
            write: owned(write),
            destructive: owned(destructive),
        };
        Effects::new(&config, BTreeSet::from(["t".to_owned()])).unwrap()
    }

    #[test]
    fn annotations_count_only_where_their_server_is_trusted() {
        let effects = effects(&[], &[], &[]);
        for (annotations, trusted) in [
            (json!({"readOnlyHint": true}), Effect::Read),
            (json!({"destructiveHint": false}), Effect::Write),
            (
                json!({"readOnlyHint": true, "destructiveHint": true}),
                Effect::Read,
            ),
            (json!({"readOnlyHint": "true"}), Effect::Destructive),
            (json!({}), Effect::Destructive),
        ] {
            let effect = |server| {
                let hints = effects.hints(server, Some(&annotations));
                effects.effect("mcp__x__a", "mcp__x__a", hints)
            };
            assert_eq!(effect("t"), trusted, "{annotations}");
            assert_eq!(effect("u"), Effect::Destructive, "{annotations}");
        }
        let none = effects.hints("t", None);
        assert_eq!(
            (
                none.read_only,
                none.destructive,
                none.idempotent,
                none.open_world
            ),
            (false, true, false, true)
        );
    }

    #[test]
    fn the_strictest_glob_counts_and_a_suffix_gains_nothing() {
        let effects = effects(
            &["mcp__a__*", "mcp__b__get"],
            &["mcp__a__put", "mcp__b__put"],
            &["mcp__a__del*"],
        );
        let effect = |callable: &str, plain: &str, read_only: bool| {
            let hints = effects.hints("t", Some(&json!({"readOnlyHint": read_only})));
            effects.effect(callable, plain, hints)
        };
        assert_eq!(effect("mcp__a__get", "mcp__a__get", false), Effect::Read);
        assert_eq!(effect("mcp__a__put", "mcp__a__put", false), Effect::Write);
        assert_eq!(
            effect("mcp__a__del", "mcp__a__del", true),
            Effect::Destructive
        );
        assert_eq!(
            effect("mcp__b__get_1f3c", "mcp__b__get", false),
            Effect::Destructive
        );
        assert_eq!(
            effect("mcp__b__put_1f3c", "mcp__b__put", false),
            Effect::Destructive
        );
        assert_eq!(
            effect("mcp__b__put_1f3c", "mcp__b__put", true),
            Effect::Write
        );
    }
}
