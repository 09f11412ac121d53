//! The way of arguments: from the body of a call frame to the value that is sent.

use fastrand::Rng;
use ptc_tests::documents::{self, Form};
use ptc_tests::reference::{self, Json};
use ptcd::pool::frame::{FromWorker, read_frame};
use ptcd::registry::PreparedCall;
use ptcd::registry::door::Tool;
use serde_json::{Value, json};

use crate::frames::now;
use crate::mutate::{kind_of, mutate};
use crate::runner::Target;

/// Texts deeper than this may be refused.
const SURE_DEPTH: usize = 100;
/// Longest error a program may get, in bytes.
const MAX_ERROR: usize = 32 * 1024;
/// Between the schema and the arguments where the input brings its own schema.
const BORDER: u8 = 0x1e;
/// The schema that wants whole numbers everywhere at the top.
const INTEGERS: usize = 1;

/// An input is a byte that chooses the schema and one for the switches, then the arguments.
pub(crate) struct Arguments {
    schemas: Vec<Value>,
    tools: Vec<Tool>,
}

impl Arguments {
    pub(crate) fn new() -> Self {
        let schemas = vec![
            json!({}),
            json!({"additionalProperties": {"type": "integer"}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "k1": {"type": "number"}},
                "required": ["a"], "additionalProperties": false}),
            json!({"properties": {"a": {"type": ["integer", "null"]}, "data": {"$ref": "#"},
                "result": {"items": {"oneOf": [{"type": "integer"}, {"type": "string"}]}}}}),
            json!({"$defs": {"t": {"properties": {"kids": {"items": {"$ref": "#/$defs/t"}},
                "v": {"type": "integer", "minimum": 3}}}}, "$ref": "#/$defs/t"}),
            json!({"patternProperties": {"^(a|b)+$": {"type": "integer"}}, "additionalProperties": {"type": "string"}}),
            json!({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"maximum": 10}}}]}),
            json!({"properties": {"a": {"pattern": "(a+)+$"}, "code": {"pattern": "("}}}),
            json!({"properties": {"a": {"enum": [1, "x", null]}, "name": {"const": 1.0}}}),
            json!({"properties": {"a": {"type": "array", "uniqueItems": true, "maxItems": 3,
                "prefixItems": [{"type": "integer"}, {"type": "number"}]}}}),
            json!({"unevaluatedProperties": false, "properties": {"self": {"multipleOf": 0.1}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"x": {"type": "integer"}},
                "additionalProperties": {"anyOf": [{"$ref": "#/definitions/x"}, {"type": "object"}, {"type": "array"}]}}),
            json!({"$ref": "http://example.com/schema.json"}),
            json!({"type": "nonsense"}),
        ];
        let tools = schemas
            .iter()
            .map(|schema| Tool::new(Some(schema.clone()), None));
        Self {
            tools: tools.map(Option::unwrap).collect(),
            schemas,
        }
    }
}

impl Target for Arguments {
    fn name(&self) -> &'static str {
        "arguments"
    }

    fn make(&self, rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
        if rng.u8(..3) == 0 && !kept.is_empty() {
            let mut input = kept[rng.usize(..kept.len())].clone();
            mutate(rng, &mut input, kept);
            return input;
        }
        let form = Form {
            depth: 100,
            duplicates: rng.u8(..4) == 0,
        };
        let own = rng.u8(..16) == 0;
        let mut payload = Vec::new();
        if own {
            let mut schema = self.schemas[rng.usize(..self.schemas.len())]
                .to_string()
                .into_bytes();
            mutate(rng, &mut schema, kept);
            payload.extend(schema);
            payload.push(BORDER);
        }
        let mut text = documents::object_text(rng, form).into_bytes();
        if rng.u8(..3) == 0 {
            mutate(rng, &mut text, kept);
        }
        payload.extend(text);
        let schema = if own { u8::MAX } else { rng.u8(..128) };
        [vec![schema, rng.u8(..)], payload].concat()
    }

    fn check(&self, input: &[u8]) -> Result<String, String> {
        let &[schema, switches, ref payload @ ..] = input else {
            return Ok("too short".to_owned());
        };
        let own;
        let at = usize::from(schema) % self.tools.len();
        let (tool, source, text) = match payload.iter().position(|byte| *byte == BORDER) {
            Some(border) if schema >= 128 => {
                let Ok(schema) = serde_json::from_slice::<Value>(&payload[..border]) else {
                    return Ok("no schema".to_owned());
                };
                let source = schema.to_string();
                own = Tool::new(Some(schema), None).unwrap();
                (&own, source, &payload[border + 1..])
            }
            _ => (&self.tools[at], self.schemas[at].to_string(), payload),
        };
        let check = switches % 4 != 0;
        let document = std::str::from_utf8(text)
            .ok()
            .and_then(reference::read)
            .filter(|document| !document.halves);
        let right = document.as_ref().is_some_and(|document| {
            matches!(document.value, Json::Object(_)) && document.depth <= SURE_DEPTH
        });
        let Some(taken) = through_a_frame(text) else {
            return if right {
                Err("right arguments are no frame".to_owned())
            } else {
                Ok("no frame".to_owned())
            };
        };
        if right && Some(taken.as_str()) != std::str::from_utf8(text).ok().map(str::trim_ascii) {
            return Err(format!("the frame changed the arguments to {taken}"));
        }
        match tool.arguments(&taken, check) {
            Ok(call) => {
                sent(&taken, &call)?;
                unchanged(&taken, &call, check && source.contains("integer"))?;
                if check && schema < 128 && at == INTEGERS {
                    whole_numbers(&call)?;
                }
                let again = tool.arguments(&call.encoded, check).map_err(|error| {
                    format!("{} is refused the second time: {error}", call.encoded)
                })?;
                if again.encoded != call.encoded {
                    return Err(format!("{} becomes {}", call.encoded, again.encoded));
                }
                Ok(format!("{at} {check} sent {}", call.encoded.len().ilog2()))
            }
            Err(error) => {
                let duplicates = document.is_some_and(|document| document.duplicates);
                if right && !check && !duplicates {
                    return Err(format!("right arguments are refused: {error}"));
                }
                if error.message.len() > MAX_ERROR {
                    return Err(format!("an error of {} bytes", error.message.len()));
                }
                Ok(format!("{at} {:?} {}", error.kind, kind_of(&error.message)))
            }
        }
    }
}

