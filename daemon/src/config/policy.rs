//! The keys of who may call what.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::check::{COUNT, globs, path};
use super::fault::Fault;
use super::fields::{Section, Words};
use super::raw;
use super::risk::{self, RiskConfig};

pub(super) const POLICY_KEYS: [&str; 7] = [
    "effects",
    "cedar",
    "risk",
    "ask",
    "grants",
    "approval",
    "approval_seconds",
];
const EFFECTS_KEYS: [&str; 3] = ["read", "write", "destructive"];
const GRANT_KEYS: [&str; 2] = ["tools", "calls"];

const CHANNEL: &Words<Channel> = &[
    (&["client"], Channel::Client),
    (&["local"], Channel::Local),
    (&["deny"], Channel::Deny),
];

/// Who may call what, beyond which tools exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// What the operator says that tools do.
    pub effects: EffectsConfig,
    /// A Cedar file, or a folder of such; `None` is no Cedar at all.
    pub cedar: Option<PathBuf>,
    /// Rubrics by which a model judges calls.
    pub risk: Vec<RiskConfig>,
    /// Globs over callable names whose calls need a person's yes.
    pub ask: Vec<String>,
    /// Calls that are made without asking although they need a person's yes.
    pub grants: Vec<GrantConfig>,
    /// How calls come to a person.
    pub approval: ApprovalConfig,
}

/// How calls come to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalConfig {
    /// Who is asked.
    pub channel: Channel,
    /// How long an answer is waited for.
    pub limit: Duration,
}

impl Default for ApprovalConfig {
    fn default() -> Self {
        Self {
            channel: Channel::Client,
            limit: Duration::from_mins(5),
        }
    }
}

/// Who is asked about a call that needs a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The client that started the program.
    Client,
    /// Whoever answers `ptcctl approvals`.
    Local,
    /// Nobody: such calls are denied.
    Deny,
}

impl Channel {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Local => "local",
            Self::Deny => "deny",
        }
    }
}

/// Calls of each program that a person has allowed beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantConfig {
    /// Globs over callable names.
    pub tools: Vec<String>,
    /// First calls of each such tool in a program that nobody is asked about.
    pub calls: u64,
}

/// Globs over callable names, by what the tools do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectsConfig {
    /// They change nothing.
    pub read: Vec<String>,
    /// They change something and destroy nothing.
    pub write: Vec<String>,
    /// They may destroy something.
    pub destructive: Vec<String>,
}

/// The section `policy`.
pub(super) fn policy(section: &Section<'_>, base: &Path, faults: &mut Vec<Fault>) -> PolicyConfig {
    let cedar = path(section, "cedar", base, faults).map(|path| base.join(path));
    let name = section.path("effects");
    let opened = section.get("effects").and_then(|entry| {
        Section::open(&entry.node, name, "policy.effects", &EFFECTS_KEYS, faults)
    });
    let effects = opened.map_or_else(EffectsConfig::default, |section| {
        let mut list = |key| globs(&section, key, faults).unwrap_or_default();
        EffectsConfig {
            read: list("read"),
            write: list("write"),
            destructive: list("destructive"),
        }
    });
    let default = ApprovalConfig::default();
    PolicyConfig {
        effects,
        cedar,
        risk: risk::risk(section, faults),
        ask: globs(section, "ask", faults).unwrap_or_default(),
        grants: grants(section, faults),
        approval: ApprovalConfig {
            channel: section.word("approval", default.channel, CHANNEL, faults),
            limit: section.seconds("approval_seconds", default.limit, faults),
        },
    }
}

/// The list `policy.grants`.
fn grants(policy: &Section<'_>, faults: &mut Vec<Fault>) -> Vec<GrantConfig> {
    let Some(entry) = policy.get("grants") else {
        return Vec::new();
    };
    let raw::Value::List(items) = &entry.node.value else {
        let message = format!(
            "policy.grants must be a list, such as `grants: [{{tools: [mcp__a__b], calls: 5}}]`, not {}",
            entry.node.kind()
        );
        faults.push(Fault::at(entry.node.at, &message));
        return Vec::new();
    };
    let mut grants = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let title = format!("policy.grants[{index}]");
        let opened = Section::open(item, title, "policy.grants[]", &GRANT_KEYS, faults);
        let Some(section) = opened else {
            continue;
        };
        for key in GRANT_KEYS {
            if section.get(key).is_none() {
                let message = format!("{} is missing", section.path(key));
                faults.push(Fault::at(section.at(), &message));
            }
        }
        grants.push(GrantConfig {
            tools: globs(&section, "tools", faults).unwrap_or_default(),
            calls: section.whole("calls", 1, COUNT, faults),
        });
    }
    grants
}

/// The section as the file would write it.
pub(super) fn show(policy: &PolicyConfig, seconds: impl Fn(Duration) -> Value) -> Value {
    let effects = &policy.effects;
    let mut shown = Map::new();
    shown.insert(
        "effects".to_owned(),
        json!({
            "read": effects.read,
            "write": effects.write,
            "destructive": effects.destructive,
        }),
    );
    if let Some(path) = &policy.cedar {
        shown.insert("cedar".to_owned(), json!(path.display().to_string()));
    }
    shown.insert("risk".to_owned(), risk::show(&policy.risk, &seconds));
    shown.insert("ask".to_owned(), json!(policy.ask));
    let grants = policy.grants.iter();
    let grants = grants.map(|grant| json!({"tools": grant.tools, "calls": grant.calls}));
    shown.insert("grants".to_owned(), grants.collect());
    shown.insert(
        "approval".to_owned(),
        json!(policy.approval.channel.as_str()),
    );
    shown.insert(
        "approval_seconds".to_owned(),
        seconds(policy.approval.limit),
    );
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn every_key_of_the_policy_is_read() {
        let text = "policy: {effects: {read: ['*__get_*'], write: [mcp__a__put]}, cedar: policies/, \
                    ask: ['*__send'], grants: [{tools: [mcp__a__send], calls: 3}], approval: local, approval_seconds: 9}\n";
        let read =
            parse(text, Path::new("/conf/c.yaml")).unwrap_or_else(|faults| panic!("{faults}"));
        let expected = PolicyConfig {
            effects: EffectsConfig {
                read: vec!["*__get_*".to_owned()],
                write: vec!["mcp__a__put".to_owned()],
                destructive: Vec::new(),
            },
            cedar: Some("/conf/policies/".into()),
            risk: Vec::new(),
            ask: vec!["*__send".to_owned()],
            grants: vec![GrantConfig {
                tools: vec!["mcp__a__send".to_owned()],
                calls: 3,
            }],
            approval: ApprovalConfig {
                channel: Channel::Local,
                limit: Duration::from_secs(9),
            },
        };
        assert_eq!(read.policy, expected);
        let fault = |text: &str| parse(text, Path::new("c")).unwrap_err().to_string();
        assert!(fault("policy: {effects: {reads: []}}\n").contains("did you mean read?"));
        assert!(fault("policy: {effects: {read: 'mcp__*'}}\n").contains("must be a list"));
        assert!(
            fault("policy: {effects: {read: [github]}}\n").contains("matches no callable name")
        );
        assert!(fault("policy: {grants: {a: 1}}\n").contains("policy.grants must be a list"));
        assert!(fault("policy: {grants: [{calls: 2}]}\n").contains("grants[0].tools is missing"));
        assert!(fault("policy: {grants: [{tools: [], calls: 0}]}\n").contains("from 1 to"));
        assert!(fault("policy: {cedar: [a]}\n").contains("policy.cedar must be text"));
    }
}
