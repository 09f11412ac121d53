//! Reads JSON text without changing a digit of any number.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::compact::{Copy, Pen};

/// The member of a message that is a tool's result, or a list of tools.
const RESULT: &str = "result";
/// The member of a result that may be large and mostly goes on as it is.
pub(super) const STRUCTURED: &str = "structuredContent";
/// The key by which `serde_json` hands an exact number to a visitor.
const NUMBER_TOKEN: &str = "$serde_json::private::Number";
/// More digits than this in one integer is not a number for a program: CPython refuses to read it.
pub(crate) const MAX_INTEGER_DIGITS: usize = 4300;

/// What is done with a key that occurs twice in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    /// The last value stays, as Python's `json` reads it; an escape for half a
    /// surrogate pair, which is JSON and no text, becomes U+FFFD.
    LastWins,
    /// The text is refused, and so is half a surrogate pair.
    Refuse,
}

/// Reads one JSON value, with nothing but white space around it.
///
/// Objects keep their order and numbers their digits. An object that happens
/// to use `serde_json`'s own private key is read as the object it is.
pub(crate) fn read(text: &str, duplicates: Duplicates) -> Result<Value, serde_json::Error> {
    read_at(text, duplicates, Place::Within).or_else(|error| match duplicates {
        Duplicates::Refuse => Err(error),
        Duplicates::LastWins => {
            let mended = without_half_pairs(text).ok_or(error)?;
            read_at(&mended, duplicates, Place::Within)
        }
    })
}

/// Reads a JSON-RPC message, in which the structured content of a result stays
/// text: a string that holds its JSON, without white space. Null stays null.
pub(super) fn read_message(text: &str) -> Result<Value, serde_json::Error> {
    if let Ok(message) = read_at(text, Duplicates::LastWins, Place::Message) {
        return Ok(message);
    }
    // What cannot be copied is broken, or has a key twice and is put right as a value.
    let mut message = read(text, Duplicates::LastWins)?;
    if let Some(structured) = message
        .get_mut(RESULT)
        .and_then(|result| result.get_mut(STRUCTURED))
    {
        *structured = packed(structured.take());
    }
    Ok(message)
}

fn read_at(text: &str, duplicates: Duplicates, place: Place) -> Result<Value, serde_json::Error> {
    let seed = Seed {
        input: place_of(text),
        duplicates,
        place,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Where a text lies in memory.
pub(super) fn place_of(text: &str) -> Range<usize> {
    let start = text.as_ptr() as usize;
    start..start + text.len()
}

/// What a program's structured content is kept as: text, but null stays null.
fn packed(value: Value) -> Value {
    match value {
        Value::Null => Value::Null,
        other => Value::String(other.to_string()),
    }
}

/// Whether two values are the same data, however their numbers are written.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a.as_str(), b.as_str()),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        _ => a == b,
    }
}

/// Whether the text of a number is that of an integer.
pub(crate) fn is_integer_text(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// The text with U+FFFD in place of each escape for half a surrogate pair; `None` where it has none.
///
/// Servers that cut text by UTF-16 units write such halves. They are JSON and
/// no text, and one of them is no reason to lose the rest of an answer.
pub(super) fn without_half_pairs(text: &str) -> Option<String> {
    let mut mended = String::with_capacity(text.len());
    let (mut rest, mut found) = (text, false);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let length = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => 0,
            (Some(_), _) => 6,
            // The character after it may be a backslash, which begins nothing.
            (None, _) => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        if length == 0 {
            found = true;
            mended.push('\u{fffd}');
        }
        let (kept, after) = escape.split_at(length);
        mended.push_str(kept);
        rest = if length == 0 { after.get(6..)? } else { after };
    }
    mended.push_str(rest);
    found.then_some(mended)
}

