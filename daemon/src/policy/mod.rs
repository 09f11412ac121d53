//! Decides whether a call may be made: the one gate between a program and the servers.
//!
//! The steps, each of which only tightens what the one before let through: which tools exist (`visibility`), which look
//! as they did when they were pinned (`pins`), what a
//! tool does (`effects`), the operator's policies (`cedar`), rubrics that a model judges by (`risk`), what needs a person
//! (`policy.ask`). Deciding is pure; only loading reads files, and only `risk` asks anybody.

mod cedar;
mod decision;
mod effects;
mod gate;
mod pins;
pub mod risk;
mod start;
mod visibility;
#[cfg(test)]
mod worked;

use std::collections::BTreeSet;
use std::sync::Arc;

use globset::GlobSet;
use serde_json::{Map, Value};

pub use self::cedar::Said;
pub use self::decision::{Decision, Step, Verdict};
pub use self::effects::{Effect, Hints};
pub use self::gate::Gate;
pub use self::pins::{Pin, Pins};
pub use self::start::{StartDecision, StartFacts};
pub use self::visibility::PolicyError;

use self::cedar::Cedar;
use self::effects::Effects;
use self::risk::{Keys, Risk};
use self::visibility::{Visibility, compile};
use crate::config::{Config, GrantConfig, ToolFilter};

/// The facts about a call that rules may look at.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// What is called.
    pub tool: ToolFacts<'a>,
    /// The arguments as they will be sent.
    pub arguments: &'a Map<String, Value>,
}

/// The facts about a tool that rules may look at.
#[derive(Clone, Copy, Debug)]
pub struct ToolFacts<'a> {
    /// Callable name.
    pub callable: &'a str,
    /// Callable name without the suffix that keeps it apart from others.
    pub plain: &'a str,
    /// Name of the server.
    pub server: &'a str,
    /// Name of the tool as the server gave it.
    pub tool: &'a str,
    /// What the server says it is for.
    pub description: Option<&'a str>,
    /// What the server says the tool does.
    pub annotations: Option<&'a Value>,
    /// Schema of its arguments.
    pub input_schema: Option<&'a Value>,
    /// Schema of its results, whose texts a model reads, too.
    pub output_schema: Option<&'a Value>,
}

/// The facts about the program that calls.
#[derive(Clone, Copy, Debug)]
pub struct ProgramFacts<'a> {
    /// Name of the client that started it, as it says itself.
    pub client: &'a str,
    /// Its version, as it says itself.
    pub version: &'a str,
    /// What runs it.
    pub engine: &'a str,
    /// Id of the run.
    pub run: &'a str,
    /// Calls of the run that were judged before this one.
    pub call_index: u64,
    /// Calls of this tool in the run that were let through before this one.
    pub calls_to_tool: u64,
}

/// The rules of one configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Arc<Rules>,
}

#[derive(Debug)]
struct Rules {
    visibility: Visibility,
    effects: Effects,
    cedar: Option<Cedar>,
    risk: Option<Risk>,
    /// Tools whose calls need a person.
    ask: GlobSet,
    /// Tools of which the first so many calls of a program need none.
    grants: Vec<(GlobSet, u64)>,
}

impl Policy {
    /// The rules of a configuration, its policy files read; `keys` gives those of endpoints that judge. Blocking.
    ///
    /// # Errors
    /// A glob that is malformed, every fault of the policy files, a key that is not to be had; nothing is in force in
    /// their place.
    pub fn load(config: &Config, keys: &Keys<'_>) -> Result<Self, PolicyError> {
        let trusted: BTreeSet<String> = config
            .servers
            .iter()
            .filter(|server| server.trust_annotations)
            .map(|server| server.name.clone())
            .collect();
        let path = config.policy.cedar.as_deref();
        let risk = match config.policy.risk.as_slice() {
            [] => None,
            rubrics => Some(Risk::open(rubrics, keys)?),
        };
        let names = risk.as_ref().map(Risk::names).unwrap_or_default();
        Ok(Self::of(Rules {
            visibility: Visibility::new(&config.tools.filter)?,
            effects: Effects::new(&config.policy.effects, trusted)?,
            cedar: path.map(|path| Cedar::load(path, &names)).transpose()?,
            risk,
            ask: compile("policy.ask", &config.policy.ask)?,
            grants: grants(&config.policy.grants)?,
        }))
    }

