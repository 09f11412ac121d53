//! Judges whether a client may start a program: the part of a set that names `Action::"run_program"`.
//!
//! A set that names it in no scope says nothing of programs, and they start. One that does is asked about each of them,
//! as a whole: what none of its policies permits does not start.

use std::collections::BTreeMap;

use cedar_policy::{
    ActionConstraint, Context, Decision, Effect, Entities, EntityUid, Policy, PolicySet, Request,
    ResourceConstraint,
};

use crate::annotations::Rule;
use crate::facts::Start;
use crate::judge::{self, Judgement, Verdict};
use crate::load::Policies;
use crate::validate::Found;

/// The type of what programs run in.
const ENGINE: &str = "Engine";
/// The id of the action.
const RUN_PROGRAM: &str = "run_program";
/// The id of the action that calls have.
const CALL_TOOL: &str = "call_tool";

/// What starts look like, for the schema. The engines are all there are, so that a misspelt one is a fault.
pub(crate) const SCHEMA: &str = r#"
entity Engine enum ["cpython", "monty"];
action run_program appliesTo { principal: Client, resource: Engine };
"#;

/// Whether a scope of the set names the action: then it judges programs.
pub(crate) fn are_named(set: &PolicySet) -> bool {
    any_action(set, |id| id == RUN_PROGRAM)
}

/// Whether a scope names an action other than that of calls. Such a set is compared with the form of starts, too, so that
/// the hint at a misspelt name is the right one.
pub(crate) fn may_be_named(set: &PolicySet) -> bool {
    any_action(set, |id| id != CALL_TOOL)
}

fn any_action(set: &PolicySet, wanted: fn(&str) -> bool) -> bool {
    set.policies()
        .flat_map(|policy| actions(policy).unwrap_or_default())
        .any(|action| wanted(action.id().unescaped()))
}

/// The actions that a scope names; nothing where it leaves them open.
fn actions(policy: &Policy) -> Option<Vec<EntityUid>> {
    match policy.action_constraint() {
        ActionConstraint::Any => None,
        ActionConstraint::In(actions) => Some(actions),
        ActionConstraint::Eq(action) => Some(vec![action]),
    }
}

/// Whether the scope of a policy leaves room for the start of a program.
fn reaches(policy: &Policy) -> bool {
    let action = actions(policy).is_none_or(|actions| {
        actions
            .iter()
            .any(|action| action.id().unescaped() == RUN_PROGRAM)
    });
    action
        && match policy.resource_constraint() {
            ResourceConstraint::Any => true,
            ResourceConstraint::In(uid) | ResourceConstraint::Eq(uid) => {
                uid.type_name().to_string() == ENGINE
            }
            ResourceConstraint::Is(kind) | ResourceConstraint::IsIn(kind, _) => {
                kind.to_string() == ENGINE
            }
        }
}

/// Permits of starts that want a person or a rubric asked: nobody is, before a program starts.
pub(crate) fn faults(set: &PolicySet, rules: &BTreeMap<String, Rule>) -> Vec<Found> {
    if !are_named(set) {
        return Vec::new();
    }
    let asks = |policy: &Policy| {
        let id = policy.id().to_string();
        let rule = rules.get(&id)?;
        let annotation = match (&rule.approval, &rule.risk) {
            (Some(_), _) => "@requireApproval",
            (None, Some(_)) => "@risk",
            (None, None) => return None,
        };
        let remedy = match actions(policy) {
            None => {
                "; write action == Action::\"call_tool\" in its scope, for it covers Action::\"run_program\" as well"
            }
            Some(_) => "",
        };
        Some(Found {
            policy: id,
            offset: None,
            message: format!("{annotation}: nobody is asked before a program starts{remedy}"),
        })
    };
    set.policies()
        .filter(|policy| reaches(policy))
        .filter_map(asks)
        .collect()
}

/// That a set which judges programs lets none start.
pub(crate) fn warning(set: &PolicySet) -> Option<Found> {
    let permits = |policy: &Policy| policy.effect() == Effect::Permit && reaches(policy);
    let named = set.policies().find(|policy| {
        let named = actions(policy).unwrap_or_default();
        named
            .iter()
            .any(|action| action.id().unescaped() == RUN_PROGRAM)
    })?;
    (!set.policies().any(permits)).then(|| Found {
        policy: named.id().to_string(),
        offset: None,
        message: "no permit is for Action::\"run_program\", so no program starts".to_owned(),
    })
}