/// A message with null in place of whatever lies so deep that it cannot be read.
pub(super) fn shallow(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for c in text.chars() {
        let inside = depth > SHALLOW;
        if quoted {
            (escaped, quoted) = (!escaped && c == '\\', escaped || c != '"');
        } else {
            match c {
                '"' => quoted = true,
                '{' | '[' => {
                    depth += 1;
                    if depth == SHALLOW + 1 {
                        out.push_str("null");
                    }
                }
                '}' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if !inside && depth <= SHALLOW {
            out.push(c);
        }
    }
    out
}

/// The number of an escape `\\uXXXX` at the beginning of a text.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

fn same_number(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    if is_integer_text(a) && is_integer_text(b) {
        return false;
    }
    let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) else {
        return false;
    };
    // Minus zero is zero, as in Python.
    (a + 0.0).total_cmp(&(b + 0.0)).is_eq()
}

#[derive(Clone)]
struct Seed {
    /// Where the text lies in memory. A key that does not lie in it was made
    /// by `serde_json` itself and marks a number.
    input: Range<usize>,
    duplicates: Duplicates,
    place: Place,
}

/// Levels of a message that [`shallow`] leaves.
const SHALLOW: usize = 100;

/// How far inside a message a value lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the message.
    Message,
    /// It is the message's result.
    Result,
    /// Anywhere else.
    Within,
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.below(""))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key_seed(KeySeed {
            input: self.input.clone(),
        })? {
            let Some(key) = key else {
                let digits: String = members.next_value()?;
                return digits
                    .parse::<Number>()
                    .map(Value::Number)
                    .map_err(de::Error::custom);
            };
            if self.duplicates == Duplicates::Refuse && map.contains_key(key.as_ref()) {
                return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let value = if self.place == Place::Result && key == STRUCTURED {
                members.next_value_seed(Packed(self.input.clone()))?
            } else {
                members.next_value_seed(self.below(&key))?
            };
            map.insert(key.into_owned(), value);
        }
        Ok(Value::Object(map))
    }
}

impl Seed {
    /// For the value of a member, or for an item.
    fn below(&self, key: &str) -> Self {
        let place = if self.place == Place::Message && key == RESULT {
            Place::Result
        } else {
            Place::Within
        };
        Self {
            place,
            ..self.clone()
        }
    }
}

/// Reads a value as the text that is kept of it.
struct Packed(Range<usize>);

impl<'de> DeserializeSeed<'de> for Packed {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let mut pen = Pen::within(self.0);
        Copy(&mut pen).deserialize(deserializer)?;
        Ok(match pen.out.as_str() {
            "null" => Value::Null,
            _ => Value::String(pen.out),
        })
    }
}

/// Reads a key; tells those of the text from the one by which `serde_json` marks a number.
pub(super) struct KeySeed {
    pub(super) input: Range<usize>,
}

