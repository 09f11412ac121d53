//! Reads the annotations of a policy.

use cedar_policy::{Effect, Policy};

/// Annotations that mean something here, and one that is a comment.
const KNOWN: [&str; 5] = ["id", "message", "requireApproval", "risk", "description"];
/// Longest id, in characters.
const MAX_ID: usize = 64;
/// Longest text for the author of a program or for the person who is asked, in characters.
const MAX_TEXT: usize = 300;

/// What a policy says beside its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Its own id.
    pub(crate) id: Option<String>,
    /// What a program is told that it denies.
    pub(crate) message: Option<String>,
    /// Why a person is to be asked; empty where it does not say.
    pub(crate) approval: Option<String>,
    /// The rubric by which calls that it permits are judged as well.
    pub(crate) risk: Option<String>,
}

/// Reads them.
///
/// # Errors
/// What is wrong with them: one that is misspelt would otherwise be a rule that is not there.
pub(crate) fn read(policy: &Policy) -> Result<Rule, String> {
    if let Some((unknown, _)) = policy.annotations().find(|(key, _)| !KNOWN.contains(key)) {
        let known = KNOWN.map(|key| format!("@{key}")).join(", ");
        return Err(format!(
            "the annotation @{} has no meaning: there are {known}",
            bounded(unknown)
        ));
    }
    let id = policy.annotation("id");
    if let Some(id) = id
        && (id.is_empty() || id.chars().count() > MAX_ID || id.chars().any(odd))
    {
        return Err(format!(
            "@id has 1 to {MAX_ID} characters, none of them a control character"
        ));
    }
    let message = text(policy, "message")?;
    let approval = text(policy, "requireApproval")?;
    let risk = text(policy, "risk")?;
    if risk.as_deref() == Some("") {
        return Err("@risk names a rubric of policy.risk, such as @risk(\"careful\")".to_owned());
    }
    match policy.effect() {
        Effect::Forbid if approval.is_some() => Err(
            "@requireApproval belongs to a permit: a call that a forbid matches is denied"
                .to_owned(),
        ),
        Effect::Forbid if risk.is_some() => {
            Err("@risk belongs to a permit: a call that a forbid matches is denied".to_owned())
        }
        Effect::Permit if message.is_some() => Err(
            "@message belongs to a forbid: a permit denies nothing, so nobody would read it"
                .to_owned(),
        ),
        _ => Ok(Rule {
            id: id.map(str::to_owned),
            message: message.filter(|text| !text.is_empty()),
            approval,
            risk,
        }),
    }
}

fn text(policy: &Policy, key: &str) -> Result<Option<String>, String> {
    match policy.annotation(key) {
        Some(text) if text.chars().count() > MAX_TEXT || text.chars().any(odd) => Err(format!(
            "@{key} has at most {MAX_TEXT} characters, none of them a control character"
        )),
        other => Ok(other.map(str::to_owned)),
    }
}

fn odd(c: char) -> bool {
    c.is_control()
}

fn bounded(text: &str) -> String {
    text.chars().take(MAX_ID).collect()
}
