//! Turns the raw result of a tool call into the value a program gets.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::compact::compact;
use super::json::{self, MAX_INTEGER_DIGITS, STRUCTURED};
use super::rendering::{Encoded, Rendering};
use super::words::Words;

/// Longest text of a failed tool that goes into an error, in characters.
const MAX_FAILURE_CHARS: usize = 6000;
/// Longest type or URI that a placeholder shows, in characters.
const MAX_PLACEHOLDER_CHARS: usize = 2000;

/// A result that is not a value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ResultError {
    /// The tool says that it failed.
    #[error("{}", if text.is_empty() { "no text came with the error" } else { text })]
    Failed {
        /// Its text, cut in the middle where it is very long; may be empty.
        text: String,
        /// Its structured content, as JSON text.
        data: Option<String>,
    },
    /// What came is not a tool result.
    #[error("{what}")]
    Shape {
        /// What is wrong with it.
        what: String,
    },
}

/// What is known beforehand about a tool's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// The output schema says that a return value which is no object is wrapped in `result`.
    pub wrapped: bool,
    /// The output schema takes null, so that null counts as structured content.
    pub nullable: bool,
}

/// A result taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// As JSON text without white space.
    structured: Option<String>,
    wrapped: bool,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Text(String),
    /// Stands for content that cannot enter a program.
    Placeholder(String),
}

impl Reading {
    /// Takes a raw `tools/call` result apart, whose structured content is JSON text in a string.
    ///
    /// # Errors
    /// [`ResultError::Failed`] when the tool says so, [`ResultError::Shape`] when it is no result.
    pub(crate) fn take(
        raw: Value,
        expected: Expectation,
        words: &Words,
    ) -> Result<Self, ResultError> {
        let Value::Object(mut raw) = raw else {
            return Err(shape(format!(
                "the result is {}, not an object",
                kind_of(&raw)
            )));
        };
        check_complete(&raw, words)?;
        let blocks = blocks(raw.remove("content"), words)?;
        let structured = match raw.remove(STRUCTURED) {
            Some(Value::Null) if !expected.nullable => None,
            Some(Value::String(text)) => Some(text),
            other => other
                .or_else(|| raw.remove("toolResult"))
                .map(|value| value.to_string()),
        };
        let failed = match raw.get("isError") {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Bool(true)) => true,
            Some(other) => {
                return Err(shape(format!(
                    "the result's isError is {}, not a boolean",
                    kind_of(other)
                )));
            }
        };
        if failed {
            return Err(ResultError::Failed {
                text: failure_text(&blocks, words),
                data: structured,
            });
        }
        let marked = raw
            .get("_meta")
            .and_then(|meta| meta.get("fastmcp"))
            .and_then(|fastmcp| fastmcp.get("wrap_result"))
            == Some(&Value::Bool(true));
        Ok(Self {
            structured,
            wrapped: marked || expected.wrapped,
            blocks,
        })
    }

    /// The structured content as JSON text, as the output schema describes it.
    pub(crate) fn structured(&self) -> Option<&str> {
        self.structured.as_deref()
    }

    /// All text that came, a block a line, cut in the middle where it is very long.
    pub(crate) fn text(&self, words: &Words) -> String {
        failure_text(&self.blocks, words)
    }

    /// The value for the program as JSON text, notes included.
    pub(crate) fn into_encoded(self) -> String {
        let (texts, placeholders) = split(self.blocks);
        let (value, mut notes) = match self.structured {
            Some(structured) => from_structured(structured, self.wrapped, &texts),
            None => from_texts(texts),
        };
        notes.extend(placeholders);
        with_notes(value, notes)
    }
}

fn check_complete(raw: &Map<String, Value>, words: &Words) -> Result<(), ResultError> {
    match raw.get("resultType") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(kind)) if kind == "complete" => Ok(()),
        Some(Value::String(kind)) => Err(shape(format!(
            "the result is of the kind {:?}, which this version does not follow",
            words.clip(kind, MAX_PLACEHOLDER_CHARS)
        ))),
        Some(other) => Err(shape(format!(
            "the result's resultType is {}, not a string",
            kind_of(other)
        ))),
    }
}

