//! Reads a submission: its form, with path, found and required for each fault.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::tools::type_name;

/// Most programs of one submission.
const MAX_PROGRAMS: usize = 8;
/// Longest deliverable, in bytes.
const MAX_DELIVERABLE: usize = 4 * 1024 * 1024;
/// Longest name of a program, in characters.
const MAX_NAME: usize = 100;
/// What a witness may be.
pub(super) const FORMS: [&str; 4] = ["computed", "certificate", "argued", "negative"];

/// One program of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) code: String,
}

/// A submission of the right form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Submitted {
    pub(super) deliverable: String,
    pub(super) programs: Vec<Program>,
    /// Form and value.
    pub(super) witness: Option<(String, Value)>,
}

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) path: String,
    pub(super) found: String,
    pub(super) required: String,
}

impl Fault {
    pub(super) fn new(path: &str, found: impl Into<String>, required: &str) -> Self {
        Self {
            path: path.to_owned(),
            found: found.into(),
            required: required.to_owned(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({"path": self.path, "found": self.found, "required": self.required})
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{}: found {}, required {}",
            self.path, self.found, self.required
        )
    }
}

/// The schema of the one argument.
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "deliverable": {"type": "string", "description": "the text that is delivered"},
            "programs": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_PROGRAMS,
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "code": {"type": "string"}},
                    "required": ["name", "code"],
                    "additionalProperties": false,
                },
            },
            "witness": {
                "type": "object",
                "properties": {"form": {"enum": FORMS}, "value": {}},
                "required": ["form", "value"],
                "additionalProperties": false,
            },
        },
        "required": ["deliverable", "programs"],
        "additionalProperties": false,
    })
}

/// Reads the arguments; every fault of their form is named, and nothing runs where there is one.
pub(super) fn read(arguments: Option<JsonObject>) -> Result<Submitted, Vec<Fault>> {
    let mut faults = Vec::new();
    let arguments = Value::Object(arguments.unwrap_or_default());
    let outcome = members(
        &arguments,
        "arguments",
        &["outcome"],
        &["outcome"],
        &mut faults,
    )
    .and_then(|all| all.get("outcome"));
    let Some(outcome) = outcome else {
        return Err(faults);
    };
    let known = ["deliverable", "programs", "witness"];
    let required = ["deliverable", "programs"];
    let Some(all) = members(outcome, "outcome", &known, &required, &mut faults) else {
        return Err(faults);
    };
    let deliverable = all
        .get("deliverable")
        .map(|value| deliverable(value, &mut faults));
    let programs = all
        .get("programs")
        .map(|value| programs(value, &mut faults));
    let witness = all
        .get("witness")
        .and_then(|value| witness(value, &mut faults));
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Submitted {
        deliverable: deliverable.unwrap_or_default(),
        programs: programs.unwrap_or_default(),
        witness,
    })
}

/// An object's members, with a fault for each that is unknown or missing.
fn members<'a>(
    value: &'a Value,
    path: &str,
    known: &[&str],
    required: &[&str],
    faults: &mut Vec<Fault>,
) -> Option<&'a JsonObject> {
    let Some(all) = value.as_object() else {
        faults.push(Fault::new(path, type_name(value), "an object"));
        return None;
    };
    let names = known.join(", ");
    for name in all
        .keys()
        .filter(|name| !known.contains(&name.as_str()))
        .take(3)
    {
        let name: String = name.chars().take(80).collect();
        let path = format!("{path}.{name}");
        faults.push(Fault::new(
            &path,
            "an unknown name",
            &format!("only {names}"),
        ));
    }
    for name in required.iter().filter(|name| !all.contains_key(**name)) {
        faults.push(Fault::new(&format!("{path}.{name}"), "nothing", "a value"));
    }
    Some(all)
}

fn text(value: &Value, path: &str, faults: &mut Vec<Fault>) -> String {
    match value {
        Value::String(text) if !text.trim().is_empty() => text.clone(),
        Value::String(_) => {
            faults.push(Fault::new(path, "a blank text", "a text"));
            String::new()
        }
        other => {
            faults.push(Fault::new(path, type_name(other), "a text"));
            String::new()
        }
    }
}

fn deliverable(value: &Value, faults: &mut Vec<Fault>) -> String {
    let text = text(value, "outcome.deliverable", faults);
    if text.len() > MAX_DELIVERABLE {
        let found = format!("{} bytes", text.len());
        let required = format!("at most {MAX_DELIVERABLE}");
        faults.push(Fault::new("outcome.deliverable", found, &required));
    }
    text
}