impl Policies {
    /// Whether programs are judged before they start: whether a policy names `Action::"run_program"` in its scope.
    pub fn judges_programs(&self) -> bool {
        self.judges_programs
    }

    /// Judges the start of a program; nothing where no policy of the set is about starts.
    ///
    /// Whatever cannot be evaluated denies, as with calls. The verdict is never [`Verdict::Ask`].
    pub fn judge_start(&self, start: &Start<'_>) -> Option<Judgement> {
        if !self.judges_programs {
            return None;
        }
        Some(self.start(start).unwrap_or_else(|error| Judgement {
            verdict: not_evaluated(),
            policies: Vec::new(),
            risks: Vec::new(),
            errors: vec![judge::bounded(&error)],
        }))
    }

    fn start(&self, start: &Start<'_>) -> Result<Judgement, String> {
        let client = judge::client_name(&start.client);
        let principal = judge::uid(&self.types.client, client);
        let entity = judge::client_entity(&principal, &start.client)?;
        let entities =
            Entities::from_entities([entity], None).map_err(|error| error.to_string())?;
        let request = Request::new(
            principal,
            self.types.run_program.clone(),
            judge::uid(&self.types.engine, start.engine),
            Context::empty(),
            None,
        );
        let request = request.map_err(|error| error.to_string())?;
        let response = self
            .authorizer
            .is_authorized(&request, &self.set, &entities);
        let (policies, errors) = judge::reasons(&response);
        let verdict = match response.decision() {
            Decision::Deny if !policies.is_empty() => Verdict::Deny {
                reason: self.told(&policies, "this program"),
            },
            _ if !errors.is_empty() => not_evaluated(),
            Decision::Deny => Verdict::Deny {
                reason: format!(
                    "no policy permits programs of this client in the engine {}",
                    start.engine
                ),
            },
            Decision::Allow => Verdict::Allow,
        };
        Ok(Judgement {
            verdict,
            policies,
            risks: Vec::new(),
            errors,
        })
    }
}

