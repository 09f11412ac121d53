//! Finds keys that stand twice in one object, which a parser would quietly make one.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Whether a JSON text can be read and no object in it has a key twice.
pub(super) fn check(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str(text).map(|Unique| ())
}

/// A value whose objects have each key once.
#[derive(Debug)]
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
        while items.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            members.next_value::<Unique>()?;
            if let Some(key) = seen.replace(key) {
                let name: String = key.chars().take(80).collect();
                return Err(de::Error::custom(format_args!(
                    "the key {name:?} stands twice in one object"
                )));
            }
        }
        Ok(Unique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_found_at_any_depth_and_however_it_is_written() {
        for text in [
            r#"{"code":"a","code":"b"}"#,
            r#"{"a":[1,{"x":1,"y":{},"x":null}]}"#,
            r#"{"code":1,"\u0063ode":1}"#,
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains("stands twice"), "{text}: {error}");
        }
    }

    #[test]
    fn what_has_each_key_once_passes_with_any_value() {
        for text in [
            r#"{"a":{"a":{"a":1e400}},"b":[{"a":1},{"a":2}],"c":123456789012345678901234567890}"#,
            "[-0,1.5,true,null,\"\"]",
            "7",
        ] {
            check(text).unwrap();
        }
        assert!(check(r#"{"a":"\ud800"}"#).is_err());
    }
}
