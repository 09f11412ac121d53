//! Reads JSON in which no object has a key twice.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{self, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest part of a key that an error shows, in characters.
const MAX_KEY_CHARS: usize = 80;

/// The value of a JSON text; a key that stands twice in one object is refused, since one value of it would be lost.
pub(super) fn value(text: &str) -> Result<Value, serde_json::Error> {
    let value = serde_json::from_str(text)?;
    check(text)?;
    Ok(value)
}

/// Looks at one level after the other, so that numbers are never read.
fn check(text: &str) -> Result<(), serde_json::Error> {
    match text.trim_start().as_bytes().first() {
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            items.into_iter().try_for_each(|item| check(item.get()))
        }
        Some(b'{') => {
            let members = serde_json::Deserializer::from_str(text).deserialize_map(Members)?;
            members
                .into_iter()
                .try_for_each(|member| check(member.get()))
        }
        _ => Ok(()),
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut seen, mut values) = (BTreeSet::new(), Vec::new());
        while let Some((key, value)) = members.next_entry::<String, &'de RawValue>()? {
            values.push(value);
            if let Some(key) = seen.replace(key) {
                let key: String = key.chars().take(MAX_KEY_CHARS).collect();
                return Err(de::Error::custom(format_args!(
                    "the key {key:?} stands twice in one object"
                )));
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_named_at_any_depth() {
        for text in [r#"{"a":1,"a":2}"#, r#"[{"x":{"a":1,"\u0061":2}}]"#] {
            let error = value(text).unwrap_err().to_string();
            assert!(error.starts_with("the key \"a\" stands twice"), "{error}");
        }
        let text = r#"{"a":{"a":[1e400,12345678901234567890123]},"b":[{"a":1},{"a":null}]}"#;
        assert_eq!(
            value(text).unwrap(),
            serde_json::from_str::<Value>(text).unwrap()
        );
        assert!(value("{").is_err());
    }
}
