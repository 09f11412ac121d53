//! Tells a text that only renders a value from one that says more.

use std::cell::OnceCell;

use serde_json::Value;

use super::compact::compact;
use super::json::{self, Duplicates, same};

/// A value as JSON text without white space; read where its text is not enough.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) text: String,
    value: OnceCell<Value>,
}

impl Encoded {
    pub(super) fn new(text: String) -> Self {
        Self {
            text,
            value: OnceCell::new(),
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self.value.into_inner() {
            Some(value) => value,
            None => read(&self.text),
        }
    }

    fn value(&self) -> &Value {
        self.value.get_or_init(|| read(&self.text))
    }

    /// What sort of value it is, by its first character.
    fn sort(&self) -> u8 {
        match self.text.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => b'0',
            first => first.copied().unwrap_or_default(),
        }
    }
}

/// A text, and the JSON it is, if it is any.
#[derive(Debug)]
pub(super) struct Rendering<'a> {
    text: &'a str,
    json: Option<Encoded>,
}

impl<'a> Rendering<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            json: compact(text).ok().map(Encoded::new),
        }
    }

    /// Whether the text says nothing that the value does not.
    pub(super) fn renders(&self, value: &Encoded) -> bool {
        let json = self.json.as_ref();
        json.is_some_and(|json| same_data(json, value)) || is_text_of(self.text, value)
    }
}

fn same_data(json: &Encoded, value: &Encoded) -> bool {
    // Most servers write both in the same order, so that no value is built.
    json.text == value.text
        || (json.sort() == value.sort()
            && (same(json.value(), value.value()) || repeats(json.value(), value.value())))
}

/// Whether a value is just this text.
fn is_text_of(text: &str, value: &Encoded) -> bool {
    value.text.starts_with('"') && matches!(value.value(), Value::String(string) if string == text)
}

/// Whether a text's object only repeats members of the value, so that nothing is lost without it.
fn repeats(text: &Value, value: &Value) -> bool {
    let (Value::Object(text), Value::Object(value)) = (text, value) else {
        return false;
    };
    !text.is_empty()
        && text
            .iter()
            .all(|(key, member)| value.get(key).is_some_and(|own| same(member, own)))
}

/// The value of a text that is known to be JSON.
fn read(text: &str) -> Value {
    json::read(text, Duplicates::LastWins).unwrap_or_default()
}
