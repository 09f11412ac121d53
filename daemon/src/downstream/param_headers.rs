//! Repeats annotated arguments of a call as HTTP headers.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::json::{self, Duplicates};
use super::outgoing::ParamHeaders;

/// The annotation in a tool's input schema.
const ANNOTATION: &str = "x-mcp-header";
/// What the name of such a header begins with.
const PREFIX: &str = "Mcp-Param-";
/// Deepest nesting of properties that is looked into.
const MAX_DEPTH: usize = 32;
const BASE64_HEAD: &str = "=?base64?";
const BASE64_TAIL: &str = "?=";

/// Which arguments of one tool are repeated, and by what header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Annotations(Vec<(Vec<String>, String)>);

impl Annotations {
    /// Those of an input schema.
    ///
    /// # Errors
    /// What is wrong with one of them: such a tool must not be called over HTTP.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut walk = Walk::default();
        walk.schema(schema, &mut Vec::new(), true)?;
        Ok(Self(walk.found))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers for a call with these arguments.
    pub(super) fn headers(&self, arguments: &str) -> ParamHeaders {
        let Ok(arguments) = json::read(arguments, Duplicates::LastWins) else {
            return ParamHeaders::default();
        };
        let header = |(path, name): &(Vec<String>, String)| {
            let value = path
                .iter()
                .try_fold(&arguments, |value, key| value.get(key))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((format!("{PREFIX}{name}"), encode(&text)))
        };
        ParamHeaders(self.0.iter().filter_map(header).collect())
    }
}

#[derive(Default)]
struct Walk {
    found: Vec<(Vec<String>, String)>,
    names: HashSet<String>,
}

impl Walk {
    /// `reached` says whether the schema is that of an argument, or of a part
    /// of one, that is found by its name alone.
    fn schema(
        &mut self,
        schema: &Value,
        path: &mut Vec<String>,
        reached: bool,
    ) -> Result<(), String> {
        if path.len() > MAX_DEPTH {
            return Ok(());
        }
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(items) => {
                return items
                    .iter()
                    .try_for_each(|item| self.schema(item, path, false));
            }
            _ => return Ok(()),
        };
        for (key, value) in members {
            match key.as_str() {
                ANNOTATION => self.annotation(members, value, path, reached)?,
                "properties" => self.properties(value, path, reached)?,
                "$defs" | "definitions" | "dependencies" | "dependentSchemas"
                | "patternProperties" => self.properties(value, path, false)?,
                // Data and names, no schemas.
                "default" | "const" | "enum" | "examples" | "dependentRequired" | "required" => {}
                _ => {
                    path.push(key.clone());
                    let walked = self.schema(value, path, false);
                    path.pop();
                    walked?;
                }
            }
        }
        Ok(())
    }

    fn properties(
        &mut self,
        properties: &Value,
        path: &mut Vec<String>,
        reached: bool,
    ) -> Result<(), String> {
        let Value::Object(properties) = properties else {
            return Ok(());
        };
        for (name, schema) in properties {
            path.push(name.clone());
            let walked = self.schema(schema, path, reached);
            path.pop();
            walked?;
        }
        Ok(())
    }

    fn annotation(
        &mut self,
        members: &Map<String, Value>,
        name: &Value,
        path: &[String],
        reached: bool,
    ) -> Result<(), String> {
        let at = path.join(".");
        if !reached || path.is_empty() {
            return Err(format!("{ANNOTATION} stands where no argument is ({at:?})"));
        }
        let Some(name) = name.as_str().filter(|name| is_token(name)) else {
            return Err(format!("{ANNOTATION} of {at:?} cannot name a header"));
        };
        if !self.names.insert(name.to_ascii_lowercase()) {
            return Err(format!("{ANNOTATION} {name:?} is there twice"));
        }
        match members.get("type").and_then(Value::as_str) {
            Some("string" | "integer" | "boolean") => {
                self.found.push((path.to_vec(), name.to_owned()));
                Ok(())
            }
            _ => Err(format!(
                "{ANNOTATION} is for a string, an integer or a boolean, and {at:?} is none"
            )),
        }
    }
}

fn is_token(name: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.len() <= 200 && name.chars().all(token)
}

/// A value as a header can carry it: what is not plain text is wrapped in Base64.
pub(super) fn encode(value: &str) -> String {
    let looks_wrapped = value.starts_with(BASE64_HEAD) && value.ends_with(BASE64_TAIL);
    let printable = value.chars().all(|c| matches!(c, ' '..='~'));
    if printable && value.trim() == value && !looks_wrapped {
        value.to_owned()
    } else {
        format!(
            "{BASE64_HEAD}{}{BASE64_TAIL}",
            BASE64_STANDARD.encode(value)
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotated_arguments_become_headers_and_the_rest_does_not() {
        let schema = json!({
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "page": {"type": "integer", "x-mcp-header": "Page"},
                "where": {"type": "object", "properties": {
                    "dry": {"type": "boolean", "x-mcp-header": "Dry"},
                }},
                "none": {"type": "string", "x-mcp-header": "None"},
                "x-mcp-header": {"type": "string"},
            },
        });
        let annotations = Annotations::of(&schema).unwrap();
        let headers = annotations.headers(
            r#"{"region":"Zürich ","page":123456789012345678901,"where":{"dry":true},"none":null,"x-mcp-header":"no"}"#,
        );
        let mut found = headers.0;
        found.sort();
        let expected = [
            ("Mcp-Param-Dry", "true"),
            ("Mcp-Param-Page", "123456789012345678901"),
            ("Mcp-Param-Region", "=?base64?WsO8cmljaCA=?="),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn values_that_would_be_changed_on_the_way_are_wrapped() {
        for (value, expected) in [
            ("plain text", "plain text"),
            ("", ""),
            (" x", "=?base64?IHg=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ] {
            assert_eq!(encode(value), expected);
        }
    }

    #[test]
    fn annotations_that_cannot_be_honoured_are_named() {
        let of = |property: Value| {
            Annotations::of(&json!({"type": "object", "properties": {"p": property}}))
        };
        for (property, part) in [
            (json!({"type": "string", "x-mcp-header": ""}), "cannot name"),
            (
                json!({"type": "string", "x-mcp-header": "a b"}),
                "cannot name",
            ),
            (json!({"type": "string", "x-mcp-header": 7}), "cannot name"),
            (json!({"type": "number", "x-mcp-header": "N"}), "is none"),
            (
                json!({"type": "array", "items": {"type": "string", "x-mcp-header": "N"}}),
                "where no argument",
            ),
        ] {
            let error = of(property).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let twice = json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "N"},
            "b": {"type": "string", "x-mcp-header": "n"},
        }});
        assert!(Annotations::of(&twice).unwrap_err().contains("twice"));
        let root = json!({"x-mcp-header": "N"});
        assert!(Annotations::of(&root).is_err());
        assert!(Annotations::of(&Value::Null).unwrap().is_empty());
    }
}
