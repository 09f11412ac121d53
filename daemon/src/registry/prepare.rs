//! Reads and checks the arguments of a call before anything is sent.

use std::sync::Arc;

use ptc_protocol::run::ToolErrorKind;
use serde_json::{Map, Value, json};

use super::error::ToolError;
use super::integers;
use super::near::near;
use super::problem::{MAX_SHOWN_CHARS, Problem, joined};
use super::schema::cut;
use super::table::Entry;
use crate::downstream::json::{self, Duplicates};
use crate::downstream::result::kind_of;
use crate::policy::CallFacts;

/// Longest arguments of a call, in bytes of their JSON text.
pub const MAX_ARGUMENT_BYTES: usize = 4 * 1024 * 1024;
/// Most unknown names that a failed call's error mentions.
const MAX_STRANGERS: usize = 3;
/// Keywords by which a schema may name arguments elsewhere than in `properties`.
const NAMED_ELSEWHERE: [&str; 9] = [
    "patternProperties",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
];
/// The type of an argument of which the schema says none.
const ANY: &str = "any";
/// Longest signature that a message shows, in characters.
const MAX_SIGNATURE_CHARS: usize = 400;

/// A call that may be judged, logged and sent: all from this one value.
#[derive(Clone, Debug)]
pub struct PreparedCall {
    /// Callable name.
    pub name: String,
    /// The server's name.
    pub server: String,
    /// The tool's name on the wire.
    pub tool: String,
    /// Callable name without a suffix.
    pub plain: String,
    /// The arguments, normalised.
    pub arguments: Map<String, Value>,
    /// The arguments as the JSON text that is sent.
    pub encoded: Arc<str>,
    /// Words on arguments that the schema does not name and does not forbid, for a call that fails.
    pub(super) strangers: Option<String>,
    /// A line for each such argument whose name is near to one of the schema's, for a call that succeeds.
    pub note: Option<String>,
    pub(super) entry: Arc<Entry>,
}

impl PreparedCall {
    /// The facts that policy judges.
    pub fn facts(&self) -> CallFacts<'_> {
        CallFacts {
            callable: &self.name,
            plain: &self.plain,
            server: &self.server,
            tool: &self.tool,
        }
    }
}

