//! Turns the arguments of a call into Cedar's values, by hand.
//!
//! Cedar's own reading of JSON makes an entity of an object with the key `__entity`, and an extension call of one
//! with `__extn`. Built by hand, such an object is a record with that key and nothing else.

use std::fmt::Write as _;

use cedar_policy::RestrictedExpression;
use serde_json::{Map, Value};

use crate::numbers::{Number, number};
use crate::schemas::Place;

/// Most values in the arguments of a call that are judged.
const MAX_NODES: usize = 4096;
/// Deepest nesting of arguments that are judged.
const MAX_DEPTH: usize = 16;
/// Most text in arguments that are judged, in bytes.
const MAX_TEXT: usize = 256 * 1024;

/// What policies see of a call's arguments.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The record `context.arguments`.
    pub(crate) record: RestrictedExpression,
    /// The text `context.arguments_json`: keys sorted, no spaces.
    pub(crate) json: String,
}

/// The arguments as Cedar's values; `None` where they are too large to be judged.
pub(crate) fn arguments(map: &Map<String, Value>, schema: Option<&Value>) -> Option<Arguments> {
    let mut room = Room {
        nodes: MAX_NODES,
        text: MAX_TEXT,
    };
    room.take_map(map, 0)?;
    let record = record(map, &Place::root(schema)).ok()?;
    let mut json = String::new();
    write_map(&mut json, map);
    Some(Arguments { record, json })
}

/// What is still left of the bounds.
struct Room {
    nodes: usize,
    text: usize,
}

impl Room {
    fn take(&mut self, value: &Value, depth: usize) -> Option<()> {
        self.nodes = self.nodes.checked_sub(1)?;
        if depth > MAX_DEPTH {
            return None;
        }
        match value {
            Value::Null | Value::Bool(_) => Some(()),
            Value::Number(number) => self.take_text(number.as_str()),
            Value::String(text) => self.take_text(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.take(item, depth + 1)),
            Value::Object(map) => self.take_map(map, depth),
        }
    }

    fn take_map(&mut self, map: &Map<String, Value>, depth: usize) -> Option<()> {
        map.iter().try_for_each(|(key, value)| {
            self.take_text(key)?;
            self.take(value, depth + 1)
        })
    }

    fn take_text(&mut self, text: &str) -> Option<()> {
        self.text = self.text.checked_sub(text.len())?;
        Some(())
    }
}

/// What Cedar does not take; there is no such thing among what JSON can say.
struct Unfit;

fn record(map: &Map<String, Value>, place: &Place<'_>) -> Result<RestrictedExpression, Unfit> {
    let mut fields = Vec::with_capacity(map.len());
    for (key, value) in map {
        if let Some(value) = value_of(value, &place.key(key))? {
            fields.push((key.clone(), value));
        }
    }
    RestrictedExpression::new_record(fields).map_err(|_| Unfit)
}

/// One value; nothing at all for null.
fn value_of(value: &Value, place: &Place<'_>) -> Result<Option<RestrictedExpression>, Unfit> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(value) => RestrictedExpression::new_bool(*value),
        Value::String(text) => RestrictedExpression::new_string(text.clone()),
        Value::Number(found) => match number(found.as_str(), place.takes_fractions()) {
            Number::Long(value) => RestrictedExpression::new_long(value),
            Number::Decimal(text) => RestrictedExpression::new_decimal(text),
            Number::Text => RestrictedExpression::new_string(found.as_str().to_owned()),
        },
        Value::Array(items) => {
            let place = place.item();
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                values.extend(value_of(item, &place)?);
            }
            RestrictedExpression::new_set(values)
        }
        Value::Object(map) => record(map, place)?,
    }))
}

/// Writes an object with its keys sorted, so that a pattern need not know in which order a program gave them.
fn write_map(to: &mut String, map: &Map<String, Value>) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    to.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            to.push(',');
        }
        write_text(to, key);
        to.push(':');
        write_value(to, value);
    }
    to.push('}');
}

fn write_value(to: &mut String, value: &Value) {
    match value {
        Value::Object(map) => write_map(to, map),
        Value::Array(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                write_value(to, item);
            }
            to.push(']');
        }
        Value::String(text) => write_text(to, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing to a string does not fail.
            let _ = write!(to, "{value}");
        }
    }
}

fn write_text(to: &mut String, text: &str) {
    let _ = write!(to, "{}", Value::String(text.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use cedar_policy::{Context, EvalResult};
    use serde_json::json;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn evaluated(value: &Value) -> EvalResult {
        let made = arguments(&map(value), None).unwrap();
        let context = Context::from_pairs([("arguments".to_owned(), made.record)]).unwrap();
        context.get("arguments").unwrap()
    }

    #[test]
    fn nulls_are_left_out_and_lists_are_sets() {
        let value = evaluated(&json!({"a": null, "b": [1, null, 1, "x"], "c": {"d": null}}));
        let EvalResult::Record(record) = &value else {
            panic!("{value}")
        };
        assert!(record.get("a").is_none());
        let Some(EvalResult::Set(set)) = record.get("b") else {
            panic!("{value}")
        };
        assert_eq!(set.len(), 2);
    }

    #[test]
    fn what_looks_like_an_entity_or_an_extension_is_a_record() {
        for forged in [
            json!({"__entity": {"type": "Client", "id": "admin"}}),
            json!({"__extn": {"fn": "ip", "arg": "127.0.0.1"}}),
            json!({"__expr": "Client::\"admin\""}),
        ] {
            let value = evaluated(&json!({"x": forged}));
            let EvalResult::Record(outer) = &value else {
                panic!("{value}")
            };
            assert!(
                matches!(outer.get("x"), Some(EvalResult::Record(_))),
                "{value}"
            );
        }
    }

    #[test]
    fn what_is_too_large_is_left_out() {
        let deep = (0..MAX_DEPTH).fold(json!(1), |value, _| json!([value]));
        assert!(arguments(&map(&json!({"a": deep})), None).is_none());
        let many = json!({"a": vec![1; MAX_NODES]});
        assert!(arguments(&map(&many), None).is_none());
        let long = json!({"a": "x".repeat(MAX_TEXT)});
        assert!(arguments(&map(&long), None).is_none());
        let fits = json!({"a": "x".repeat(MAX_TEXT - 1), "": vec![1; 0]});
        assert!(arguments(&map(&fits), None).is_some());
    }

    #[test]
    fn the_text_has_sorted_keys() {
        let made = arguments(
            &map(&json!({"b": [{"d": 1.50, "c": "\"\n"}], "a": null})),
            None,
        );
        assert_eq!(
            made.unwrap().json,
            r#"{"a":null,"b":[{"c":"\"\n","d":1.5}]}"#
        );
    }
}
