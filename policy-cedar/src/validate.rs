//! Finds names in policies that no call ever has, and what rests on a client's own word.

use cedar_policy::{
    Effect, Policy, PolicySet, PrincipalConstraint, Schema, ValidationError, ValidationMode,
    ValidationWarning, Validator,
};
use miette::Diagnostic;

use crate::load::first_offset;
use crate::programs;

/// What calls look like. `arguments` has no attributes here, since Cedar knows no open record: what is said of them
/// is left out below.
const SCHEMA: &str = r"
entity Client { name: String, version: String, transport: String };
entity Server { name: String };
entity Tool in [Server] {
    name: String, server: String, tool: String, effect: String,
    readOnlyHint: Bool, destructiveHint: Bool, idempotentHint: Bool, openWorldHint: Bool,
};
action call_tool appliesTo {
    principal: Client,
    resource: Tool,
    context: {
        arguments: {},
        arguments_json: String,
        arguments_omitted: Bool,
        program: { engine: String, run_id: String, call_index: Long, calls_to_tool: Long },
    },
};
";

/// Something found in a policy.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) policy: String,
    /// Where, in bytes of its text; `None` where it concerns the whole policy.
    pub(crate) offset: Option<usize>,
    pub(crate) message: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) faults: Vec<Found>,
    pub(crate) warnings: Vec<Found>,
}

/// Compares policies with the form of calls.
pub(crate) fn validate(set: &PolicySet) -> Findings {
    let mut findings = Findings::default();
    let mut form = SCHEMA.to_owned();
    if programs::may_be_named(set) {
        form.push_str(programs::SCHEMA);
    }
    let schema = match Schema::from_cedarschema_str(&form) {
        Ok((schema, _)) => schema,
        Err(error) => {
            findings.faults.push(Found {
                policy: String::new(),
                offset: None,
                message: format!("the form of calls cannot be read: {error}"),
            });
            return findings;
        }
    };
    let result = Validator::new(schema).validate(set, ValidationMode::Strict);
    for error in result.validation_errors().filter(|error| counts(error)) {
        let policy = error.policy_id().to_string();
        findings.faults.push(found(policy, error));
    }
    for warning in result.validation_warnings() {
        let policy = warning.policy_id().to_string();
        let reads_arguments = set
            .policy(warning.policy_id())
            .is_some_and(|policy| policy.to_string().contains("arguments"));
        match warning {
            // It can apply to no call at all.
            ValidationWarning::InvalidActionApplication(_) => {
                findings.faults.push(found(policy, warning));
            }
            // `has` on arguments is never true for the validator.
            ValidationWarning::ImpossiblePolicy(_) if reads_arguments => {}
            _ => findings.warnings.push(found(policy, warning)),
        }
    }
    findings
        .warnings
        .extend(set.policies().filter_map(rests_on_client));
    findings
}

/// Whether an error of the validator's is one here.
fn counts(error: &ValidationError) -> bool {
    match error {
        ValidationError::UnsafeAttributeAccess(_)
        | ValidationError::UnsafeOptionalAttributeAccess(_) => {
            let text = error.to_string();
            !(text.contains("attribute `arguments")
                && text.contains("in context for Action::\"call_tool\""))
        }
        // Strictness for the sake of other tools; what cannot be evaluated denies.
        ValidationError::EmptySetForbidden(_) | ValidationError::NonLitExtConstructor(_) => false,
        _ => true,
    }
}

fn found(policy: String, diagnostic: &dyn Diagnostic) -> Found {
    let text = diagnostic.to_string();
    let begin = format!("for policy `{policy}`");
    let text = match text.strip_prefix(&begin) {
        Some(rest) => rest.trim_start_matches([',', ':', ' ']).to_owned(),
        None => text,
    };
    let message = match diagnostic.help() {
        Some(help) => format!("{text}: {help}"),
        None => text,
    };
    Found {
        offset: first_offset(diagnostic),
        policy,
        message,
    }
}

