//! Reads one line of a client: a message for rmcp, or the answer to what is none.
//!
//! rmcp drops what it cannot read without an answer, and takes a known request
//! with odd parameters for an unknown one; so those are answered here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ptc_protocol::envelope::{self, BUSY, INVALID_REQUEST, Id, Message};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, GetMeta as _, JsonRpcMessage, ProgressToken, RequestId,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::era::{Era, INVALID_PARAMS, METHOD_NOT_FOUND, Refusal};
use super::halves::half_character;
use super::keys;
use super::layer::Offer;
use super::requests::{MAX_IN_FLIGHT, NoPlace, Requests};

/// What one line means.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(Box<ClientJsonRpcMessage>),
    /// The line to answer with, without its newline.
    Answer(Vec<u8>),
    /// There is no place for this request now; the answer if none becomes free.
    Full(Vec<u8>),
    Nothing,
}

/// Reads a line; `era` follows what it opens.
pub(super) fn read(line: &[u8], offer: Offer, era: &mut Era, requests: &Requests) -> Incoming {
    let line = envelope::trim(line);
    if line.is_empty() {
        return Incoming::Nothing;
    }
    let message = match envelope::read(line) {
        Ok(message) => message,
        Err(fault) => return Incoming::Answer(fault.answer()),
    };
    // What has an envelope is text.
    let Ok(text) = std::str::from_utf8(line) else {
        return Incoming::Nothing;
    };
    match message {
        Message::Response { .. } => clients_answer(text, offer, *era),
        Message::Notification { method, params } => {
            notification(text, &method, params, *era, requests)
        }
        Message::Request {
            id, method, params, ..
        } => {
            let served = offer.methods.contains(&&*method);
            match request(text, &id, (&method, served), params, era, requests) {
                Ok(message) => Incoming::Message(Box::new(message)),
                Err(refusal) if refusal.code == BUSY => Incoming::Full(error_line(&id, &refusal)),
                Err(refusal) => Incoming::Answer(error_line(&id, &refusal)),
            }
        }
    }
}

fn request(
    text: &str,
    id: &Id,
    (method, served): (&str, bool),
    params: Option<&RawValue>,
    era: &mut Era,
    requests: &Requests,
) -> Result<ClientJsonRpcMessage, Refusal> {
    let members = match members(params) {
        Ok(members) => members,
        Err(fault) if served => return Err(Refusal::new(INVALID_PARAMS, fault)),
        Err(_) => BTreeMap::new(),
    };
    let after = era.admit(method, &members)?;
    if !served {
        let text = format!("method not found: {method}");
        return Err(Refusal::new(METHOD_NOT_FOUND, text));
    }
    match method {
        "tools/call" => check_call(&members)?,
        "tools/list" | "resources/list" | "resources/templates/list" => check_list(&members)?,
        _ => {}
    }
    let mut request: ClientRequest = serde_json::from_str(text).map_err(|_| odd_params(method))?;
    // rmcp takes a request with parameters of another form for one it does not know.
    if matches!(request, ClientRequest::CustomRequest(_)) {
        return Err(odd_params(method));
    }
    if after == Era::Legacy && method != "server/discover" {
        // The opener has decided, so what a request says of its revision is for nobody.
        request
            .get_meta_mut()
            .remove("io.modelcontextprotocol/protocolVersion");
    }
    let progress: Option<ProgressToken> = request.get_meta().get_progress_token();
    let number = requests
        .open(id.clone(), progress)
        .map_err(|reason| match reason {
            NoPlace::Twin => Refusal::new(
                INVALID_REQUEST,
                "this id belongs to a request that is still under way",
            ),
            NoPlace::Full => Refusal::new(
                BUSY,
                format!("{MAX_IN_FLIGHT} requests are under way; read their answers first"),
            ),
        })?;
    if method == "subscriptions/listen" {
        requests.lasts(number);
    }
    *era = after;
    Ok(JsonRpcMessage::request(request, RequestId::Number(number)))
}

