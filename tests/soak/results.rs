//! The result reader: from the bytes of a server's line to the value a program gets.

use fastrand::Rng;
use ptc_protocol::run::ToolErrorKind;
use ptc_tests::documents::{self, Form};
use ptc_tests::reference::{self, Document, Json};
use ptcd::registry::ToolReply;
use ptcd::registry::door::Tool;
use serde_json::{Value, json};

use crate::mutate::{kind_of, mutate};
use crate::runner::Target;

/// Texts deeper than this may be refused: the message around them has brackets, too.
const SURE_DEPTH: usize = 100;
/// Longest error a program may get, in bytes.
const MAX_ERROR: usize = 32 * 1024;
/// Between the texts of an input of the kind [`TEXTS`].
const BORDER: char = '\u{1e}';

// What stands around the payload of an input; the first byte says which.
const LINE: u8 = 0;
const STRUCTURED: u8 = 1;
const TEXT: u8 = 2;
const TEXTS: u8 = 3;
const WRAPPED: u8 = 4;
const BOTH: u8 = 5;
const SHAPES: u8 = 6;

/// Whole lines that servers send.
const LINES: [&str; 12] = [
    r#"{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}}"#,
    r#"{"jsonrpc":"2.0","id":"5","result":{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"text","text":"x"}],"isError":false}}"#,
    r#"{"id":5.0,"result":{"content":[{"type":"resource","resource":{"uri":"a://b","text":"t"}},{"type":"resource_link","uri":"u","name":"n"}]}}"#,
    r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"no","data":{"x":[1]}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"result":{"isError":true,"content":[{"type":"text","text":"failed"}],"structuredContent":{"code":7}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"result":{"content":[],"structuredContent":{"result":[1,2]},"_meta":{"fastmcp":{"wrap_result":true}}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","content":[{"type":"text","text":"7"},{"type":"text","text":"8"}],"structuredContent":[7,8]}}"#,
    r#"{"jsonrpc":"2.0","id":5,"result":{"toolResult":{"old":true}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"a"}],"structuredContent":{"_notes":["own"],"b":1}}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#,
    r#"[{"jsonrpc":"2.0","id":5,"result":{}}]"#,
];

/// An input is three bytes that choose what is around, the schema and the limit, then the payload.
pub(crate) struct Results {
    tools: Vec<Tool>,
}

impl Results {
    pub(crate) fn new() -> Self {
        let schemas = [
            None,
            Some(json!({"type": "object"})),
            Some(json!({"type": ["object", "null"], "additionalProperties": {"type": "integer"}})),
            Some(json!({"x-fastmcp-wrap-result": true, "type": "object",
                "properties": {"result": {"type": "array"}}, "required": ["result"]})),
            Some(
                json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": {"$ref": "#"}}}}}),
            ),
            Some(json!({"pattern": "(", "minLength": 3})),
        ];
        let tools = schemas.into_iter().map(|schema| Tool::new(None, schema));
        Self {
            tools: tools.map(Option::unwrap).collect(),
        }
    }

    fn tool(&self, choice: u8) -> (&Tool, bool) {
        // Most inputs have no schema: what they must become is known then.
        let at = usize::from(choice) % (self.tools.len() * 3);
        match self.tools.get(at) {
            Some(tool) if at > 0 => (tool, true),
            _ => (&self.tools[0], false),
        }
    }
}

impl Target for Results {
    fn name(&self) -> &'static str {
        "results"
    }

    fn make(&self, rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
        if rng.u8(..4) == 0 && !kept.is_empty() {
            let mut input = kept[rng.usize(..kept.len())].clone();
            mutate(rng, &mut input, kept);
            return input;
        }
        let shape = rng.u8(..SHAPES);
        let form = Form {
            depth: 100,
            duplicates: rng.bool(),
        };
        let payload = match shape {
            LINE => LINES[rng.usize(..LINES.len())].to_owned(),
            TEXT if rng.bool() => prose(rng),
            TEXTS => {
                let texts: Vec<String> = (0..rng.usize(..4))
                    .map(|_| match rng.u8(..3) {
                        0 => prose(rng),
                        _ => documents::document(rng, form),
                    })
                    .collect();
                texts.join(&BORDER.to_string())
            }
            _ => documents::document(rng, form),
        };
        let mut payload = payload.into_bytes();
        if shape == LINE || rng.u8(..3) == 0 {
            mutate(rng, &mut payload, kept);
        }
        [vec![shape, rng.u8(..), rng.u8(..)], payload].concat()
    }

    fn check(&self, input: &[u8]) -> Result<String, String> {
        let &[shape, schema, limit, ref payload @ ..] = input else {
            return Ok("too short".to_owned());
        };
        let shape = shape % SHAPES;
        let limit = match limit {
            0..=9 => usize::from(limit) * 50,
            _ => 16 * 1024 * 1024,
        };
        let (tool, checked) = self.tool(schema);
        let line = line(shape, payload);
        let got = tool.answer(&line, limit);
        match &got {
            Some(Ok(reply)) => well_formed(&line, reply, limit)?,
            Some(Err(error)) if error.message.len() > MAX_ERROR => {
                return Err(format!("an error of {} bytes", error.message.len()));
            }
            _ => {}
        }
        if !checked && let Some(expected) = expected(shape, payload) {
            as_expected(got.as_ref(), &expected, limit)?;
        }
        Ok(match got {
            None => format!("{shape} is no answer"),
            Some(Ok(reply)) => {
                let first = reply.encoded.chars().next();
                format!("{shape} {checked} {first:?} {}", reply.bytes.ilog2())
            }
            Some(Err(error)) => {
                format!("{shape} {:?} {}", error.kind, kind_of(&error.message))
            }
        })
    }
}

/// Text that is no JSON, most of the time.
fn prose(rng: &mut Rng) -> String {
    let words = [
        "plain", "42 of 7", "null?", " 7", "007", "1.10", "{", "[x]", "1e3", "é", "", "-", "true ",
    ];
    words[rng.usize(..words.len())].to_owned()
}

fn line(shape: u8, payload: &[u8]) -> Vec<u8> {
    let around =
        |before: &str, after: &str| [before.as_bytes(), payload, after.as_bytes()].concat();
    let blocks = |texts: &[String]| -> Vec<u8> {
        let blocks: Vec<Value> = texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
        json!({"jsonrpc": "2.0", "id": 5, "result": {"content": blocks}})
            .to_string()
            .into_bytes()
    };
    match shape {
        STRUCTURED => around(
            r#"{"jsonrpc":"2.0","id":5,"result":{"content":[],"structuredContent":"#,
            "}}",
        ),
        WRAPPED => around(
            r#"{"id":5,"result":{"content":[],"structuredContent":{"result":"#,
            "}}}",
        ),
        BOTH => {
            let text = Value::from(String::from_utf8_lossy(payload).into_owned());
            around(
                r#"{"id":5,"result":{"structuredContent":"#,
                &format!(r#","content":[{{"type":"text","text":{text}}}]}}}}"#),
            )
        }
        TEXT => blocks(&[String::from_utf8_lossy(payload).into_owned()]),
        TEXTS => blocks(&texts(payload)),
        _ => payload.to_vec(),
    }
}

fn texts(payload: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(payload);
    text.split(BORDER).map(str::to_owned).collect()
}

/// What holds for every value, whatever it came from.
fn well_formed(line: &[u8], reply: &ToolReply, limit: usize) -> Result<(), String> {
    let text = &*reply.encoded;
    let Some(read) = reference::read(text) else {
        return Err(format!("the value is no JSON: {text}"));
    };
    if read.duplicates || reply.bytes != text.len() || reply.bytes > limit {
        return Err(format!(
            "{} bytes of {limit} for the value {text}",
            reply.bytes
        ));
    }
    if text.bytes().any(|byte| byte < b' ') {
        return Err(format!("the value has control characters: {text:?}"));
    }
    let again = reply.value().to_string();
    if again != text {
        return Err(format!("the value {text} reads as {again}"));
    }
    let line = line
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .trim_ascii();
    let whole = std::str::from_utf8(line).ok().and_then(reference::read);
    let result = whole.as_ref().and_then(|whole| whole.value.get("result"));
    let Some(Json::Object(_)) = result else {
        return Err(format!("a value came of a line that has no result: {text}"));
    };
    if result.and_then(|result| result.get("isError")) == Some(&Json::Bool(true)) {
        return Err(format!("an error became the value {text}"));
    }
    Ok(())
}

/// What a value without a schema must be; `None` where that is not sure.
fn expected(shape: u8, payload: &[u8]) -> Option<Json> {
    let sure = |document: Document| (document.depth <= SURE_DEPTH).then_some(document.value);
    match shape {
        TEXT => text_value(&String::from_utf8_lossy(payload)).map(|(value, _)| value),
        TEXTS => texts_value(&texts(payload)),
        STRUCTURED | WRAPPED | BOTH => {
            let value = sure(reference::read(std::str::from_utf8(payload).ok()?)?)?;
            Some(match value {
                Json::Object(mut members)
                    if shape == STRUCTURED && members.len() == 1 && members[0].0 == "result" =>
                {
                    members.remove(0).1
                }
                other => other,
            })
        }
        _ => None,
    }
}

/// The value of one text, and whether it counts as JSON.
fn text_value(text: &str) -> Option<(Json, bool)> {
    let as_text = Json::Text(text.to_owned());
    Some(match reference::read(text) {
        Some(document) if document.depth > SURE_DEPTH => return None,
        Some(document) => match document.value {
            Json::Text(_) => (as_text, false),
            Json::Number(number) if written_back(&number).as_deref() != Some(text) => {
                (as_text, false)
            }
            other => (other, true),
        },
        None => (as_text, false),
    })
}

/// A number as Python writes it, where that needs no exponent.
fn written_back(number: &str) -> Option<String> {
    if !number.contains(['.', 'e']) {
        return (number != "-0" && number.len() <= 4300).then(|| number.to_owned());
    }
    let float: f64 = number.parse().ok()?;
    let written = format!("{float:?}");
    (!written.contains('e')).then_some(written)
}

fn texts_value(texts: &[String]) -> Option<Json> {
    let read: Option<Vec<(Json, bool)>> = texts.iter().map(|text| text_value(text)).collect();
    let read = read?;
    let count = read.iter().filter(|(_, is_json)| *is_json).count();
    if texts.len() == 1 {
        return read.into_iter().next().map(|(value, _)| value);
    }
    if count == texts.len() {
        return Some(Json::List(
            read.into_iter().map(|(value, _)| value).collect(),
        ));
    }
    if count != 1 {
        return Some(Json::Text(texts.join("\n")));
    }
    let (values, prose): (Vec<_>, Vec<_>) = read.into_iter().partition(|(_, is_json)| *is_json);
    let notes = Json::List(prose.into_iter().map(|(text, _)| text).collect());
    let notes = ("_notes".to_owned(), notes);
    Some(match values.into_iter().next()?.0 {
        Json::Object(members) if members.iter().any(|(key, _)| key == "_notes") => return None,
        Json::Object(members) => Json::Object(members.into_iter().chain([notes]).collect()),
        other => Json::Object(vec![("data".to_owned(), other), notes]),
    })
}

fn as_expected(
    got: Option<&Result<ToolReply, ptcd::registry::ToolError>>,
    expected: &Json,
    limit: usize,
) -> Result<(), String> {
    match got {
        Some(Ok(reply)) => {
            let value = reference::read(&reply.encoded).map(|read| read.value);
            (value.as_ref() == Some(expected))
                .then_some(())
                .ok_or_else(|| format!("{expected:?} became {}", reply.encoded))
        }
        Some(Err(error)) if error.kind == ToolErrorKind::ResultTooLarge && limit < 1000 => Ok(()),
        other => Err(format!("{expected:?} was refused: {other:?}")),
    }
}
