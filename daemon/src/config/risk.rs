//! The keys of rubrics in plain language, by which a model judges calls.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use url::{Host, Url};

use super::check::{COUNT, globs};
use super::fault::{Fault, shown};
use super::fields::{Section, Words};
use super::raw;
use super::template::{Part, Template};

const RISK_KEYS: [&str; 11] = [
    "name",
    "rubric",
    "kind",
    "base_url",
    "model",
    "api_key",
    "tools",
    "timeout_seconds",
    "on_error",
    "max_per_program",
    "temperature",
];
/// Most rubrics of a configuration.
const MAX_RUBRICS: usize = 32;
/// Longest name of a rubric or of a model, in characters.
const MAX_NAME: usize = 100;
/// Longest rubric, in characters: it goes along with every call.
const MAX_RUBRIC: usize = 8000;
/// Longest time that one judgement may take: its call waits, and so does its program.
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

const KIND: &Words<RiskKind> = &[
    (&["anthropic"], RiskKind::Anthropic),
    (&["openai"], RiskKind::OpenAi),
];
const ON_ERROR: &Words<OnError> = &[(&["deny"], OnError::Deny), (&["ask"], OnError::Ask)];
const TEMPERATURE: &Words<bool> = &[(&["0"], true), (&["off", "false", "no"], false)];

/// One rubric and who judges by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiskConfig {
    /// Its name, by which `@risk` finds it.
    pub name: String,
    /// What is wanted and what is not, in plain language.
    pub rubric: String,
    /// Which protocol the endpoint speaks.
    pub kind: RiskKind,
    /// Where it is: `https`, or `http` on this machine.
    pub base_url: Url,
    /// The model, as the endpoint calls it.
    pub model: String,
    /// The endpoint's key, which holds a reference to a variable; `None` sends none.
    pub api_key: Option<String>,
    /// Globs over callable names whose calls are judged by it.
    pub tools: Vec<String>,
    /// How long one judgement may take, the wait for a place not counted.
    pub timeout: Duration,
    /// What a call gets that cannot be judged.
    pub on_error: OnError,
    /// Calls of one program that it is asked about; further ones need a person.
    pub max_per_program: u64,
    /// Whether temperature 0 is asked for, which some models refuse.
    pub temperature: bool,
}

/// Which protocol an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RiskKind {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's chat completions.
    OpenAi,
}

impl RiskKind {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }
}

/// What a call gets that cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is denied.
    Deny,
    /// A person is asked.
    Ask,
}

impl OnError {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }
}

/// The list `policy.risk`.
pub(super) fn risk(policy: &Section<'_>, faults: &mut Vec<Fault>) -> Vec<RiskConfig> {
    let Some(entry) = policy.get("risk") else {
        return Vec::new();
    };
    let items = match &entry.node.value {
        raw::Value::List(items) => items.as_slice(),
        _ if entry.node.is_null() => &[],
        _ => {
            let message = format!(
                "policy.risk must be a list, such as `risk: [{{name: NAME, rubric: TEXT, ...}}]`, not {}",
                entry.node.kind()
            );
            faults.push(Fault::at(entry.node.at, &message));
            &[]
        }
    };
    if items.len() > MAX_RUBRICS {
        let message = format!("policy.risk has more than {MAX_RUBRICS} rubrics");
        faults.push(Fault::at(entry.node.at, &message));
    }
    let mut rubrics: Vec<RiskConfig> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let title = format!("policy.risk[{index}]");
        let Some(section) = Section::open(item, title, "policy.risk[]", &RISK_KEYS, faults) else {
            continue;
        };
        let Some(rubric) = one(&section, faults) else {
            continue;
        };
        if rubrics.iter().any(|other| other.name == rubric.name) {
            let message = format!(
                "policy.risk: the name {} is given twice",
                shown(&rubric.name)
            );
            faults.push(Fault::at(item.at, &message));
        }
        rubrics.push(rubric);
    }
    rubrics
}

