//! Copies JSON text without its white space and without building its value.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::json::{self, Duplicates, KeySeed};

/// Keys of one object that are compared one by one; more are looked up.
const FEW_KEYS: usize = 32;

/// The same JSON, written in the one way in which `serde_json` would write its
/// value: no white space, the last of equal keys, every digit of every number.
///
/// A value of tens of megabytes takes many times its text in memory, and most
/// results go to a program without a look inside.
pub(crate) fn compact(text: &str) -> Result<String, serde_json::Error> {
    let mut pen = Pen::new(text);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let copied = Copy(&mut pen)
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    if pen.repeated {
        return json::read(text, Duplicates::LastWins).map(|value| value.to_string());
    }
    match copied {
        Ok(()) => Ok(pen.out),
        Err(error) => match json::without_half_pairs(text) {
            Some(mended) => {
                json::read(&mended, Duplicates::LastWins).map(|value| value.to_string())
            }
            None => Err(error),
        },
    }
}

/// Where the copy is written.
pub(super) struct Pen {
    pub(super) out: String,
    /// Where the text lies in memory, by which its keys are told from `serde_json`'s own.
    input: Range<usize>,
    /// Hashes of the keys of every object that is open.
    keys: Vec<u64>,
    /// Whether an object has, or may have, a key twice: then its value must be built.
    pub(super) repeated: bool,
}

impl Pen {
    pub(super) fn new(text: &str) -> Self {
        Self::within(json::place_of(text))
    }

    /// For a part of a text that lies at `input`.
    pub(super) fn within(input: Range<usize>) -> Self {
        Self {
            out: String::new(),
            input,
            keys: Vec::new(),
            repeated: false,
        }
    }

    fn quote<E: de::Error>(&mut self, text: &str) -> Result<(), E> {
        let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
        if text.bytes().all(plain) {
            self.out.push('"');
            self.out.push_str(text);
            self.out.push('"');
        } else {
            self.out
                .push_str(&serde_json::to_string(text).map_err(de::Error::custom)?);
        }
        Ok(())
    }
}

/// Writes one value.
pub(super) struct Copy<'a>(pub(super) &'a mut Pen);

impl<'de> DeserializeSeed<'de> for Copy<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Copy<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.out.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.out.push_str(&value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.out.push_str(&value.to_string());
        Ok(())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.0.quote(value)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.out.push_str("null");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let pen = self.0;
        let mut separator = '[';
        loop {
            let before = pen.out.len();
            pen.out.push(separator);
            if items.next_element_seed(Copy(pen))?.is_none() {
                pen.out.truncate(before);
                break;
            }
            separator = ',';
        }
        pen.out.push_str(if separator == '[' { "[]" } else { "]" });
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let pen = self.0;
        let mut keys = Keys::new(pen);
        let mut separator = '{';
        while let Some(key) = members.next_key_seed(KeySeed {
            input: pen.input.clone(),
        })? {
            let Some(key) = key else {
                let digits: String = members.next_value()?;
                pen.out.push_str(&digits);
                return Ok(());
            };
            if !keys.add(pen, &key) {
                pen.repeated = true;
                return Err(de::Error::custom("an object has a key twice"));
            }
            pen.out.push(separator);
            pen.quote(&key)?;
            pen.out.push(':');
            members.next_value_seed(Copy(pen))?;
            separator = ',';
        }
        keys.close(pen);
        pen.out.push_str(if separator == '{' { "{}" } else { "}" });
        Ok(())
    }
}

/// The keys of one object so far.
struct Keys {
    /// Where they begin among those of all open objects.
    start: usize,
    many: HashSet<u64>,
}

impl Keys {
    fn new(pen: &Pen) -> Self {
        Self {
            start: pen.keys.len(),
            many: HashSet::new(),
        }
    }

    /// False if the key is there already; two keys with one hash count as equal.
    fn add(&mut self, pen: &mut Pen, key: &str) -> bool {
        let hash = hash(key);
        if !self.many.is_empty() {
            return self.many.insert(hash);
        }
        let few = pen.keys.get(self.start..).unwrap_or_default();
        if few.contains(&hash) {
            return false;
        }
        if few.len() < FEW_KEYS {
            pen.keys.push(hash);
        } else {
            self.many.extend(few);
            self.many.insert(hash);
        }
        true
    }

    fn close(self, pen: &mut Pen) {
        pen.keys.truncate(self.start);
    }
}

/// FNV-1a: quick on short keys, and a false likeness only costs time.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn through_the_value(text: &str) -> Option<String> {
        let value = json::read(text, Duplicates::LastWins).ok()?;
        Some(value.to_string())
    }

    #[test]
    fn the_copy_is_what_the_value_would_be_written_as() {
        let wide: Vec<String> = (0..100).map(|n| format!("\"k{n}\": {n}")).collect();
        let wide = format!("{{{}}}", wide.join(", "));
        let wide_twice = wide.replace("\"k99\"", "\"k3\"");
        for text in [
            " { \"a\" : [ 1 , 2.50 , -0.0 , 1E2 , 1e+400 , 12345678901234567890123 ] } ",
            "[]",
            "[[],{}, [ {} ]]",
            "{\"\":null,\"t\":true,\"f\":false}",
            "\"caf\\u00e9 \\ud83e\\udd80 \\n\\t\\\"\\\\\\/\\u0001\\u007f\"",
            "{\"a\\u0062\":\"\\u2028\"}",
            "{\"a\":1,\"b\":{\"a\":2},\"a\":[3]}",
            "[{\"x\":1,\"\\u0078\":2}]",
            "{\"$serde_json::private::Number\":\"12\",\"b\":{\"$serde_json::private::Number\":1}}",
            &wide,
            &wide_twice,
        ] {
            let copied = compact(text).unwrap();
            assert_eq!(Some(&copied), through_the_value(text).as_ref(), "{text}");
            assert_eq!(compact(&copied).unwrap(), copied);
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in [
            "",
            "{",
            "NaN",
            "{\"a\":NaN}",
            "1 2",
            "[1,]",
            "{\"a\":1,\"a\":}",
            "{\"a\":1,\"a\":2",
        ] {
            assert!(compact(text).is_err(), "{text}");
        }
        assert!(compact(&"[".repeat(5000)).is_err());
        // Half a surrogate pair is JSON and no text; it is mended as where values are built.
        assert_eq!(compact(r#"[ "\ud800x" ]"#).unwrap(), "[\"\u{fffd}x\"]");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec(("[ab\"\\\\é]{0,2}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_the_value_on_any_text(text in "[\\[\\]{}:,\"a0-9.eE \\\\-]{0,24}") {
            prop_assert_eq!(compact(&text).ok(), through_the_value(&text));
        }

        #[test]
        fn agrees_with_the_value_on_any_json(value in any_value()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(compact(&pretty).ok(), Some(value.to_string()));
        }
    }
}
