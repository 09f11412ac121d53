//! Reads the seccomp profile as it is written, entry by entry, into seccompiler's own form.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Value, json};

use super::SandboxError;

pub(super) mod engine;

/// The profile as it stands in `sandbox-profiles/`.
pub(super) const TEXT: &str = include_str!("../../../../sandbox-profiles/python.seccomp.json");

/// Errors a call can be answered with, by name. `OK` is a success that did nothing.
const ERRNOS: [(&str, u32); 6] = [
    ("OK", 0),
    ("EPERM", 1),
    ("EINVAL", 22),
    ("ENOTTY", 25),
    ("ENOSYS", 38),
    ("EOPNOTSUPP", 95),
];

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    about: Vec<String>,
    constants: HashMap<String, u64>,
    /// What is let through.
    pub(super) allow: Vec<Allowed>,
    /// What is answered with something else than EPERM.
    pub(super) answers: Vec<Answer>,
}

/// Calls that are let through, always or when one of the alternatives holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Allowed {
    pub(super) calls: Vec<String>,
    pub(super) why: String,
    #[serde(default)]
    arch: Option<String>,
    #[serde(default)]
    tiers: Option<Vec<String>>,
    #[serde(default)]
    when: Vec<Vec<Condition>>,
    #[serde(default)]
    otherwise: Option<String>,
}

/// Calls that never reach the kernel and get this answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    errno: String,
    pub(super) calls: Vec<String>,
    pub(super) why: String,
    #[serde(default)]
    arch: Option<String>,
    #[serde(default)]
    tiers: Option<Vec<String>>,
}

/// One comparison of one argument; numbers are names of constants, joined by `|`, or decimal digits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    arg: u8,
    bits: u8,
    #[serde(default)]
    is: Option<String>,
    #[serde(default)]
    one_of: Vec<String>,
    #[serde(default)]
    besides: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
}

/// The part of the profile that applies to one architecture in one tier.
#[derive(Debug)]
pub(super) struct Selection {
    /// seccompiler's JSON of the allow-list.
    pub(super) allow: Value,
    /// seccompiler's JSON of what answers which error, by errno.
    pub(super) answers: BTreeMap<u32, Value>,
}

impl Profile {
    /// Reads the profile and refuses an entry without a reason.
    pub(super) fn read(text: &str) -> Result<Self, SandboxError> {
        let profile: Self = serde_json::from_str(text).map_err(|source| SandboxError::Profile {
            detail: source.to_string(),
        })?;
        let reasons = profile
            .allow
            .iter()
            .map(|entry| (&entry.calls, &entry.why))
            .chain(
                profile
                    .answers
                    .iter()
                    .map(|entry| (&entry.calls, &entry.why)),
            );
        for (calls, why) in reasons {
            if why.is_empty() {
                return Err(fault(&format!("{} has no reason", calls.join(", "))));
            }
        }
        if profile.about.is_empty() {
            return Err(fault("it does not say what it is"));
        }
        Ok(profile)
    }

    /// What applies to `arch` (`x86_64`, `aarch64`) in `tier` (`landlock`, `full`).
    pub(super) fn select(&self, arch: &str, tier: &str) -> Result<Selection, SandboxError> {
        let mut rules = Vec::new();
        let mut plain = HashMap::new();
        let mut errors: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
        for entry in self
            .allow
            .iter()
            .filter(|entry| applies(entry.arch.as_ref(), entry.tiers.as_ref(), arch, tier))
        {
            let alternatives = self.alternatives(&entry.when)?;
            for call in &entry.calls {
                // seccompiler takes a call that is named once with and once without conditions as conditional.
                let unconditional = alternatives.is_empty();
                if *plain.entry(call.clone()).or_insert(unconditional) != unconditional {
                    return Err(fault(&format!(
                        "{call} stands there with and without conditions"
                    )));
                }
                if unconditional {
                    rules.push(json!({"syscall": call}));
                }
                for conditions in &alternatives {
                    let args: Vec<Value> = conditions
                        .iter()
                        .copied()
                        .map(Comparison::to_json)
                        .collect();
                    rules.push(json!({"syscall": call, "args": args}));
                }
                if let Some(name) = &entry.otherwise {
                    let args = complement(call, &alternatives)?;
                    errors
                        .entry(errno(name)?)
                        .or_default()
                        .push(json!({"syscall": call, "args": args}));
                }
            }
        }
        for entry in self
            .answers
            .iter()
            .filter(|entry| applies(entry.arch.as_ref(), entry.tiers.as_ref(), arch, tier))
        {
            let list = errors.entry(errno(&entry.errno)?).or_default();
            list.extend(entry.calls.iter().map(|call| json!({"syscall": call})));
        }
        let answers = errors
            .into_iter()
            .map(|(errno, rules)| {
                (
                    errno,
                    filter(&rules, &json!("allow"), &json!({"errno": errno})),
                )
            })
            .collect();
        Ok(Selection {
            allow: filter(&rules, &json!({"errno": 1}), &json!("allow")),
            answers,
        })
    }