/// Reads arguments once, checks and normalises them.
pub(super) fn prepare(
    entry: &Arc<Entry>,
    text: &str,
    check: bool,
) -> Result<PreparedCall, ToolError> {
    let refuse = |what: String, data: Option<Value>| {
        let message = format!(
            "{} on server {} was not called: {what}",
            entry.callable, entry.server
        );
        ToolError::new(ToolErrorKind::InvalidArguments, message)
            .of(&entry.callable, &entry.server)
            .with_data(data)
    };
    if text.len() > MAX_ARGUMENT_BYTES {
        let what = format!(
            "its arguments have {} bytes, over the limit of {MAX_ARGUMENT_BYTES}; send less at once",
            text.len()
        );
        return Err(refuse(what, None));
    }
    let mut arguments = json::read(text, Duplicates::Refuse)
        .map_err(|error| refuse(format!("its arguments cannot be read: {error}"), None))?;
    if !arguments.is_object() {
        let what = format!(
            "its arguments are {}, an object is required",
            kind_of(&arguments)
        );
        return Err(refuse(what, None));
    }
    if check
        && let Some(schema) = entry.input()
        && schema.is_usable()
    {
        integers::normalise(&mut arguments, schema);
        let problems = schema.problems(&arguments);
        if !problems.is_empty() {
            let mut sentences: Vec<String> = problems
                .iter()
                .map(|problem| problem.sentence("argument"))
                .collect();
            sentences.push(format!("signature: {}", signature(entry)));
            let what = joined(&sentences);
            let data: Vec<Value> = problems.iter().map(Problem::to_json).collect();
            return Err(refuse(what, Some(json!({"problems": data}))));
        }
    }
    let encoded = Arc::from(arguments.to_string());
    let arguments = match arguments {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    Ok(PreparedCall {
        name: entry.callable.clone(),
        server: entry.server.clone(),
        tool: entry.definition.name.clone(),
        plain: entry.plain.clone(),
        strangers: strangers(entry, &arguments),
        note: misspelt(entry, &arguments),
        arguments,
        encoded,
        entry: Arc::clone(entry),
    })
}

/// Words on arguments that the schema does not name, where it says which there are and takes others too.
///
/// A misspelt name is no fault then, and the server, which does not see the
/// argument it waits for, may only say that something is wrong.
fn strangers(entry: &Entry, arguments: &Map<String, Value>) -> Option<String> {
    let (names, strangers) = unnamed(entry, arguments)?;
    let sentences: Vec<String> = strangers
        .into_iter()
        .map(|name| {
            let free = |name: &&str| !arguments.contains_key(*name);
            let meant = near(name, names.iter().copied().filter(free));
            let meant = meant.into_iter().next();
            Problem::unknown(cut(name, MAX_SHOWN_CHARS), &names, &[], meant).sentence("argument")
        })
        .collect();
    (!sentences.is_empty()).then(|| joined(&sentences))
}

/// A line for each argument that the schema does not name and that is near to one it names.
fn misspelt(entry: &Entry, arguments: &Map<String, Value>) -> Option<String> {
    let (names, strangers) = unnamed(entry, arguments)?;
    // What is given already was not meant.
    let free = |name: &&str| !arguments.contains_key(*name);
    let lines: Vec<String> = strangers
        .into_iter()
        .filter_map(|name| {
            let meant = near(name, names.iter().copied().filter(free));
            let meant = meant.first()?;
            Some(format!(
                "{} has no argument {} in its schema: did you mean {}?",
                entry.callable,
                one_line(name),
                one_line(meant),
            ))
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn one_line(name: &str) -> String {
    cut(name, MAX_SHOWN_CHARS).replace(['\n', '\r'], " ")
}

/// The names a schema has and the few given ones it has not, where it says which there are and takes others too.
fn unnamed<'a>(
    entry: &'a Entry,
    arguments: &'a Map<String, Value>,
) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let known = listed(entry.definition.input_schema.as_ref()?)?;
    let names = known.keys().map(String::as_str).collect();
    let strangers = arguments
        .keys()
        .filter(|name| !known.contains_key(*name))
        .take(MAX_STRANGERS)
        .map(String::as_str)
        .collect();
    Some((names, strangers))
}

/// The properties of a schema that says by them alone which arguments there are.
fn listed(schema: &Value) -> Option<&Map<String, Value>> {
    let schema = schema.as_object()?;
    // A schema for further arguments means that any name will do.
    let open = schema
        .get("additionalProperties")
        .is_some_and(|further| further.as_object().is_some_and(|schema| !schema.is_empty()));
    if open || NAMED_ELSEWHERE.iter().any(|key| schema.contains_key(*key)) {
        return None;
    }
    schema.get("properties")?.as_object()
}

/// Whether a misspelt argument is sent: the schema names arguments and takes others, too.
pub(super) fn takes_misspelt(schema: &Value) -> bool {
    let closed = ["additionalProperties", "unevaluatedProperties"]
        .iter()
        .any(|key| schema.get(*key) == Some(&Value::Bool(false)));
    !closed && listed(schema).is_some_and(|names| !names.is_empty())
}

/// How a tool is called, the required parameters first to be seen.
pub(super) fn signature(entry: &Entry) -> String {
    let schema = entry.definition.input_schema.as_ref();
    let required: Vec<&str> = schema
        .and_then(|schema| schema.get("required"))
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = schema.and_then(|schema| schema.get("properties"));
    let shown = |name: &String| {
        let property = properties.and_then(|properties| properties.get(name));
        let kind = property.map_or_else(
            || ANY.to_owned(),
            |property| type_text(property, schema.unwrap_or(property)),
        );
        let optional = if required.contains(&name.as_str()) {
            String::new()
        } else {
            format!(" = {}", default_text(property))
        };
        (kind, optional)
    };
    let (plain, odd): (Vec<_>, Vec<_>) = entry
        .parameters
        .iter()
        .partition(|name| is_keyword_name(name));
    let mut parameters: Vec<String> = plain
        .into_iter()
        .map(|name| {
            let (kind, optional) = shown(name);
            format!("{name}: {kind}{optional}")
        })
        .collect();
    if !odd.is_empty() {
        let odd = odd.into_iter().map(|name| {
            let (kind, optional) = shown(name);
            format!("{}: {kind}{optional}", json!(name))
        });
        parameters.push(format!("**{{{}}}", odd.collect::<Vec<_>>().join(", ")));
    }
    let text = format!("{}({})", entry.callable, parameters.join(", "));
    if text.chars().count() <= MAX_SIGNATURE_CHARS {
        return text;
    }
    let head: String = text.chars().take(MAX_SIGNATURE_CHARS).collect();
    format!("{head}...)")
}

/// Whether a parameter can be written as a keyword in a Python call.
pub(super) fn is_keyword_name(name: &str) -> bool {
    const KEYWORDS: [&str; 35] = [
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class",
        "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global",
        "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return",
        "try", "while", "with", "yield",
    ];
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&name)
}

/// A type in a few characters; only what a schema says directly or by one reference counts.
fn type_text(schema: &Value, root: &Value) -> String {
    let target = schema.get("$ref").and_then(Value::as_str);
    let pointer = target.and_then(|target| target.strip_prefix('#'));
    let schema = pointer
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema);
    if let Some(Value::Array(choices)) = schema.get("enum") {
        let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
        return cut(&choices.join(" | "), MAX_SHOWN_CHARS);
    }
    if let Some(Value::Array(forms)) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        let mut names: Vec<&str> = Vec::new();
        for form in forms {
            match form.get("type").and_then(Value::as_str) {
                Some(name) if names.contains(&name) => {}
                Some(name) => names.push(name),
                None => return ANY.to_owned(),
            }
        }
        return names.join(" | ");
    }
    match schema.get("type") {
        Some(Value::String(one)) => one.clone(),
        Some(Value::Array(many)) => {
            let names: Vec<&str> = many.iter().filter_map(Value::as_str).collect();
            names.join(" | ")
        }
        _ => ANY.to_owned(),
    }
}