fn not_evaluated() -> Verdict {
    Verdict::Deny {
        reason: "a policy cannot be evaluated for the start of a program".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Client;
    use crate::load::one;

    fn verdict(text: &str, client: &str, engine: &str) -> Option<Verdict> {
        let policies = one(text).unwrap();
        let client = Client {
            name: client,
            version: "1",
            transport: "socket",
        };
        Some(policies.judge_start(&Start { client, engine })?.verdict)
    }

    fn denied(reason: &str) -> Verdict {
        let reason = reason.to_owned();
        Verdict::Deny { reason }
    }

    #[test]
    fn a_set_that_names_programs_in_no_scope_judges_none() {
        for text in [
            "",
            "permit(principal, action, resource);",
            "forbid(principal, action, resource);",
            "permit(principal, action, resource) when { resource.effect == \"read\" };",
            "permit(principal, action == Action::\"call_tool\", resource);",
            "@message(\"Action::\\\"run_program\\\"\") forbid(principal, action, resource); // run_program",
        ] {
            assert_eq!(verdict(text, "x", "cpython"), None, "{text}");
        }
    }

    #[test]
    fn a_set_that_names_them_judges_all_by_all_of_its_policies() {
        let text = r#"
            permit(principal, action == Action::"call_tool", resource);
            permit(principal == Client::"editor", action == Action::"run_program", resource);
            permit(principal, action in [Action::"call_tool", Action::"run_program"], resource == Engine::"monty");
            @id("not-x") @message("x starts nothing")
            forbid(principal == Client::"x", action == Action::"run_program", resource);"#;
        assert_eq!(verdict(text, "editor", "cpython"), Some(Verdict::Allow));
        assert_eq!(verdict(text, "editor", "monty"), Some(Verdict::Allow));
        assert_eq!(verdict(text, "", "monty"), Some(Verdict::Allow));
        assert_eq!(
            verdict(text, "", "cpython"),
            Some(denied(
                "no policy permits programs of this client in the engine cpython"
            ))
        );
        let told = denied("policy \"not-x\": x starts nothing");
        assert_eq!(verdict(text, "x", "monty"), Some(told));
        // One that leaves the action open is about programs, too.
        let open = r#"permit(principal, action, resource);
            @id("no") forbid(principal, action == Action::"run_program", resource == Engine::"monty");"#;
        assert_eq!(verdict(open, "x", "cpython"), Some(Verdict::Allow));
        let told = denied("policy \"no\" forbids this program");
        assert_eq!(verdict(open, "x", "monty"), Some(told));
    }

    #[test]
    fn what_cannot_be_evaluated_denies() {
        let permit = r#"permit(principal, action == Action::"run_program", resource);"#;
        let forbid = r#"forbid(principal, action == Action::"run_program", resource)
            when { 9223372036854775807 + 1 > 0 };"#;
        let text = format!("{permit}{forbid}");
        let told = denied("a policy cannot be evaluated for the start of a program");
        assert_eq!(verdict(&text, "x", "cpython"), Some(told));
    }

    #[test]
    fn what_no_start_has_and_nobody_could_answer_is_a_fault() {
        let permit = "permit(principal, action == Action::\"run_program\", resource);\n";
        for (text, words) in [
            (
                "permit(principal, action == Action::\"run_programs\", resource);",
                "did you mean `Action::\"run_program\"`?",
            ),
            (
                "permit(principal, action == Action::\"run_program\", resource == Engine::\"mounty\");",
                "p.cedar:2:",
            ),
            (
                "permit(principal, action == Action::\"run_program\", resource == Tool::\"m/x\");",
                "p.cedar:2:",
            ),
            (
                "permit(principal, action, resource) when { resource.effect == \"read\" };",
                "`effect`",
            ),
            (
                "forbid(principal, action, resource) when { context.arguments.a > 1 };",
                "in context for Action::\"run_program\"",
            ),
            (
                "@requireApproval permit(principal, action, resource);",
                "write action == Action::\"call_tool\"",
            ),
            (
                "@requireApproval(\"x\") permit(principal, action == Action::\"run_program\", resource);",
                "@requireApproval: nobody is asked before a program starts",
            ),
            (
                "@risk(\"careful\") permit(principal, action == Action::\"run_program\", resource);",
                "@risk: nobody is asked",
            ),
        ] {
            let faults = one(&format!("{permit}{text}")).unwrap_err();
            assert!(
                faults.iter().any(|fault| fault.contains(words)),
                "{text}: {faults:?}"
            );
            assert!(
                faults.iter().all(|fault| fault.starts_with("p.cedar:2:")),
                "{faults:?}"
            );
        }
        // What is about calls alone, or looks before it reads, is none.
        for text in [
            "permit(principal, action == Action::\"call_tool\", resource) when { context.arguments.run_program == 1 };",
            "@requireApproval permit(principal, action, resource in Server::\"m\");",
            "@risk(\"careful\") permit(principal, action == Action::\"call_tool\", resource);",
            "forbid(principal, action, resource) when { resource is Tool && resource.effect == \"read\" };",
        ] {
            let loaded = one(&format!("{permit}{text}"));
            assert!(loaded.is_ok(), "{text}: {loaded:?}");
        }
    }

    #[test]
    fn engines_without_the_action_are_a_rule_that_would_not_be_there() {
        for text in [
            "forbid(principal, action, resource == Engine::\"monty\");",
            "forbid(principal, action, resource) when { resource is Engine };",
            "forbid(principal, action, resource) when { action == Action::\"run_program\" };",
        ] {
            assert!(one(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_set_that_lets_no_program_start_is_warned_of() {
        let forbid =
            "forbid(principal == Client::\"x\", action == Action::\"run_program\", resource);";
        let warnings = one(forbid).unwrap().warnings().to_vec();
        assert!(
            warnings[0].ends_with("so no program starts"),
            "{warnings:?}"
        );
        let all = format!("permit(principal, action, resource);{forbid}");
        assert_eq!(one(&all).unwrap().warnings(), [""; 0]);
    }
}