fn programs(value: &Value, faults: &mut Vec<Fault>) -> Vec<Program> {
    let Some(all) = value.as_array() else {
        faults.push(Fault::new("outcome.programs", type_name(value), "an array"));
        return Vec::new();
    };
    if all.is_empty() || all.len() > MAX_PROGRAMS {
        let required = format!("1 to {MAX_PROGRAMS} programs");
        faults.push(Fault::new(
            "outcome.programs",
            format!("{} of them", all.len()),
            &required,
        ));
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let mut programs = Vec::new();
    for (at, value) in all.iter().enumerate() {
        let path = format!("outcome.programs[{at}]");
        let keys = ["name", "code"];
        let Some(all) = members(value, &path, &keys, &keys, faults) else {
            continue;
        };
        let mut member = |key: &str| {
            let value = all.get(key)?;
            Some(text(value, &format!("{path}.{key}"), faults))
        };
        let (Some(name), Some(code)) = (member("name"), member("code")) else {
            continue;
        };
        if name.chars().count() > MAX_NAME {
            let required = format!("at most {MAX_NAME} characters");
            faults.push(Fault::new(
                &format!("{path}.name"),
                "a longer text",
                &required,
            ));
        }
        if !names.insert(name.clone()) {
            let path = format!("{path}.name");
            faults.push(Fault::new(
                &path,
                "the name of another program",
                "a name of its own",
            ));
        }
        programs.push(Program { name, code });
    }
    programs
}

fn witness(value: &Value, faults: &mut Vec<Fault>) -> Option<(String, Value)> {
    let keys = ["form", "value"];
    let all = members(value, "outcome.witness", &keys, &keys, faults)?;
    let form = text(all.get("form")?, "outcome.witness.form", faults);
    if !form.is_empty() && !FORMS.contains(&form.as_str()) {
        let found: String = form.chars().take(80).collect();
        let required = format!("one of {}", FORMS.join(", "));
        faults.push(Fault::new(
            "outcome.witness.form",
            format!("{found:?}"),
            &required,
        ));
    }
    Some((form, all.get("value")?.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(outcome: &Value) -> Vec<String> {
        let arguments = json!({"outcome": outcome});
        let faults = read(arguments.as_object().cloned()).expect_err("faults");
        faults.iter().map(Fault::line).collect()
    }

    #[test]
    fn a_submission_of_the_right_form_is_read() {
        let outcome = json!({
            "deliverable": "the answer",
            "programs": [{"name": "a", "code": "print(1)"}],
            "witness": {"form": "computed", "value": [1]},
        });
        let read = read(json!({"outcome": outcome}).as_object().cloned()).unwrap();
        assert_eq!(read.deliverable, "the answer");
        assert_eq!(read.programs.len(), 1);
        assert_eq!(read.witness, Some(("computed".to_owned(), json!([1]))));
    }

    #[test]
    fn every_fault_names_path_found_and_required() {
        let fine = json!([{"name": "a", "code": "1"}]);
        for (outcome, line) in [
            (json!(5), "outcome: found a number, required an object"),
            (
                json!({"programs": fine}),
                "outcome.deliverable: found nothing, required a value",
            ),
            (
                json!({"deliverable": " ", "programs": fine}),
                "outcome.deliverable: found a blank text, required a text",
            ),
            (
                json!({"deliverable": "x", "programs": []}),
                "outcome.programs: found 0 of them, required 1 to 8 programs",
            ),
            (
                json!({"deliverable": "x", "programs": [{"name": "a"}]}),
                "outcome.programs[0].code: found nothing, required a value",
            ),
            (
                json!({"deliverable": "x", "programs": [{"name": "a", "code": "1"}, {"name": "a", "code": "2"}]}),
                "outcome.programs[1].name: found the name of another program, required a name of its own",
            ),
            (
                json!({"deliverable": "x", "programs": fine, "witness": {"form": "sworn", "value": 1}}),
                "outcome.witness.form: found \"sworn\", required one of computed, certificate, argued, negative",
            ),
            (
                json!({"deliverable": "x", "programs": fine, "more": 1}),
                "outcome.more: found an unknown name, required only deliverable, programs, witness",
            ),
        ] {
            assert_eq!(lines(&outcome), [line]);
        }
        assert!(read(None).is_err());
    }
}