/// What an argument is where it is left out.
fn default_text(property: Option<&Value>) -> String {
    match property.and_then(|property| property.get("default")) {
        Some(default @ (Value::Number(_) | Value::String(_) | Value::Bool(_))) => {
            cut(&default.to_string(), MAX_SHOWN_CHARS)
        }
        _ => "optional".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ToolFilter;
    use crate::downstream::ToolDefinition;
    use crate::policy::Policy;

    fn tool(schema: Value) -> Arc<Entry> {
        let definition = ToolDefinition {
            name: "t".to_owned(),
            title: None,
            description: None,
            input_schema: Some(schema),
            output_schema: None,
            annotations: None,
        };
        let policy = Policy::new(&ToolFilter::All).unwrap();
        Arc::new(super::super::table::entry(
            "mcp__s__t",
            "s",
            &definition,
            &policy,
        ))
    }

    #[test]
    fn a_misspelt_argument_that_is_sent_is_noted_where_the_schema_tells_which_there_are() {
        let properties = json!({"per_page": {"type": "integer"}, "max-results": {}});
        let note = "mcp__s__t has no argument perPage in its schema: did you mean per_page?";
        let two = format!(
            "{note}\nmcp__s__t has no argument max_results in its schema: did you mean max-results?"
        );
        for (schema, arguments, expected) in [
            (json!({}), r#"{"perPage": 5}"#, Some(note)),
            (
                json!({"additionalProperties": true}),
                r#"{"perPage": 5}"#,
                Some(note),
            ),
            (
                json!({}),
                r#"{"perPage": 5, "max_results": 1, "zone": 2}"#,
                Some(two.as_str()),
            ),
            (json!({}), r#"{"zone": 5}"#, None),
            (json!({}), r#"{"per_page": 5, "perPage": 5}"#, None),
            (
                json!({"additionalProperties": {"type": "integer"}}),
                r#"{"perPage": 5}"#,
                None,
            ),
            (
                json!({"patternProperties": {"^p": {}}}),
                r#"{"perPage": 5}"#,
                None,
            ),
        ] {
            let mut schema = schema;
            schema["properties"] = properties.clone();
            let call = prepare(&tool(schema.clone()), arguments, true).unwrap();
            assert_eq!(call.note.as_deref(), expected, "{schema} {arguments}");
        }
    }
}
