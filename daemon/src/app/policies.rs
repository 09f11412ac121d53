//! Checks the policies on disk, and what they would say of one call.

use globset::Glob;
use ptc_protocol::detail::DecisionEntry;
use ptc_protocol::policy::{PolicyChecked, TrialCall, TrialStart};
use ptc_protocol::status::{Done, PolicyStatus, SCHEMA};

use super::{Inner, reload};
use crate::config::{self, EngineName};
use crate::engine::{judge_alone, judge_start};
use crate::policy::{Gate, Pin, Policy, Said, ToolFacts};

impl Inner {
    /// Reads the policies of the configuration file anew and judges a call by them; nothing is taken over. Blocking.
    pub(super) fn policy_checked(&self, call: Option<&TrialCall>) -> PolicyChecked {
        let mut checked = PolicyChecked {
            schema: SCHEMA,
            ..PolicyChecked::default()
        };
        let read = reload::with_policy(config::load_choice(&self.places.config), &self.keys());
        let policy = match read {
            Ok((_, policy)) => policy,
            Err(faults) => {
                checked.faults = faults.lines();
                return checked;
            }
        };
        if let Some(said) = policy.cedar() {
            let Said {
                path,
                count,
                digest,
                warnings,
                judges_programs: _,
            } = said;
            checked.path = Some(path.display().to_string());
            checked.policies = count;
            checked.rules = Some(digest.to_owned());
            checked.warnings = warnings.to_vec();
        }
        let client = call.map_or("ptcctl", |call| call.client.as_str());
        for engine in [EngineName::Cpython, EngineName::Monty] {
            if let Some(said) = judge_start(&policy, engine, client, "") {
                checked.starts.push(TrialStart {
                    client: client.to_owned(),
                    engine: engine.as_str().to_owned(),
                    said,
                });
            }
        }
        let call = call.filter(|call| !call.tool.is_empty());
        match call.map(|call| self.judged(policy, call)) {
            None => {}
            Some(Ok(decision)) => checked.decision = Some(decision),
            Some(Err(text)) => checked.refused = Some(text),
        }
        checked
    }

    fn judged(&self, policy: Policy, call: &TrialCall) -> Result<DecisionEntry, String> {
        let arguments = serde_json::Value::Object(call.arguments.clone()).to_string();
        let prepared = self.registry.prepare(&call.tool, &arguments);
        let prepared = prepared.map_err(|error| error.message)?;
        let parts = self.engine.parts();
        let pins = parts.gate.pins().clone();
        Ok(judge_alone(
            &Gate::new(policy, pins),
            &prepared,
            parts.limits.engines.default,
            &call.client,
        ))
    }

    /// Shows how tools stand to their pins, or pins them or takes their pins away: `verb` is `show`, `pin` (those that
    /// look otherwise than they were pinned are shown and left alone), `anew` or `unpin`. Blocking.
    pub(super) fn pin_tools(&self, verb: &str, pattern: &str) -> Done {
        let glob = if pattern.is_empty() { "*" } else { pattern };
        let glob = match Glob::new(glob) {
            Ok(glob) => glob.compile_matcher(),
            Err(error) => {
                return Done {
                    ok: false,
                    messages: vec![error.to_string()],
                };
            }
        };
        let gate = self.engine.parts().gate.clone();
        let pins = gate.pins();
        self.registry.with_tools(|tools| {
            let mut tools = tools.to_vec();
            tools.retain(|tool| glob.is_match(tool.callable));
            if tools.is_empty() && !pattern.is_empty() {
                return Done {
                    ok: false,
                    messages: vec![format!("no tool is called {pattern:?}")],
                };
            }
            if verb == "show" {
                return Done {
                    ok: true,
                    messages: tools.iter().flat_map(|tool| stands(tool, &pins.pin_of(tool))).collect(),
                };
            }
            let mut messages = Vec::new();
            let mut left = 0;
            tools.retain(|tool| match pins.pin_of(tool) {
                Pin::None => verb != "unpin",
                Pin::Same => verb == "unpin",
                changed @ Pin::Changed(_) => {
                    messages.extend(stands(tool, &changed));
                    left += usize::from(verb == "pin");
                    verb != "pin"
                }
            });
            if let Err(error) = pins.change(&tools, verb != "unpin") {
                return Done {
                    ok: false,
                    messages: vec![format!("the pins cannot be written: {error}")],
                };
            }
            let what = if verb == "unpin" { "unpinned" } else { "pinned" };
            messages.push(format!("{what}: {}", tools.len()));
            if left > 0 {
                messages.push(format!(
                    "left as they were pinned, because they look otherwise now: {left}; `ptcctl tools pin --anew` takes the \
                     above for good"
                ));
            }
            Done {
                ok: left == 0,
                messages,
            }
        })
    }

    /// The policies in force.
    pub(super) fn policy_status(&self) -> Option<PolicyStatus> {
        let policy = self.engine.parts().gate.policy();
        let said = policy.cedar()?;
        Some(PolicyStatus {
            path: said.path.display().to_string(),
            policies: said.count,
            rules: said.digest.to_owned(),
            warnings: said.warnings.to_vec(),
        })
    }
}

/// A line for a tool that is pinned, and one for each line of its difference.
fn stands(tool: &ToolFacts<'_>, pin: &Pin) -> Vec<String> {
    match pin {
        Pin::None => Vec::new(),
        Pin::Same => vec![format!("{}: as it was pinned", tool.callable)],
        Pin::Changed(lines) => {
            let lines = lines.iter().map(|line| format!("    {line}"));
            std::iter::once(format!(
                "{}: CHANGED since it was pinned; its calls are denied",
                tool.callable
            ))
            .chain(lines)
            .collect()
        }
    }
}