impl<'de> DeserializeSeed<'de> for KeySeed {
    /// `None` marks a number.
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: de::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        let written = self.input.contains(&(key.as_ptr() as usize));
        Ok((written || key != NUMBER_TOKEN).then_some(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_keep_every_digit() {
        let text = r#"{"z":[12345678901234567890123,1.0,1E2,-0.0,1e400,0.10],"a":-1}"#;
        let value = read(text, Duplicates::LastWins).unwrap();
        let written = serde_json::to_string(&value).unwrap();
        assert_eq!(
            written.to_lowercase().replace("1e+", "1e"),
            text.to_lowercase()
        );
    }

    #[test]
    fn duplicates_are_refused_at_any_depth_or_the_last_one_stays() {
        let text = r#"{"a":[{"b":1,"\u0062":2}]}"#;
        let error = read(text, Duplicates::Refuse).unwrap_err().to_string();
        assert!(error.contains("duplicate key \"b\""), "{error}");
        let value = read(text, Duplicates::LastWins).unwrap();
        assert_eq!(value, serde_json::json!({"a": [{"b": 2}]}));
    }

    #[test]
    fn private_keys_of_the_reader_are_ordinary_keys() {
        for text in [
            r#"{"$serde_json::private::Number":"12"}"#,
            r#"{"$serde_json::private::RawValue":"{"}"#,
            r#"{"\u0024serde_json::private::Number":"12","b":1}"#,
        ] {
            let value = read(text, Duplicates::Refuse).unwrap();
            assert!(value.is_object(), "{text}");
            let written = serde_json::to_string(&value).unwrap();
            assert_eq!(written, text.replace("\\u0024", "$"));
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in ["", "{", "NaN", "{\"a\":NaN}", "1 2", "[1,]"] {
            assert!(read(text, Duplicates::LastWins).is_err(), "{text}");
        }
        assert!(read(&"[".repeat(5000), Duplicates::LastWins).is_err());
    }

    #[test]
    fn the_structured_content_of_a_result_alone_stays_text() {
        for (message, kept) in [
            (
                r#"{"result":{"structuredContent":{ "n": 1.0 },"content":[ 1 ]}}"#,
                serde_json::json!({"result": {"structuredContent": "{\"n\":1.0}", "content": [1]}}),
            ),
            (
                r#"{"result":{"structuredContent":{"a":1,"a":[2, 3]}}}"#,
                serde_json::json!({"result": {"structuredContent": "{\"a\":[2,3]}"}}),
            ),
            (
                r#"{"result":{"structuredContent":null}}"#,
                serde_json::json!({"result": {"structuredContent": null}}),
            ),
            (
                r#"{"result":{"structuredContent":"x"}}"#,
                serde_json::json!({"result": {"structuredContent": "\"x\""}}),
            ),
            (
                r#"{"structuredContent":{},"result":[{"structuredContent":{}}],"params":{"structuredContent":1}}"#,
                serde_json::json!({
                    "structuredContent": {},
                    "result": [{"structuredContent": {}}],
                    "params": {"structuredContent": 1},
                }),
            ),
            (
                r#"{"result":1.50}"#,
                serde_json::json!({"result": read("1.50", Duplicates::LastWins).unwrap()}),
            ),
        ] {
            assert_eq!(read_message(message).unwrap(), kept, "{message}");
        }
        let broken = r#"{"result":{"structuredContent":{"x":NaN}}}"#;
        let cause = read_message(broken).unwrap_err().to_string();
        assert!(cause.contains("column 37"), "{cause}");
    }

    #[test]
    fn what_lies_too_deep_is_left_out_and_nothing_else() {
        let deep = format!("{}{}{}", "[".repeat(300), r#""]}\\\"[""#, "]".repeat(300));
        let text = format!(r#"{{"a":[1,"\"}}"],"deep":{deep},"b":{{"c":{deep}}},"d":2}}"#);
        assert!(read(&text, Duplicates::LastWins).is_err());
        let value = read(&shallow(&text), Duplicates::LastWins).unwrap();
        assert_eq!((&value["a"][1], &value["d"]), (&"\"}".into(), &2.into()));
        let depth = |mut value: &Value| {
            let mut depth = 0;
            while let Some(inner) = value.get(0) {
                (value, depth) = (inner, depth + 1);
            }
            assert_eq!(value, &Value::Null);
            depth
        };
        assert_eq!(depth(&value["deep"]), SHALLOW - 1);
        assert_eq!(depth(&value["b"]["c"]), SHALLOW - 2);
        let plain = r#"{"a": [1, "[[[", {"b": "\\"}]}"#;
        assert_eq!(shallow(plain), plain);
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_in_what_servers_send_and_refused_elsewhere() {
        let text = r#"{"\udfff":["\ud83d","\ud83d\ude00"]}"#;
        assert!(read(text, Duplicates::Refuse).is_err());
        let value = read(text, Duplicates::LastWins).unwrap();
        assert_eq!(value, serde_json::json!({"\u{fffd}": ["\u{fffd}", "😀"]}));
    }

    #[test]
    fn the_same_data_is_recognised_whatever_its_numbers_look_like() {
        let pair = |a: &str, b: &str| {
            same(
                &read(a, Duplicates::LastWins).unwrap(),
                &read(b, Duplicates::LastWins).unwrap(),
            )
        };
        assert!(pair(r#"{"a":1E2,"b":[0.0]}"#, r#"{"b":[-0.0],"a":100.0}"#));
        assert!(!pair("9007199254740993", "9007199254740992"));
        assert!(!pair("[1,2]", "[1]"));
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_reader_on_any_text(text in "[\\[\\]{}:,\"a0-9.eE \\\\-]{0,24}") {
            let ours = read(&text, Duplicates::LastWins).ok();
            let plain = serde_json::from_str::<Value>(&text).ok();
            prop_assert_eq!(ours, plain);
        }
    }
}
