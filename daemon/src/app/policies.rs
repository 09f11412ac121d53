//! Checks the policies on disk, and what they would say of one call.

use ptc_protocol::detail::DecisionEntry;
use ptc_protocol::policy::{PolicyChecked, TrialCall};
use ptc_protocol::status::{PolicyStatus, SCHEMA};

use super::{Inner, reload};
use crate::config;
use crate::engine::judge_alone;
use crate::policy::{Policy, Said};

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
            } = said;
            checked.path = Some(path.display().to_string());
            checked.policies = count;
            checked.rules = Some(digest.to_owned());
            checked.warnings = warnings.to_vec();
        }
        match call.map(|call| self.judged(&policy, call)) {
            None => {}
            Some(Ok(decision)) => checked.decision = Some(decision),
            Some(Err(text)) => checked.refused = Some(text),
        }
        checked
    }

    fn judged(&self, policy: &Policy, call: &TrialCall) -> Result<DecisionEntry, String> {
        let arguments = serde_json::Value::Object(call.arguments.clone()).to_string();
        let prepared = self.registry.prepare(&call.tool, &arguments);
        let prepared = prepared.map_err(|error| error.message)?;
        let engine = self.engine.parts().limits.engines.default;
        Ok(judge_alone(policy, &prepared, engine, &call.client))
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