    /// The alternatives with names resolved and lists of values multiplied out.
    fn alternatives(&self, when: &[Vec<Condition>]) -> Result<Vec<Vec<Comparison>>, SandboxError> {
        let mut all = Vec::new();
        for conditions in when {
            let mut expanded: Vec<Vec<Comparison>> = vec![Vec::new()];
            for condition in conditions {
                let choices = self.comparisons(condition)?;
                expanded = expanded
                    .iter()
                    .flat_map(|so_far| {
                        choices.iter().map(move |choice| {
                            let mut longer = so_far.clone();
                            longer.push(*choice);
                            longer
                        })
                    })
                    .collect();
            }
            all.extend(expanded);
        }
        Ok(all)
    }

    fn comparisons(&self, condition: &Condition) -> Result<Vec<Comparison>, SandboxError> {
        let wide = match condition.bits {
            32 => false,
            64 => true,
            other => return Err(fault(&format!("an argument of {other} bits"))),
        };
        let full = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let besides = self.sum(&condition.besides)?;
        let make = |mask, value| Comparison {
            arg: condition.arg,
            wide,
            mask,
            value,
            full,
        };
        if !condition.without.is_empty() {
            return Ok(vec![make(self.sum(&condition.without)?, 0)]);
        }
        let mut found = Vec::new();
        for name in condition.one_of.iter().chain(&condition.is) {
            found.push(make(full & !besides, self.number(name)?));
        }
        if found.is_empty() {
            return Err(fault("a condition that compares with nothing"));
        }
        Ok(found)
    }

    fn sum(&self, names: &[String]) -> Result<u64, SandboxError> {
        names
            .iter()
            .try_fold(0, |sum, name| Ok(sum | self.number(name)?))
    }

    fn number(&self, text: &str) -> Result<u64, SandboxError> {
        text.split('|').try_fold(0, |sum, name| {
            let value = match name.parse() {
                Ok(number) => number,
                Err(_) => *self
                    .constants
                    .get(name)
                    .ok_or_else(|| fault(&format!("no constant {name}")))?,
            };
            Ok(sum | value)
        })
    }
}

/// `argument & mask == value`.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    arg: u8,
    wide: bool,
    mask: u64,
    value: u64,
    full: u64,
}

impl Comparison {
    fn to_json(self) -> Value {
        let op = if self.mask == self.full {
            json!("eq")
        } else {
            json!({"masked_eq": self.mask})
        };
        self.with(&op, self.value)
    }

    fn with(self, op: &Value, value: u64) -> Value {
        let width = if self.wide { "qword" } else { "dword" };
        json!({"index": self.arg, "type": width, "op": op, "val": value})
    }
}

/// What holds when none of the alternatives does. seccomp can only say this of single equalities and single bits.
fn complement(call: &str, alternatives: &[Vec<Comparison>]) -> Result<Vec<Value>, SandboxError> {
    let mut all = Vec::new();
    for conditions in alternatives {
        match conditions.as_slice() {
            [only] if only.mask == only.full => all.push(only.with(&json!("ne"), only.value)),
            [only] if only.mask.is_power_of_two() && only.value == 0 => {
                all.push(only.with(&json!({"masked_eq": only.mask}), only.mask));
            }
            _ => return Err(fault(&format!("{call} is too involved for another answer"))),
        }
    }
    Ok(all)
}

fn applies(arch: Option<&String>, tiers: Option<&Vec<String>>, to: &str, tier: &str) -> bool {
    arch.is_none_or(|only| only == to)
        && tiers.is_none_or(|tiers| tiers.iter().any(|named| named == tier))
}