/// A permit that looks at the client: every client can give itself any name.
fn rests_on_client(policy: &Policy) -> Option<Found> {
    if policy.effect() != Effect::Permit {
        return None;
    }
    let by_scope = !matches!(
        policy.principal_constraint(),
        PrincipalConstraint::Any | PrincipalConstraint::Is(_)
    );
    if !by_scope && !conditions_read_principal(policy) {
        return None;
    }
    Some(Found {
        policy: policy.id().to_string(),
        offset: None,
        message: format!(
            "permit \"{}\" rests on the client's own word: any client can give itself that name",
            policy.id()
        ),
    })
}

/// Whether a condition names the principal; one that cannot be read counts as doing so.
fn conditions_read_principal(policy: &Policy) -> bool {
    let Ok(json) = policy.to_json() else {
        return true;
    };
    json.get("conditions")
        .is_some_and(|conditions| conditions.to_string().contains(r#"{"Var":"principal"}"#))
}

#[cfg(test)]
mod tests {
    use crate::load::one;

    fn fault_of(condition: &str) -> Vec<String> {
        let text = format!("forbid(principal, action, resource) when {{ {condition} }};");
        one(&text).err().unwrap_or_default()
    }

    #[test]
    fn names_that_no_call_has_are_faults_with_hints() {
        for (text, words) in [
            (
                "permit(principal, action == Action::\"calltool\", resource);",
                "did you mean `Action::\"call_tool\"`?",
            ),
            (
                "permit(principal, action, resource in Sever::\"x\");",
                "did you mean `Server`?",
            ),
            (
                "permit(principal, action, resource == Client::\"x\");",
                "unable to find an applicable action",
            ),
        ] {
            let faults = one(text).unwrap_err();
            assert!(faults[0].contains(words), "{faults:?}");
            assert!(faults[0].starts_with("p.cedar:1:"), "{faults:?}");
        }
        for (condition, words) in [
            ("resource.readonlyHint", "did you mean `readOnlyHint`?"),
            ("context.argument.x == 1", "did you mean `arguments`?"),
            ("context.program.calls < 3", "attribute `program.calls`"),
            ("context.program.call_index < \"3\"", "unexpected type"),
            ("resource.effect like 3", "p.cedar:1:"),
        ] {
            let faults = fault_of(condition);
            assert!(
                faults.len() == 1 && faults[0].contains(words),
                "{condition}: {faults:?}"
            );
        }
    }

    #[test]
    fn what_is_said_of_arguments_is_no_fault() {
        for condition in [
            "context.arguments.amount > 500",
            "context.arguments has amount && context.arguments.amount > 500",
            "context.arguments[\"dry-run\"] == true",
            "context.arguments.a.b.c like \"*x*\"",
            "context.arguments.tags.contains(\"x\")",
            "context.arguments.tags == []",
            "context.arguments.to == \"x\" || context.program.call_index > 3",
            "context.arguments.price.greaterThan(decimal(\"9.5\"))",
            "ip(context.arguments.host).isLoopback()",
            "context.arguments_omitted",
            "context.arguments_json like \"*secret*\"",
        ] {
            assert_eq!(fault_of(condition), [""; 0], "{condition}");
        }
    }

    #[test]
    fn a_permit_that_looks_at_the_client_is_warned_of() {
        let warnings = |text: &str| one(text).unwrap().warnings().to_vec();
        for text in [
            "permit(principal == Client::\"x\", action, resource);",
            "permit(principal, action, resource) when { principal.name like \"x*\" };",
        ] {
            let found = warnings(text);
            assert_eq!(
                found,
                [
                    "p.cedar:1:1: permit \"policy0\" rests on the client's own word: any client can give itself that name"
                ]
            );
        }
        for text in [
            "permit(principal, action, resource) when { resource.name == \"principal\" };",
            "permit(principal is Client, action, resource);",
            "forbid(principal == Client::\"x\", action, resource);",
        ] {
            assert_eq!(warnings(text), [""; 0]);
        }
    }
}