/// A client's answer, where anything can have been asked; elsewhere it answers nothing.
fn clients_answer(text: &str, offer: Offer, era: Era) -> Incoming {
    if !offer.asks || era != Era::Legacy {
        return Incoming::Nothing;
    }
    match serde_json::from_str(text) {
        Ok(answer @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))) => {
            Incoming::Message(Box::new(answer))
        }
        Ok(_) | Err(_) => Incoming::Nothing,
    }
}

fn odd_params(method: &str) -> Refusal {
    Refusal::new(
        INVALID_PARAMS,
        format!("the params do not have the form {method} wants"),
    )
}

fn notification(
    text: &str,
    method: &str,
    params: Option<&RawValue>,
    era: Era,
    requests: &Requests,
) -> Incoming {
    // rmcp ends a session that a notification opens.
    if era == Era::Open {
        return Incoming::Nothing;
    }
    let notification = if method == "notifications/cancelled" {
        let id = members(params)
            .ok()
            .and_then(|members| Id::from_json(members.get("requestId")?.get()));
        let Some(number) = id.and_then(|id| requests.cancel(&id)) else {
            return Incoming::Nothing;
        };
        let number = Some(RequestId::Number(number));
        let params = CancelledNotificationParam::new(number, None);
        ClientNotification::CancelledNotification(CancelledNotification::new(params))
    } else {
        match serde_json::from_str(text) {
            // rmcp would write each of them to the log.
            Ok(ClientNotification::CustomNotification(_)) | Err(_) => return Incoming::Nothing,
            Ok(notification) => notification,
        }
    };
    Incoming::Message(Box::new(JsonRpcMessage::notification(notification)))
}

/// The members of `params`, each with its own fault named.
fn members(params: Option<&RawValue>) -> Result<BTreeMap<Cow<'_, str>, &RawValue>, String> {
    let Some(params) = params else {
        return Ok(BTreeMap::new());
    };
    if !params.get().starts_with('{') {
        let found = type_name(params.get());
        return Err(format!("params: found {found}, required an object"));
    }
    let members: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(params.get()).map_err(|fault| {
            half_character(params.get(), "params")
                .unwrap_or_else(|| format!("params cannot be read: {fault}"))
        })?;
    for (name, value) in &members {
        keys::check(value.get()).map_err(|fault| {
            let path = format!("params.{name}");
            half_character(value.get(), &path)
                .unwrap_or_else(|| format!("{path} cannot be read: {}", reason(&fault)))
        })?;
    }
    keys::check(params.get())
        .map_err(|fault| format!("params cannot be read: {}", reason(&fault)))?;
    Ok(members)
}

/// A fault without its place, which counts from the member and not from the line.
fn reason(fault: &serde_json::Error) -> String {
    let text = fault.to_string();
    text.rfind(" at line ")
        .and_then(|at| text.get(..at))
        .unwrap_or(&text)
        .to_owned()
}

/// What a call must have before its tool is looked at. `null` for the arguments counts as none.
fn check_call(params: &BTreeMap<Cow<'_, str>, &RawValue>) -> Result<(), Refusal> {
    let refuse = |text: String| Err(Refusal::new(INVALID_PARAMS, text));
    if !params
        .get("name")
        .is_some_and(|name| name.get().starts_with('"'))
    {
        return refuse("params.name: required a string, the tool's name".to_owned());
    }
    match params.get("arguments").map(|arguments| arguments.get()) {
        None | Some("null") => Ok(()),
        Some(arguments) if arguments.starts_with('{') => Ok(()),
        Some(other) => refuse(format!(
            "params.arguments: found {}, required an object",
            type_name(other)
        )),
    }
}

/// rmcp reads a cursor of another type as none.
fn check_list(params: &BTreeMap<Cow<'_, str>, &RawValue>) -> Result<(), Refusal> {
    match params.get("cursor").map(|cursor| cursor.get()) {
        Some(cursor) if cursor != "null" && !cursor.starts_with('"') => Err(Refusal::new(
            INVALID_PARAMS,
            format!(
                "params.cursor: found {}, required a string",
                type_name(cursor)
            ),
        )),
        _ => Ok(()),
    }
}