fn errno(name: &str) -> Result<u32, SandboxError> {
    ERRNOS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
        .ok_or_else(|| fault(&format!("no error {name}")))
}

fn filter(rules: &[Value], mismatch: &Value, on_match: &Value) -> Value {
    json!({"filter": {"mismatch_action": mismatch, "match_action": on_match, "filter": rules}})
}

fn fault(detail: &str) -> SandboxError {
    SandboxError::Profile {
        detail: detail.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(allow: &str) -> Result<Selection, SandboxError> {
        let text = format!(
            r#"{{"about":["x"],"constants":{{"A":1,"B":2,"TOP":2147483648}},"allow":[{allow}],"answers":[]}}"#
        );
        Profile::read(&text)?.select("x86_64", "landlock")
    }

    #[test]
    fn a_list_of_values_becomes_alternatives_and_their_complement() {
        let found = profile(
            r#"{"calls":["fcntl"],"why":"y","when":[[{"arg":1,"bits":32,"one_of":["A","B"]}]],"otherwise":"EINVAL"}"#,
        )
        .unwrap();
        assert_eq!(
            found.allow["filter"]["filter"],
            json!([
                {"syscall": "fcntl", "args": [{"index": 1, "type": "dword", "op": "eq", "val": 1}]},
                {"syscall": "fcntl", "args": [{"index": 1, "type": "dword", "op": "eq", "val": 2}]},
            ])
        );
        assert_eq!(
            found.answers[&22]["filter"]["filter"],
            json!([{"syscall": "fcntl", "args": [
                {"index": 1, "type": "dword", "op": "ne", "val": 1},
                {"index": 1, "type": "dword", "op": "ne", "val": 2},
            ]}])
        );
    }

    #[test]
    fn flags_that_may_be_set_besides_are_masked_out_of_the_whole_argument() {
        let found = profile(
            r#"{"calls":["mmap"],"why":"y","when":[[{"arg":3,"bits":64,"is":"B","besides":["A"]}]]}"#,
        )
        .unwrap();
        assert_eq!(
            found.allow["filter"]["filter"],
            json!([{"syscall": "mmap", "args": [
                {"index": 3, "type": "qword", "op": {"masked_eq": u64::MAX - 1}, "val": 2}
            ]}])
        );
    }

    #[test]
    fn faults_are_refused() {
        for (allow, fault) in [
            (r#"{"calls":["read"],"why":""}"#, "read has no reason"),
            (
                r#"{"calls":["read"],"why":"y"},{"calls":["read"],"why":"y","when":[[{"arg":0,"bits":32,"is":"A"}]]}"#,
                "read stands there with and without conditions",
            ),
            (
                r#"{"calls":["read"],"why":"y","when":[[{"arg":0,"bits":32,"is":"C"}]]}"#,
                "no constant C",
            ),
            (
                r#"{"calls":["read"],"why":"y","when":[[{"arg":0,"bits":8,"is":"A"}]]}"#,
                "an argument of 8 bits",
            ),
        ] {
            let SandboxError::Profile { detail } = profile(allow).unwrap_err() else {
                panic!("another error");
            };
            assert_eq!(detail, fault);
        }
    }

    #[test]
    fn every_constant_is_used() {
        for name in Profile::read(TEXT).unwrap().constants.keys() {
            let quoted = TEXT.matches(&format!("\"{name}\"")).count();
            let joined = TEXT.matches(&format!("|{name}")).count();
            assert!(quoted + joined > 1, "{name}");
        }
    }

    #[test]
    fn what_is_answered_is_not_allowed_in_the_same_tier() {
        let whole = Profile::read(TEXT).unwrap();
        for arch in ["x86_64", "aarch64"] {
            for tier in ["landlock", "full"] {
                let allowed: Vec<&String> = whole
                    .allow
                    .iter()
                    .filter(|entry| applies(entry.arch.as_ref(), entry.tiers.as_ref(), arch, tier))
                    .flat_map(|entry| &entry.calls)
                    .collect();
                for entry in &whole.answers {
                    if applies(entry.arch.as_ref(), entry.tiers.as_ref(), arch, tier) {
                        for call in &entry.calls {
                            assert!(!allowed.contains(&call), "{call} on {arch} in {tier}");
                        }
                    }
                }
            }
        }
    }
}
