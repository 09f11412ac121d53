//! `ptcctl policy`: checks the policies on disk, and what they would say of a call.

use std::time::Duration;

use clap::Subcommand;
use ptc_protocol::detail::DecisionEntry;
use ptc_protocol::policy::{PolicyChecked, TrialCall, TrialStart};
use ptc_protocol::route;

use super::output::{print, print_json, say};
use super::words::plain;
use super::{Context, Exit, call, inspect};

/// How long the check of a large set may take.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(super) enum Arguments {
    /// Have the daemon read the policies on disk, and tell every fault in them; nothing is taken over
    Check {
        /// Judge a call of this tool, the first of a program, and say why; nothing is called
        #[arg(long = "call", value_name = "TOOL")]
        tool: Option<String>,
        /// Name of the client whose program would start, or make the call
        #[arg(long, value_name = "NAME", default_value = "ptcctl")]
        client: String,
        /// The call's arguments, as for `ptcctl call`
        #[arg(value_name = "NAME=VALUE", requires = "tool")]
        pairs: Vec<String>,
    },
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let Arguments::Check {
        tool,
        client,
        pairs,
    } = arguments;
    let body = match tool {
        None => serde_json::to_string(&TrialCall {
            tool: String::new(),
            arguments: serde_json::Map::new(),
            client: client.clone(),
        })?,
        Some(name) => {
            let tool = match inspect::tool(context, name).await? {
                Ok(tool) => tool,
                Err(text) => return Ok(context.output.failure(&text, Exit::Failure)),
            };
            serde_json::to_string(&TrialCall {
                tool: name.clone(),
                arguments: call::fitted(call::given(pairs, None)?, &tool)?,
                client: client.clone(),
            })?
        }
    };
    let peer = context.connect().await?;
    let checked: PolicyChecked = peer.post_text(route::POLICY_CHECK, body, LIMIT).await?;
    if context.output.json {
        print_json(&serde_json::to_value(&checked)?)?;
        return Ok(exit_of(&checked));
    }
    for fault in &checked.faults {
        say(&plain(fault));
    }
    for warning in &checked.warnings {
        context
            .output
            .message(&format!("warning: {}", plain(warning)));
    }
    if let Some(refused) = &checked.refused {
        say(&plain(refused));
    } else if let Some(decision) = &checked.decision {
        print(&lines(decision).join("\n"))?;
    } else if checked.faults.is_empty() {
        print(&sound(&checked))?;
    }
    Ok(exit_of(&checked))
}

/// A call that is denied is an answer, not a failure.
fn exit_of(checked: &PolicyChecked) -> Exit {
    if checked.faults.is_empty() && checked.refused.is_none() {
        Exit::Ok
    } else {
        Exit::Failure
    }
}

fn sound(checked: &PolicyChecked) -> String {
    let Some(path) = &checked.path else {
        return "no Cedar policies are configured (policy.cedar): every tool that exists may be called"
            .to_owned();
    };
    let policies = match checked.policies {
        0 => "no policy, so every call is denied".to_owned(),
        1 => "1 policy".to_owned(),
        more => format!("{more} policies"),
    };
    let mut lines = vec![format!("{}: no faults; {policies}", plain(path))];
    if checked.starts.is_empty() {
        lines.push(
            "programs: no policy names Action::\"run_program\", so every client may start them"
                .to_owned(),
        );
    }
    lines.extend(checked.starts.iter().map(start));
    lines.join("\n")
}

/// What the policies say of a client's programs in one engine.
fn start(start: &TrialStart) -> String {
    let said = &start.said;
    let why = match (&said.reason, said.policies.as_slice()) {
        (Some(reason), _) => format!(": {}", plain(reason)),
        (None, []) => String::new(),
        (None, policies) => format!(": {}", plain(&policies.join(", "))),
    };
    let errors = said
        .errors
        .iter()
        .map(|error| format!("; not evaluated: {}", plain(error)));
    format!(
        "programs of {} in {}: {}{why}{}",
        plain(&start.client),
        plain(&start.engine),
        plain(&said.verdict),
        errors.collect::<String>()
    )
}

/// What the gate says, the verdict first and the reasons below it.
fn lines(decision: &DecisionEntry) -> Vec<String> {
    let reason = decision.reason.as_deref().map(plain);
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let mut lines = vec![
        format!("{}{reason}", plain(&decision.verdict)),
        format!("effect: {}", plain(&decision.effect)),
        format!("decided by: {}", plain(&decision.step)),
    ];
    if !decision.policies.is_empty() {
        let policies: Vec<String> = decision.policies.iter().map(|id| plain(id)).collect();
        let label = if policies.len() == 1 {
            "policy"
        } else {
            "policies"
        };
        lines.push(format!("{label}: {}", policies.join(", ")));
    }
    for risk in &decision.risk {
        let verdict = risk.verdict.as_deref().unwrap_or("not asked now");
        let why = risk.why.as_deref().map(plain);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!(
            "rubric: {}: {}{why}",
            plain(&risk.rubric),
            plain(verdict)
        ));
    }
    for error in &decision.errors {
        lines.push(format!("not evaluated: {}", plain(error)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use ptc_protocol::detail::RiskEntry;

    use super::*;

    #[test]
    fn a_decision_is_told_with_its_reasons() {
        let decision = DecisionEntry {
            verdict: "deny".to_owned(),
            step: "cedar".to_owned(),
            effect: "write".to_owned(),
            policies: vec!["a".to_owned(), "b\u{1b}".to_owned()],
            risk: vec![RiskEntry {
                rubric: "careful".to_owned(),
                ..RiskEntry::default()
            }],
            answer: None,
            reason: Some("policy \"a\" forbids this call".to_owned()),
            errors: vec!["x".to_owned()],
            rules: None,
        };
        assert_eq!(
            lines(&decision),
            [
                "deny: policy \"a\" forbids this call",
                "effect: write",
                "decided by: cedar",
                "policies: a, b\u{fffd}",
                "rubric: careful: not asked now",
                "not evaluated: x",
            ]
        );
        let one = DecisionEntry {
            policies: vec!["a".to_owned()],
            ..DecisionEntry::default()
        };
        assert_eq!(lines(&one)[3], "policy: a");
    }

    #[test]
    fn a_denied_call_is_an_answer_and_a_fault_is_a_failure() {
        let checked = PolicyChecked {
            decision: Some(DecisionEntry::default()),
            ..PolicyChecked::default()
        };
        assert_eq!(exit_of(&checked), Exit::Ok);
        let faulty = PolicyChecked {
            faults: vec!["x".to_owned()],
            ..PolicyChecked::default()
        };
        assert_eq!(exit_of(&faulty), Exit::Failure);
        assert!(sound(&PolicyChecked::default()).starts_with("no Cedar policies are configured"));
    }
}