/// One rubric; every key is looked at, whatever is wrong with the others.
fn one(section: &Section<'_>, faults: &mut Vec<Fault>) -> Option<RiskConfig> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = required(section, "name", MAX_NAME, faults);
    if let (Some(name), Some(entry)) = (&name, section.get("name"))
        && !name.chars().all(plain)
    {
        let path = section.path("name");
        let message = format!(
            "{path} has letters, digits, `_` and `-` only, not {}",
            shown(name)
        );
        faults.push(Fault::at(entry.node.at, &message));
    }
    let rubric = required(section, "rubric", MAX_RUBRIC, faults);
    let model = required(section, "model", MAX_NAME, faults);
    // Which protocol an endpoint speaks is not to be guessed: the call would be told to the wrong one.
    let kind = required(section, "kind", MAX_NAME, faults)
        .map(|_| section.word("kind", RiskKind::Anthropic, KIND, faults));
    let base_url = base_url(section, faults);
    let api_key = api_key(section, faults);
    let timeout = section.seconds("timeout_seconds", Duration::from_secs(8), faults);
    if let Some(entry) = section.get("timeout_seconds")
        && timeout > MAX_TIMEOUT
    {
        let path = section.path("timeout_seconds");
        let message = format!("{path} is at most {} s", MAX_TIMEOUT.as_secs());
        faults.push(Fault::at(entry.node.at, &message));
    }
    Some(RiskConfig {
        on_error: section.word("on_error", OnError::Deny, ON_ERROR, faults),
        max_per_program: section.whole("max_per_program", 50, COUNT, faults),
        temperature: section.word("temperature", true, TEMPERATURE, faults),
        tools: globs(section, "tools", faults).unwrap_or_default(),
        name: name?,
        rubric: rubric?,
        kind: kind?,
        base_url: base_url?,
        model: model?,
        api_key,
        timeout,
    })
}

/// A text that must be there, of 1 to `most` characters.
fn required(
    section: &Section<'_>,
    key: &str,
    most: usize,
    faults: &mut Vec<Fault>,
) -> Option<String> {
    if section.get(key).is_none() {
        let message = format!("{} is missing", section.path(key));
        faults.push(Fault::at(section.at(), &message));
        return None;
    }
    let (text, at) = section.text(key, faults)?;
    if text.trim().is_empty() || text.chars().count() > most {
        let message = format!("{} must have 1 to {most} characters", section.path(key));
        faults.push(Fault::at(at, &message));
        return None;
    }
    Some(text.trim().to_owned())
}

/// Where calls are told: never in the clear to another machine.
fn base_url(section: &Section<'_>, faults: &mut Vec<Fault>) -> Option<Url> {
    let text = required(section, "base_url", 2000, faults)?;
    let url = Url::parse(&text);
    let fault = match &url {
        Err(error) => Some(format!("is no address: {error}")),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("holds a user or a password: use api_key".to_owned())
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            Some("has no query and no fragment".to_owned())
        }
        Ok(url) if url.scheme() == "https" && url.host().is_some() => None,
        Ok(url) if url.scheme() == "http" && is_this_machine(url) => None,
        Ok(_) => Some(
            "must be https, or http on this machine (localhost, 127.0.0.1, [::1]): calls are told there"
                .to_owned(),
        ),
    };
    if let (Some(fault), Some(entry)) = (fault, section.get("base_url")) {
        let message = format!("{} {fault}", section.path("base_url"));
        faults.push(Fault::at(entry.node.at, &message));
        return None;
    }
    url.ok()
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// The key: a reference, since a configuration is read by more than the daemon.
fn api_key(section: &Section<'_>, faults: &mut Vec<Fault>) -> Option<String> {
    section.get("api_key")?;
    let (text, at) = section.text("api_key", faults)?;
    let fault = match Template::parse(text) {
        Err(error) => Some(error.to_string()),
        // One without a default: that would be a key in the file again.
        Ok(template) => match template.0.as_slice() {
            [Part::Variable { default: None, .. }] => None,
            _ => Some("must be one variable, such as ${ANTHROPIC_API_KEY}".to_owned()),
        },
    };
    if let Some(fault) = fault {
        // Without the text, which may be a key.
        faults.push(Fault::at(
            at,
            &format!("{} {fault}", section.path("api_key")),
        ));
        return None;
    }
    Some(text.to_owned())
}