fn type_name(json: &str) -> &'static str {
    serde_json::from_str::<Value>(json)
        .map_or("something else", |value| super::tools::type_name(&value))
}

/// The answer to a line of which only the head was kept.
pub(super) fn too_long(head: &[u8], limit: usize) -> Vec<u8> {
    let id = id_in(&String::from_utf8_lossy(head));
    let text = format!("the message is longer than {limit} bytes");
    envelope::error(id.as_ref(), INVALID_REQUEST, &text, None)
}

/// The id of a message of which only the head is there, if it stands before the params.
fn id_in(head: &str) -> Option<Id> {
    let params = head.find("\"params\"").unwrap_or(head.len());
    let before = head.get(..params)?;
    let after = before
        .get(before.find("\"id\"")? + 4..)?
        .trim_start()
        .strip_prefix(':')?;
    let mut values = serde_json::Deserializer::from_str(after).into_iter::<Box<RawValue>>();
    let id = values.next()?.ok()?;
    Id::from_json(id.get())
}

fn error_line(id: &Id, refusal: &Refusal) -> Vec<u8> {
    envelope::error(
        Some(id),
        refusal.code,
        &refusal.message,
        refusal.data.as_ref(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::OFFER;
    use super::*;
    use ptc_protocol::envelope::PARSE_ERROR;
    use serde_json::json;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#;

    struct Bench {
        era: Era,
        requests: Requests,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                era: Era::Open,
                requests: Requests::default(),
            }
        }

        /// With a legacy session open, and the opener answered.
        fn legacy() -> Self {
            let mut bench = Self::new();
            bench.message(INITIALIZE);
            bench.requests.answered(0);
            bench
        }

        fn read(&mut self, line: &str) -> Incoming {
            read(line.as_bytes(), OFFER, &mut self.era, &self.requests)
        }

        fn message(&mut self, line: &str) -> ClientJsonRpcMessage {
            match self.read(line) {
                Incoming::Message(message) => *message,
                other => panic!("{line}: {other:?}"),
            }
        }

        /// Id, code and message of an error.
        fn error(&mut self, line: &str) -> (Value, i64, String) {
            let Incoming::Answer(bytes) = self.read(line) else {
                panic!("no answer to {line}");
            };
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            let error = &answer["error"];
            (
                answer["id"].clone(),
                error["code"].as_i64().unwrap(),
                error["message"].as_str().unwrap().to_owned(),
            )
        }

        fn nothing(&mut self, line: &str) -> bool {
            matches!(self.read(line), Incoming::Nothing)
        }
    }

    fn call(id: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    }

    #[test]
    fn what_is_no_request_is_answered_in_the_right_place() {
        let mut bench = Bench::new();
        for (line, id, code) in [
            ("{", "null", PARSE_ERROR),
            ("nonsense", "null", PARSE_ERROR),
            ("[]", "null", INVALID_REQUEST),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
                "null",
                INVALID_REQUEST,
            ),
            ("5", "null", INVALID_REQUEST),
            (
                r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
                "7",
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                "null",
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                "null",
                INVALID_REQUEST,
            ),
            (r#"{"jsonrpc":"2.0","id":8}"#, "8", INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":8,"method":5}"#,
                "8",
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
                "null",
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#,
                "\"a\"",
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"server/discover"}"#,
                "3",
                INVALID_PARAMS,
            ),
        ] {
            let (found, error, _) = bench.error(line);
            assert_eq!(
                (found.to_string().as_str(), error),
                (id, i64::from(code)),
                "{line}"
            );
        }
        assert!(bench.nothing("  \t"));
        assert!(bench.nothing(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
        assert!(bench.nothing(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#));
        assert_eq!(bench.era, Era::Open);
    }

    #[test]
    fn an_id_of_half_a_character_comes_back_as_it_was_written() {
        let mut bench = Bench::new();
        let line = r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#;
        let Incoming::Answer(bytes) = bench.read(line) else {
            panic!("an answer");
        };
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with(r#"{"jsonrpc":"2.0","id":"\ud800","error":{"code":-32600"#),
            "{text}"
        );
    }

    #[test]
    fn ids_of_every_form_are_taken_and_told_apart() {
        let mut bench = Bench::legacy();
        for id in [
            "1",
            "\"1\"",
            "1.0",
            "1.5",
            "-0",
            "9223372036854775808",
            "9007199254740993",
            "\"\"",
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
            let JsonRpcMessage::Request(request) = bench.message(&line) else {
                panic!("a request");
            };
            let RequestId::Number(number) = request.id else {
                panic!("a number");
            };
            assert_eq!(bench.requests.id(number).unwrap().to_string(), id);
            let (found, code, _) = bench.error(&line);
            assert_eq!(
                (found.to_string().as_str(), code),
                (id, i64::from(INVALID_REQUEST))
            );
        }
    }

    #[test]
    fn a_cancel_reaches_its_request_only() {
        let mut bench = Bench::legacy();
        bench.message(&call("1.5", r#"{"name":"x"}"#));
        let cancel = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )
        };
        for id in ["1", "\"1.5\"", "null", "{}", "99"] {
            assert!(bench.nothing(&cancel(id)), "{id}");
        }
        for params in ["", r#","params":null"#, r#","params":[1.5]"#] {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled"{params}}}"#);
            assert!(bench.nothing(&line), "{line}");
        }
        bench.message(&cancel("1.5"));
        assert!(bench.nothing(&cancel("1.5")));
        bench.message(&call("1.5", r#"{"name":"x"}"#));
        assert!(bench.nothing(r#"{"jsonrpc":"2.0","method":"notifications/unheard-of"}"#));
    }

    #[test]
    fn params_that_do_not_fit_name_the_place() {
        let mut bench = Bench::legacy();
        for (params, part) in [
            ("5", "params: found a number"),
            ("[]", "params: found an array"),
            ("null", "params: found null"),
            (
                r#"{"name":"x","arguments":5}"#,
                "params.arguments: found a number",
            ),
            (
                r#"{"name":"x","arguments":[]}"#,
                "params.arguments: found an array",
            ),
            (r#"{"name":5}"#, "params.name"),
            (r#"{"arguments":{}}"#, "params.name"),
            (r#"{"name":"x","name":"y"}"#, "\"name\" stands twice"),
            (
                r#"{"name":"x","arguments":{"code":"a","code":"b"}}"#,
                "params.arguments cannot be read: the key \"code\" stands twice",
            ),
            (
                r#"{"name":"x","arguments":{"code":"\ud800"}}"#,
                "params.arguments.code: found half of a surrogate pair (\\ud800), required text of whole characters",
            ),
        ] {
            let (id, code, message) = bench.error(&call("5", params));
            assert_eq!(
                (id, code),
                (json!(5), i64::from(INVALID_PARAMS)),
                "{params}"
            );
            assert!(message.contains(part), "{params}: {message}");
        }
        for params in [r#"{"name":"x"}"#, r#"{"name":"x","arguments":null}"#] {
            bench.message(&call("5", params));
            bench.requests.cancel(&Id::from_json("5").unwrap());
        }
        let odd = r#"{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{"cursor":7}}"#;
        assert_eq!(bench.error(odd).1, i64::from(INVALID_PARAMS));
        let odd =
            r#"{"jsonrpc":"2.0","id":6,"method":"initialize","params":{"protocolVersion":7}}"#;
        assert_eq!(bench.error(odd).1, i64::from(INVALID_PARAMS));
        let unknown = r#"{"jsonrpc":"2.0","id":6,"method":"no/such","params":[1]}"#;
        assert_eq!(bench.error(unknown).1, i64::from(METHOD_NOT_FOUND));
    }

    #[test]
    fn more_than_the_served_number_is_refused_until_one_ends() {
        let mut bench = Bench::legacy();
        for n in 1..=MAX_IN_FLIGHT {
            bench.message(&call(&n.to_string(), r#"{"name":"x"}"#));
        }
        let Incoming::Full(answer) = bench.read(&call("999", r#"{"name":"x"}"#)) else {
            panic!("no place");
        };
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(999), &json!(BUSY))
        );
        bench.message(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        );
        bench.message(&call("999", r#"{"name":"x"}"#));
    }
}