fn blocks(content: Option<Value>, words: &Words) -> Result<Vec<Block>, ResultError> {
    match content {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list
            .into_iter()
            .map(|content| block(content, words))
            .collect()),
        Some(other) => Err(shape(format!(
            "the result's content is {}, not a list",
            kind_of(&other)
        ))),
    }
}

fn block(content: Value, words: &Words) -> Block {
    let placeholder = |kind, uri, mime| placeholder(kind, uri, mime, words);
    let Value::Object(mut content) = content else {
        return placeholder("unknown", None, None);
    };
    let kind = match content.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        _ => "unknown".to_owned(),
    };
    match kind.as_str() {
        "text" => match content.remove("text") {
            Some(Value::String(text)) => Block::Text(text),
            _ => placeholder("text", None, None),
        },
        "resource" => {
            let Some(Value::Object(mut resource)) = content.remove("resource") else {
                return placeholder("resource", None, None);
            };
            match resource.remove("text") {
                Some(Value::String(text)) => Block::Text(text),
                _ => placeholder(
                    "resource",
                    string(&resource, "uri"),
                    string(&resource, "mimeType"),
                ),
            }
        }
        "resource_link" => placeholder(
            "resource_link",
            string(&content, "uri"),
            string(&content, "mimeType"),
        ),
        other => placeholder(other, None, string(&content, "mimeType")),
    }
}

fn string<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

fn placeholder(kind: &str, uri: Option<&str>, mime: Option<&str>, words: &Words) -> Block {
    let clip = |text: &str| words.clip(text, MAX_PLACEHOLDER_CHARS);
    let mut text = format!("[non-text content omitted: {}", clip(kind));
    if let Some(uri) = uri {
        text.push(' ');
        text.push_str(&clip(uri));
    }
    if let Some(mime) = mime {
        text.push_str(" (");
        text.push_str(&clip(mime));
        text.push(')');
    }
    text.push(']');
    Block::Placeholder(text)
}

fn split(blocks: Vec<Block>) -> (Vec<String>, Vec<String>) {
    let mut texts = Vec::new();
    let mut placeholders = Vec::new();
    for block in blocks {
        match block {
            Block::Text(text) => texts.push(text),
            Block::Placeholder(text) => placeholders.push(text),
        }
    }
    (texts, placeholders)
}

/// The value where structured content came, and the text that is not merely its rendering.
fn from_structured(structured: String, marked: bool, texts: &[String]) -> (String, Vec<String>) {
    let read: Vec<Rendering<'_>> = texts.iter().map(|text| Rendering::new(text)).collect();
    let mut value = Encoded::new(structured);
    let mut spent: Vec<bool> = read.iter().map(|text| text.renders(&value)).collect();
    if let Some(inner) = sole_result(&value.text)
        && (marked || !spent.contains(&true))
    {
        value = Encoded::new(inner.to_owned());
        for (text, spent) in read.iter().zip(&mut spent) {
            *spent = *spent || text.renders(&value);
        }
    }
    if value.text.starts_with('[') && spent.contains(&false) {
        spend_items(&value.text, &mut spent, &read);
    }
    let notes = texts
        .iter()
        .zip(&spent)
        .filter(|(text, spent)| !**spent && !text.trim().is_empty())
        .map(|(text, _)| text.clone())
        .collect();
    (value.text, notes)
}

/// The value of the member `result` where an object has no other.
fn sole_result(object: &str) -> Option<&str> {
    let inner = object.strip_prefix("{\"result\":")?.strip_suffix('}')?;
    // Where another member follows, this is more than one value.
    serde_json::from_str::<IgnoredAny>(inner)
        .is_ok()
        .then_some(inner)
}

/// Marks the blocks that render the items of a list in order, if every item has one.
fn spend_items(list: &str, spent: &mut [bool], texts: &[Rendering<'_>]) {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(list) else {
        return;
    };
    let mut taken = Vec::with_capacity(items.len());
    let mut next = 0;
    for item in items {
        let item = Encoded::new(item.get().to_owned());
        let found = texts
            .iter()
            .enumerate()
            .skip(next)
            .find(|(_, text)| text.renders(&item));
        let Some((found, _)) = found else {
            return;
        };
        taken.push(found);
        next = found + 1;
    }
    for index in taken {
        if let Some(spent) = spent.get_mut(index) {
            *spent = true;
        }
    }
}

