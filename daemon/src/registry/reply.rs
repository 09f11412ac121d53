//! Turns a server's answer into what a program gets.

use ptc_protocol::run::ToolErrorKind;
use serde_json::Value;

use super::error::ToolError;
use super::problem::{Problem, joined};
use super::schema::Schema;
use super::table::Entry;
use crate::downstream::Answer;
use crate::downstream::json::{self, Duplicates};
use crate::downstream::result::{Expectation, Reading, ResultError};

/// The value of a call.
#[derive(Clone, Debug)]
pub struct ToolReply {
    /// The value as JSON text without white space, encoded once.
    pub encoded: Box<str>,
    /// Size of that text, in bytes.
    pub bytes: usize,
}

impl ToolReply {
    /// The value read again, for whoever needs more than its text.
    pub fn value(&self) -> Value {
        value_of(&self.encoded)
    }
}

/// The value of a JSON text, digits and keys as they stand there; `None` where it is none.
pub fn exact_value(text: &str) -> Option<Value> {
    json::read(text, Duplicates::LastWins).ok()
}

/// The same of a text in which no object has a key twice.
pub fn unambiguous_value(text: &str) -> Option<Value> {
    json::read(text, Duplicates::Refuse).ok()
}

/// From the raw result on: the value, then the declared output schema, then the size.
pub(super) fn finish(entry: &Entry, answer: Answer, limit: usize) -> Result<ToolReply, ToolError> {
    let (tool, server) = (entry.callable.as_str(), entry.server.as_str());
    let schema = entry.output().filter(|schema| schema.is_usable());
    let expected = Expectation {
        wrapped: entry
            .definition
            .output_schema
            .as_ref()
            .and_then(|schema| schema.get("x-fastmcp-wrap-result"))
            == Some(&Value::Bool(true)),
        nullable: schema.is_some_and(|schema| schema.takes(&Value::Null)),
    };
    let reading = Reading::take(answer.result, expected).map_err(|error| match error {
        ResultError::Failed { text, data } => {
            let data = data.filter(|data| data.len() <= limit);
            ToolError::failed(tool, server, &text, data.map(|data| value_of(&data)))
        }
        ResultError::Shape { what } => ToolError::shape(tool, server, &what),
    })?;
    let encoded = match schema {
        None => reading.into_encoded(),
        Some(schema) => checked(entry, reading, schema)?,
    };
    let bytes = encoded.len();
    if bytes > limit {
        return Err(ToolError::too_large(tool, server, bytes, limit));
    }
    Ok(ToolReply {
        encoded: encoded.into(),
        bytes,
    })
}

/// The value, if what came fits the declared output schema.
///
/// Where no structured content came, the text may be the JSON that the schema
/// describes; any other text is the server's explanation and goes into the error.
fn checked(entry: &Entry, reading: Reading, schema: &Schema) -> Result<String, ToolError> {
    if let Some(structured) = reading.structured() {
        let problems = schema.problems(&value_of(structured));
        if problems.is_empty() {
            return Ok(reading.into_encoded());
        }
        return Err(mismatch(entry, &problems, &reading.text()));
    }
    let text = reading.text();
    let encoded = reading.into_encoded();
    let value = value_of(&encoded);
    if !value.is_string() && !value.is_null() && schema.takes(&value) {
        return Ok(encoded);
    }
    let what = if text.is_empty() {
        "no structured content came, and no text".to_owned()
    } else {
        format!("no structured content came, only this text: {text}")
    };
    Err(invalid(entry, &what))
}

fn mismatch(entry: &Entry, problems: &[Problem], text: &str) -> ToolError {
    let sentences: Vec<String> = problems
        .iter()
        .map(|problem| problem.sentence("member"))
        .collect();
    let mut what = joined(&sentences);
    if !text.is_empty() {
        let head: String = text.chars().take(500).collect();
        what = format!("{what}; its text: {head}");
    }
    let data: Vec<Value> = problems.iter().map(Problem::to_json).collect();
    invalid(entry, &what).with_data(Some(serde_json::json!({"problems": data})))
}

fn invalid(entry: &Entry, what: &str) -> ToolError {
    let message = format!(
        "{}: the result of server {} does not fit the output schema it declares: {what}; \
         other arguments may do, else it is a fault of the server",
        entry.callable, entry.server
    );
    ToolError::new(ToolErrorKind::InvalidResult, message).of(&entry.callable, &entry.server)
}

/// The value of a text that is known to be JSON.
fn value_of(encoded: &str) -> Value {
    json::read(encoded, Duplicates::LastWins).unwrap_or_default()
}