/// The arguments as the daemon takes them out of a call frame.
fn through_a_frame(text: &[u8]) -> Option<String> {
    let body = [
        br#"{"id":1,"tool":"mcp__s__t","arguments":"#.as_slice(),
        text,
        b"}",
    ]
    .concat();
    let length = u32::try_from(body.len() + 1).ok()?;
    let frame = [length.to_le_bytes().as_slice(), b"C", &body].concat();
    let mut stream = frame.as_slice();
    match now(read_frame(&mut stream, 1024)) {
        Ok(Some(FromWorker::Call(call))) => Some(call.arguments.get().to_owned()),
        _ => None,
    }
}

/// What is sent is one JSON object without duplicates, and the value that was judged.
fn sent(taken: &str, call: &PreparedCall) -> Result<(), String> {
    let before = reference::read(taken)
        .filter(|read| !read.halves)
        .ok_or_else(|| format!("no JSON was taken: {taken}"))?;
    if before.duplicates {
        return Err(format!("a duplicate key was taken: {taken}"));
    }
    let Some(read) = reference::read(&call.encoded) else {
        return Err(format!("what is sent is no JSON: {}", call.encoded));
    };
    let judged = serde_json::to_string(&call.arguments).map_err(|error| error.to_string())?;
    if judged != *call.encoded {
        return Err(format!("{} is sent and {judged} judged", call.encoded));
    }
    let is_line = !call.encoded.bytes().any(|byte| byte < b' ');
    (is_line && !read.duplicates && matches!(read.value, Json::Object(_)))
        .then_some(())
        .ok_or_else(|| format!("{} is sent", call.encoded))
}

/// Nothing differs but whole floats that became integers of the same value.
fn unchanged(taken: &str, call: &PreparedCall, integers: bool) -> Result<(), String> {
    let read = |text: &str| reference::read(text).map(|read| read.value);
    match (read(taken), read(&call.encoded)) {
        (Some(before), Some(after)) if same(&before, &after, integers) => Ok(()),
        _ => Err(format!("{taken} is sent as {}", call.encoded)),
    }
}

fn same(before: &Json, after: &Json, integers: bool) -> bool {
    match (before, after) {
        (Json::Number(before), Json::Number(after)) if before != after => {
            integers
                && before.contains(['.', 'e'])
                && !after.contains(['.', 'e'])
                && decimal(before).is_some()
                && decimal(before) == decimal(after)
        }
        (Json::List(before), Json::List(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .zip(after)
                    .all(|(before, after)| same(before, after, integers))
        }
        (Json::Object(before), Json::Object(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(before, after)| {
                    before.0 == after.0 && same(&before.1, &after.1, integers)
                })
        }
        _ => before == after,
    }
}

/// Sign, digits without zeros at either end, and the power of ten of the last one.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let mut exponent: i64 = exponent.parse().ok()?;
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent = exponent.checked_sub(i64::try_from(after.len()).ok()?)?;
    let digits = format!("{before}{after}");
    let short = digits.trim_end_matches('0');
    exponent += i64::try_from(digits.len() - short.len()).ok()?;
    let short = short.trim_start_matches('0');
    if short.is_empty() {
        // Zero has one form; its sign says nothing.
        return Some((false, String::new(), 0));
    }
    Some((negative, short.to_owned(), exponent))
}

/// Under a schema that takes integers only, no number is left in the form of a float.
fn whole_numbers(call: &PreparedCall) -> Result<(), String> {
    let Some(Json::Object(members)) = reference::read(&call.encoded).map(|read| read.value) else {
        return Ok(());
    };
    for (key, value) in members {
        let ok = match &value {
            // Beyond the digits an integer may have, it stays as it was written.
            Json::Number(text) => {
                let exponent = text
                    .split_once('e')
                    .and_then(|(_, e)| e.parse::<i64>().ok());
                !text.contains(['.', 'e']) || exponent.is_none_or(|exponent| exponent > 300)
            }
            _ => false,
        };
        if !ok {
            return Err(format!(
                "{key:?} is sent as {value:?} where an integer is wanted"
            ));
        }
    }
    Ok(())
}