/// The value where only text came, and the prose beside it.
fn from_texts(mut texts: Vec<String>) -> (String, Vec<String>) {
    let mut read: Vec<Option<String>> = texts.iter().map(|text| json_text(text)).collect();
    let found = read.iter().flatten().count();
    match (texts.len(), found) {
        (0, _) => ("null".to_owned(), Vec::new()),
        (1, 1) => (read.pop().flatten().unwrap_or_default(), Vec::new()),
        (count, found) if count == found => {
            let items: Vec<String> = read.into_iter().flatten().collect();
            (format!("[{}]", items.join(",")), Vec::new())
        }
        (count, 1) if count > 1 => {
            let prose = texts
                .into_iter()
                .zip(&read)
                .filter(|(_, value)| value.is_none())
                .map(|(text, _)| text)
                .collect();
            (read.into_iter().flatten().next().unwrap_or_default(), prose)
        }
        // It may be tens of megabytes, so that a copy counts.
        (1, _) => (quoted(&texts.pop().unwrap_or_default()), Vec::new()),
        _ => (quoted(&texts.join("\n")), Vec::new()),
    }
}

/// Puts notes beside a value; a server's own `_notes` is never overwritten.
fn with_notes(value: String, notes: Vec<String>) -> String {
    if notes.is_empty() {
        return value;
    }
    let notes: Vec<Value> = notes.into_iter().map(Value::String).collect();
    let mut object = match Encoded::new(value).into_value() {
        Value::Object(object) => object,
        other => {
            let mut object = Map::new();
            object.insert("data".to_owned(), other);
            object
        }
    };
    match object.get_mut("_notes") {
        None => {
            object.insert("_notes".to_owned(), Value::Array(notes));
        }
        Some(Value::Array(own)) if own.iter().all(Value::is_string) => own.extend(notes),
        Some(_) => {
            let mut key = "_ptc_notes".to_owned();
            while object.contains_key(&key) {
                key.push('_');
            }
            object.insert(key, Value::Array(notes));
        }
    }
    Value::Object(object).to_string()
}

/// The JSON of a text that counts as JSON where nothing else came: an object,
/// a list, true, false, null, or a number that written back gives the same text.
fn json_text(text: &str) -> Option<String> {
    match text.trim_start().as_bytes().first()? {
        b'{' | b'[' | b't' | b'f' | b'n' => compact(text).ok(),
        b'-' | b'0'..=b'9' if is_canonical_number(text) => compact(text).ok(),
        _ => None,
    }
}

fn quoted(text: &str) -> String {
    // Text can always be written as JSON.
    serde_json::to_string(text).unwrap_or_default()
}

fn is_canonical_number(text: &str) -> bool {
    if json::is_integer_text(text) {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let canonical = match digits.as_bytes() {
            [b'0'] => text == "0",
            [first, rest @ ..] => {
                (b'1'..=b'9').contains(first) && rest.iter().all(u8::is_ascii_digit)
            }
            [] => false,
        };
        return canonical && digits.len() <= MAX_INTEGER_DIGITS;
    }
    // Debug writes a float as Python does wherever no exponent is needed.
    !text.contains(['e', 'E'])
        && text
            .parse::<f64>()
            .is_ok_and(|number| format!("{number:?}") == text)
}

fn failure_text(blocks: &[Block], words: &Words) -> String {
    let lines: Vec<&str> = blocks
        .iter()
        .map(|block| match block {
            Block::Text(text) | Block::Placeholder(text) => text.trim(),
        })
        .filter(|text| !text.is_empty())
        .collect();
    words.middle_cut(&lines.join("\n"), MAX_FAILURE_CHARS)
}