    /// Rules of nothing but which tools exist.
    ///
    /// # Errors
    /// A glob that is malformed.
    pub fn new(filter: &ToolFilter) -> Result<Self, PolicyError> {
        Ok(Self::of(Rules {
            visibility: Visibility::new(filter)?,
            effects: Effects::default(),
            cedar: None,
            risk: None,
            ask: GlobSet::empty(),
            grants: Vec::new(),
        }))
    }

    fn of(rules: Rules) -> Self {
        Self {
            rules: Arc::new(rules),
        }
    }

    /// Whether a tool exists for programs and clients.
    pub fn visible(&self, callable: &str, plain: &str) -> bool {
        self.rules.visibility.visible(callable, plain)
    }

    /// The configuration key that hides a tool.
    pub fn rule_name(&self) -> &'static str {
        self.rules.visibility.rule_name()
    }

    /// What a tool does to the world.
    pub fn effect(&self, tool: &ToolFacts<'_>) -> Effect {
        let hints = self.rules.effects.hints(tool.server, tool.annotations);
        self.rules.effects.effect(tool.callable, tool.plain, hints)
    }

    /// What is to be said of the Cedar policies; `None` where none are configured.
    pub fn cedar(&self) -> Option<Said<'_>> {
        self.rules.cedar.as_ref().map(Cedar::said)
    }

    /// Who judges by the rubrics that a decision names; `None` where there are none.
    pub fn risk(&self) -> Option<&Risk> {
        self.rules.risk.as_ref()
    }

    /// What is believed of a tool's annotations.
    pub fn hints(&self, tool: &ToolFacts<'_>) -> Hints {
        self.rules.effects.hints(tool.server, tool.annotations)
    }

    /// Judges one call. Pure: the same call gets the same answer.
    pub fn decide(&self, call: &CallFacts<'_>, program: &ProgramFacts<'_>) -> Decision {
        let tool = &call.tool;
        let hints = self.rules.effects.hints(tool.server, tool.annotations);
        let effect = self.rules.effects.effect(tool.callable, tool.plain, hints);
        if !self.visible(tool.callable, tool.plain) {
            let reason = format!(
                "{} is blocked by {} in the configuration",
                tool.callable,
                self.rule_name()
            );
            return Decision::new(Verdict::Deny { reason }, Step::Visibility, effect);
        }
        let mut decision = match &self.rules.cedar {
            None => Decision::new(Verdict::Allow, Step::Effects, effect),
            Some(cedar) => cedar.decide(call, program, effect, hints),
        };
        if let Some(risk) = &self.rules.risk
            && !matches!(decision.verdict, Verdict::Deny { .. })
        {
            for name in risk.of_tool(tool.callable, tool.plain) {
                if !decision.rubrics.iter().any(|known| known == name) {
                    decision.rubrics.push(name.to_owned());
                }
            }
        }
        let ask = &self.rules.ask;
        let asks = ask.is_match(tool.callable) || ask.is_match(tool.plain);
        if decision.verdict == Verdict::Allow && asks {
            decision.step = Step::Ask;
            decision.verdict = Verdict::Ask {
                reason: String::new(),
            };
        }
        // What is denied stays so, and what a rubric wants asked comes after this.
        if matches!(decision.verdict, Verdict::Ask { .. })
            && self.is_granted(tool.callable, program.calls_to_tool)
        {
            decision.step = Step::Grant;
            decision.verdict = Verdict::Allow;
        }
        decision
    }

    /// Whether a call of this tool needs no person although it would. Only the exact name counts, so that a newcomer
    /// with a suffix has nothing of it; of several grants the smallest counts.
    fn is_granted(&self, callable: &str, calls_before: u64) -> bool {
        let grants = self.rules.grants.iter();
        let calls = grants
            .filter(|(tools, _)| tools.is_match(callable))
            .map(|(_, calls)| *calls)
            .min();
        calls.is_some_and(|calls| calls_before < calls)
    }
}