/// The list as the file would write it.
pub(super) fn show(rubrics: &[RiskConfig], seconds: &impl Fn(Duration) -> Value) -> Value {
    let one = |risk: &RiskConfig| {
        let mut shown = Map::new();
        let mut put = |key: &str, value: Value| shown.insert(key.to_owned(), value);
        put("name", json!(risk.name));
        put("rubric", json!(risk.rubric));
        put("kind", json!(risk.kind.as_str()));
        put("base_url", json!(risk.base_url.as_str()));
        put("model", json!(risk.model));
        if let Some(key) = &risk.api_key {
            put("api_key", json!(key));
        }
        put("tools", json!(risk.tools));
        put("timeout_seconds", seconds(risk.timeout));
        put("on_error", json!(risk.on_error.as_str()));
        put("max_per_program", json!(risk.max_per_program));
        put(
            "temperature",
            if risk.temperature {
                json!(0)
            } else {
                json!("off")
            },
        );
        Value::Object(shown)
    };
    rubrics.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse;

    const GOOD: &str = "name: careful, rubric: no strangers, kind: openai, model: m, base_url: 'http://127.0.0.1:9/v1'";

    fn read(inside: &str) -> Result<Vec<RiskConfig>, String> {
        let text = format!("policy: {{risk: [{{{inside}}}]}}\n");
        let read = parse(&text, Path::new("c.yaml"));
        read.map(|config| config.policy.risk)
            .map_err(|faults| faults.to_string())
    }

    #[test]
    fn every_key_of_a_rubric_is_read() {
        let all = format!(
            "{GOOD}, api_key: '${{KEY}}', tools: ['mcp__mail__*'], timeout_seconds: 2.5, on_error: ask, \
             max_per_program: 3, temperature: off"
        );
        let expected = RiskConfig {
            name: "careful".to_owned(),
            rubric: "no strangers".to_owned(),
            kind: RiskKind::OpenAi,
            base_url: Url::parse("http://127.0.0.1:9/v1").unwrap(),
            model: "m".to_owned(),
            api_key: Some("${KEY}".to_owned()),
            tools: vec!["mcp__mail__*".to_owned()],
            timeout: Duration::from_millis(2500),
            on_error: OnError::Ask,
            max_per_program: 3,
            temperature: false,
        };
        assert_eq!(read(&all).unwrap(), [expected]);
        let least = read(GOOD).unwrap().remove(0);
        assert_eq!(
            (
                least.on_error,
                least.timeout,
                least.max_per_program,
                least.temperature
            ),
            (OnError::Deny, Duration::from_secs(8), 50, true)
        );
    }

    #[test]
    fn what_could_tell_calls_or_the_key_to_others_is_refused() {
        for (from, to, words) in [
            (
                "http://127.0.0.1:9/v1",
                "http://example.org/v1",
                "must be https, or http on this machine",
            ),
            (
                "http://127.0.0.1:9/v1",
                "http://127.0.0.1.example.org/",
                "must be https",
            ),
            ("http://127.0.0.1:9/v1", "ftp://localhost/", "must be https"),
            (
                "http://127.0.0.1:9/v1",
                "https://me:hunter2@h/",
                "a user or a password",
            ),
            (
                "http://127.0.0.1:9/v1",
                "https://h/?key=hunter2",
                "no query",
            ),
            (
                "model: m",
                "model: m, api_key: sk-hunter2",
                "must be one variable",
            ),
            (
                "model: m",
                "model: m, api_key: '${K:-hunter2}'",
                "must be one variable",
            ),
            (
                "model: m",
                "model: m, api_key: 'x${K}'",
                "must be one variable",
            ),
            ("model: m, ", "", "model is missing"),
            ("kind: openai", "kind: other", "one of anthropic, openai"),
            ("name: careful", "name: 'a b'", "letters, digits"),
            ("model: m", "model: m, timeout_seconds: 61", "at most 60 s"),
            (
                "model: m",
                "model: m, timeouts: 6",
                "unknown key policy.risk[0].\"timeouts\"",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let fault = read(&GOOD.replace(from, to)).unwrap_err();
            assert!(fault.contains(words), "{to}: {fault}");
            assert!(!fault.contains("hunter2"), "{fault}");
        }
        for host in [
            "https://api.example.org",
            "http://localhost:1",
            "http://[::1]:1/v1",
        ] {
            assert!(
                read(&GOOD.replace("http://127.0.0.1:9/v1", host)).is_ok(),
                "{host}"
            );
        }
        let twice = format!("policy: {{risk: [{{{GOOD}}}, {{{GOOD}}}]}}\n");
        let fault = parse(&twice, Path::new("c")).unwrap_err().to_string();
        assert!(fault.contains("is given twice"), "{fault}");
    }
}