/// What a JSON value is, in words for an error.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if json::is_integer_text(number.as_str()) => "an integer",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shape(what: String) -> ResultError {
    ResultError::Shape { what }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::json::{Duplicates, same};
    use super::*;

    fn raw(text: &str) -> Value {
        json::read(text, Duplicates::LastWins).unwrap()
    }

    /// Takes a result as it is written on the wire.
    fn take(result: &Value, expected: Expectation) -> Result<Reading, ResultError> {
        let message = json::read_message(&json!({"result": result}).to_string()).unwrap();
        Reading::take(message["result"].clone(), expected, &Words::default())
    }

    /// The value of a result, as JSON text.
    fn value(result: &str) -> String {
        value_of(&raw(result))
    }

    fn value_of(result: &Value) -> String {
        let reading = take(result, Expectation::default()).unwrap();
        reading.into_encoded()
    }

    fn texts(texts: &[&str]) -> Vec<Value> {
        texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect()
    }

    fn from_texts(list: &[&str]) -> String {
        value_of(&json!({"content": texts(list)}))
    }

    fn structured(structured: &str, list: &[&str]) -> String {
        value_of(&json!({"content": texts(list), "structuredContent": raw(structured)}))
    }

    #[test]
    fn numbers_come_as_they_were_written() {
        assert_eq!(
            structured(
                r#"{"id":1915883588174806058,"n":-9007199254740993,"b":99999999999999999999999}"#,
                &[]
            ),
            r#"{"id":1915883588174806058,"n":-9007199254740993,"b":99999999999999999999999}"#
        );
        assert_eq!(
            structured(
                r#"{"a":1.0,"b":0.1,"d":-0.0,"e":100000000000000000000000.0}"#,
                &[]
            ),
            r#"{"a":1.0,"b":0.1,"d":-0.0,"e":100000000000000000000000.0}"#
        );
        assert_eq!(
            structured(r#"{"a":1,"a":2}"#, &[r#"{"a":1,"a":2}"#]),
            r#"{"a":2}"#
        );
    }

    #[test]
    fn a_text_is_json_only_where_nothing_can_be_lost_by_it() {
        for json in [
            "{\"a\": 1}",
            " [1]\n",
            "true",
            "false",
            "null",
            "42",
            "-7",
            "0",
            "1.5",
            "1.0",
            "123456789012345678901234567890",
        ] {
            let expected = serde_json::to_string(&raw(json)).unwrap();
            assert_eq!(from_texts(&[json]), expected, "{json}");
        }
        for text in [
            "007",
            "1.10",
            "1e3",
            "-0",
            "+1",
            "1_000",
            "0x10",
            "NaN",
            "nul",
            "Infinity",
            " 42",
            "",
            "\"quoted\"",
            "{\"a\": NaN}",
            "{broken",
            ".5",
            "1.",
            "1e400",
        ] {
            assert_eq!(from_texts(&[text]), json!(text).to_string(), "{text}");
        }
        let long = "1".repeat(5000);
        assert_eq!(from_texts(&[&long]), json!(long).to_string());
    }

    #[test]
    fn several_blocks_give_a_list_or_json_with_notes_or_text() {
        assert_eq!(
            from_texts(&[r#"{"id": 1}"#, r#"{"id": 2}"#, "3"]),
            r#"[{"id":1},{"id":2},3]"#
        );
        assert_eq!(
            from_texts(&["warning: old", r#"{"id": 1}"#]),
            r#"{"id":1,"_notes":["warning: old"]}"#
        );
        assert_eq!(
            from_texts(&["[1]", "why", "so"]),
            r#"{"data":[1],"_notes":["why","so"]}"#
        );
        assert_eq!(from_texts(&["a", "b"]), r#""a\nb""#);
        assert_eq!(from_texts(&["1", "b", "2"]), r#""1\nb\n2""#);
        assert_eq!(value("{}"), "null");
        assert_eq!(value(r#"{"content":null}"#), "null");
    }

    #[test]
    fn structured_content_is_the_value_and_its_renderings_are_no_notes() {
        assert_eq!(value(r#"{"structuredContent":{"s":"x"}}"#), r#"{"s":"x"}"#);
        assert_eq!(
            structured(
                r#"{"n":1,"s":"ü"}"#,
                &["{\n \"s\": \"\\u00fc\", \"n\": 1.0}"]
            ),
            r#"{"n":1,"s":"ü"}"#
        );
        assert_eq!(structured(r#"[{"id":"1"}]"#, &[]), r#"[{"id":"1"}]"#);
        assert_eq!(
            structured(r#"{"a":1,"b":2}"#, &[r#"{"a": 1}"#, r#"{"b": 3}"#]),
            r#"{"a":1,"b":2,"_notes":["{\"b\": 3}"]}"#
        );
        assert_eq!(
            structured(r#"{"a":1}"#, &["EMPTY RESULT", ""]),
            r#"{"a":1,"_notes":["EMPTY RESULT"]}"#
        );
        assert_eq!(
            structured("{}", &["{\"a\": 1}"]),
            r#"{"_notes":["{\"a\": 1}"]}"#
        );
    }

    #[test]
    fn a_wrapped_value_is_unwrapped_and_kept_as_it_is() {
        assert_eq!(structured(r#"{"result":"42"}"#, &["42"]), r#""42""#);
        assert_eq!(structured(r#"{"result":[1,2]}"#, &["1", "2"]), "[1,2]");
        assert_eq!(
            structured(r#"{"result":["a","b"]}"#, &["a", "b"]),
            r#"["a","b"]"#
        );
        assert_eq!(
            structured(r#"{"result":[1,2]}"#, &["1", "3"]),
            r#"{"data":[1,2],"_notes":["1","3"]}"#
        );
        assert_eq!(structured(r#"{"result":null}"#, &[]), "null");
        assert_eq!(
            structured(r#"{"result":{"rows":3}}"#, &[r#"{"result": {"rows": 3}}"#]),
            r#"{"result":{"rows":3}}"#
        );
        assert_eq!(
            structured(r#"{"result":1,"more":2}"#, &[]),
            r#"{"result":1,"more":2}"#
        );
        let marked = json!({
            "content": texts(&[r#"{"result": 5}"#]),
            "structuredContent": {"result": 5},
            "_meta": {"fastmcp": {"wrap_result": true}},
        });
        assert_eq!(value_of(&marked), "5");
        let wrapped = Expectation {
            wrapped: true,
            ..Expectation::default()
        };
        let mut by_schema = marked;
        by_schema.as_object_mut().unwrap().remove("_meta");
        let reading = take(&by_schema, wrapped).unwrap();
        assert_eq!(reading.structured(), Some(r#"{"result":5}"#));
        assert_eq!(reading.into_encoded(), "5");
    }

    #[test]
    fn null_is_structured_content_only_where_the_schema_takes_it() {
        let result = json!({"structuredContent": null, "content": texts(&["null"])});
        assert_eq!(value_of(&result), "null");
        let nullable = Expectation {
            nullable: true,
            ..Expectation::default()
        };
        let reading = take(&result, nullable).unwrap();
        assert_eq!(reading.structured(), Some("null"));
        assert_eq!(reading.into_encoded(), "null");
    }

    #[test]
    fn notes_of_the_server_are_never_overwritten() {
        assert_eq!(
            structured(r#"{"_notes":["own"],"a":1}"#, &["ours"]),
            r#"{"_notes":["own","ours"],"a":1}"#
        );
        assert_eq!(
            structured(r#"{"_notes":7}"#, &["ours"]),
            r#"{"_notes":7,"_ptc_notes":["ours"]}"#
        );
        assert_eq!(
            structured(r#"{"_notes":["a",1],"_ptc_notes":2}"#, &["ours"]),
            r#"{"_notes":["a",1],"_ptc_notes":2,"_ptc_notes_":["ours"]}"#
        );
    }

    #[test]
    fn other_content_becomes_placeholders_and_text_resources_are_text() {
        let result = json!({"content": [
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "audio"},
            {"type": "resource_link", "uri": "file:///a", "mimeType": "text/x"},
            {"type": "resource", "resource": {"uri": "r://b", "blob": "AA", "mimeType": "a/b"}},
            {"type": "resource", "resource": {"uri": "r://c", "text": "# Title"}},
            {"type": "resource"},
        ]});
        assert_eq!(
            serde_json::from_str::<Value>(&value_of(&result)).unwrap(),
            json!({"data": "# Title", "_notes": [
                "[non-text content omitted: image (image/png)]",
                "[non-text content omitted: audio]",
                "[non-text content omitted: resource_link file:///a (text/x)]",
                "[non-text content omitted: resource r://b (a/b)]",
                "[non-text content omitted: resource]",
            ]})
        );
        assert_eq!(
            value_of(&json!({"content": [{"type": "image"}]})),
            r#"{"data":null,"_notes":["[non-text content omitted: image]"]}"#
        );
    }

    #[test]
    fn broken_and_unknown_blocks_cost_no_other() {
        let result = json!({"content": [
            {"type": "text"}, {"type": "text", "text": null}, {"type": "hologram", "x": 1},
            {"no": "type"}, "str", {"type": "text", "text": "still here"},
        ]});
        let value: Value = serde_json::from_str(&value_of(&result)).unwrap();
        assert_eq!(value["data"], json!("still here"));
        assert_eq!(value["_notes"].as_array().unwrap().len(), 5);
        assert_eq!(
            value["_notes"][2],
            json!("[non-text content omitted: hologram]")
        );
    }

    #[test]
    fn an_error_keeps_text_and_data_and_is_bounded() {
        let failed = |result: Value| match take(&result, Expectation::default()) {
            Err(ResultError::Failed { text, data }) => (text, data),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            failed(
                json!({"isError": true, "content": texts(&[" no ", "luck"]), "structuredContent": {"c": 1}})
            ),
            ("no\nluck".to_owned(), Some(r#"{"c":1}"#.to_owned()))
        );
        assert_eq!(
            failed(json!({"isError": true, "content": []})),
            (String::new(), None)
        );
        let (text, _) = failed(json!({"isError": true, "content": texts(&[&"x".repeat(100_000)])}));
        assert!(text.len() < 7000 && text.contains("94000 characters left out"));
    }

    #[test]
    fn what_is_no_result_says_what_it_is_instead() {
        for (result, part) in [
            (json!(null), "the result is null"),
            (json!("x"), "the result is a string"),
            (json!([]), "the result is a list"),
            (json!({"content": "x"}), "content is a string, not a list"),
            (json!({"resultType": "input_required"}), "input_required"),
            (json!({"resultType": 7}), "an integer, not a string"),
        ] {
            let error = take(&result, Expectation::default()).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            "[a-z0-9.{\\[\" ]{0,6}".prop_map(Value::String),
        ];
        let key = prop::sample::select(vec![
            "type",
            "text",
            "content",
            "structuredContent",
            "isError",
            "_notes",
            "result",
            "resource",
            "_meta",
            "resultType",
            "uri",
        ]);
        leaf.prop_recursive(4, 24, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((key.clone(), inner), 0..5).prop_map(|members| {
                    Value::Object(
                        members
                            .into_iter()
                            .map(|(k, v)| (k.to_owned(), v))
                            .collect(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_result_is_too_strange(result in any_value()) {
            if let Ok(reading) = take(&result, Expectation::default()) {
                let _ = reading.into_encoded();
            }
        }

        #[test]
        fn structured_content_beside_its_own_text_comes_unchanged(value in any_value()) {
            prop_assume!(!value.is_null());
            let text = serde_json::to_string_pretty(&value).unwrap();
            let result = json!({"content": texts(&[&text]), "structuredContent": value.clone()});
            let reading = take(&result, Expectation::default()).unwrap();
            prop_assert_eq!(reading.into_encoded(), value.to_string());
        }

        #[test]
        fn a_text_comes_as_itself_or_as_the_json_it_is(text in "\\PC{0,12}") {
            let result = json!({"content": texts(&[&text])});
            let encoded = take(&result, Expectation::default()).unwrap().into_encoded();
            match raw(&encoded) {
                Value::String(value) => prop_assert_eq!(value, text),
                value => prop_assert!(same(&value, &raw(&text))),
            }
        }
    }
}