fn grants(config: &[GrantConfig]) -> Result<Vec<(GlobSet, u64)>, PolicyError> {
    let one = |grant: &GrantConfig| Ok((compile("policy.grants", &grant.tools)?, grant.calls));
    config.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_follows_visibility() {
        let policy = Policy::new(&ToolFilter::Block(vec!["mcp__a__*".into()])).unwrap();
        let arguments = Map::new();
        let decide = |callable| {
            let call = CallFacts {
                tool: ToolFacts {
                    callable,
                    plain: callable,
                    server: "a",
                    tool: "x",
                    description: None,
                    annotations: None,
                    input_schema: None,
                    output_schema: None,
                },
                arguments: &arguments,
            };
            let program = ProgramFacts {
                client: "c",
                version: "",
                engine: "cpython",
                run: "r",
                call_index: 0,
                calls_to_tool: 0,
            };
            policy.decide(&call, &program)
        };
        let effect = Effect::Destructive;
        assert_eq!(
            decide("mcp__b__x"),
            Decision::new(Verdict::Allow, Step::Effects, effect)
        );
        let reason = "mcp__a__x is blocked by tools.block in the configuration".to_owned();
        assert_eq!(
            decide("mcp__a__x"),
            Decision::new(Verdict::Deny { reason }, Step::Visibility, effect)
        );
    }

    #[test]
    fn a_grant_covers_the_first_calls_of_a_tool_and_nothing_that_is_denied() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.cedar");
        let text = "permit(principal, action, resource);\n\
                    @requireApproval(\"x\") permit(principal, action, resource == Tool::\"a/asks\");\n\
                    forbid(principal, action, resource) when { context.arguments has bad };";
        std::fs::write(&file, text).unwrap();
        let mut config = Config::default();
        config.policy.cedar = Some(file);
        config.policy.ask = vec!["mcp__a__listed".to_owned(), "mcp__a__other".to_owned()];
        config.policy.grants = vec![
            GrantConfig {
                tools: vec!["mcp__a__*".to_owned()],
                calls: 5,
            },
            GrantConfig {
                tools: vec!["mcp__a__asks".to_owned(), "mcp__a__listed".to_owned()],
                calls: 2,
            },
        ];
        let policy = Policy::load(&config, &|_| Ok(String::new())).unwrap();
        let decide = |tool: &str, callable: &str, before: u64, arguments: Value| {
            let arguments = arguments.as_object().unwrap().clone();
            let plain = format!("mcp__a__{tool}");
            let call = CallFacts {
                tool: ToolFacts {
                    callable,
                    plain: &plain,
                    server: "a",
                    tool,
                    description: None,
                    annotations: None,
                    input_schema: None,
                    output_schema: None,
                },
                arguments: &arguments,
            };
            let program = ProgramFacts {
                client: "c",
                version: "",
                engine: "cpython",
                run: "r",
                call_index: before,
                calls_to_tool: before,
            };
            let decision = policy.decide(&call, &program);
            (decision.verdict.as_str(), decision.step)
        };
        let none = || serde_json::json!({});
        for tool in ["asks", "listed"] {
            let callable = format!("mcp__a__{tool}");
            for before in [0, 1] {
                assert_eq!(
                    decide(tool, &callable, before, none()),
                    ("allow", Step::Grant)
                );
            }
            assert_eq!(decide(tool, &callable, 2, none()).0, "ask");
            let bad = serde_json::json!({"bad": 1});
            assert_eq!(decide(tool, &callable, 0, bad), ("deny", Step::Cedar));
        }
        assert_eq!(
            decide("other", "mcp__a__other", 4, none()),
            ("allow", Step::Grant)
        );
        // What asks nobody is not the grant's.
        assert_eq!(
            decide("free", "mcp__a__free", 0, none()),
            ("allow", Step::Cedar)
        );
    }

    #[test]
    fn a_newcomer_with_a_suffix_has_nothing_of_a_grant() {
        let mut config = Config::default();
        config.policy.grants = vec![GrantConfig {
            tools: vec!["mcp__a__listed".to_owned()],
            calls: 5,
        }];
        let policy = Policy::load(&config, &|_| Ok(String::new())).unwrap();
        assert!(policy.is_granted("mcp__a__listed", 4));
        assert!(!policy.is_granted("mcp__a__listed_1f3c", 0));
    }
}
