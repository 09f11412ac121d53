//! Tools and prompts that ask the client by their result, and go on when they are called again.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use rmcp::ErrorData;
use serde_json::{Value, json};

/// The states that were given out; any other was made up.
#[derive(Debug, Default)]
pub(super) struct States(Mutex<HashSet<String>>);

impl States {
    fn give(&self, round: &str) -> String {
        let state = format!("{round}.{:032x}", fastrand::u128(..));
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.insert(state.clone());
        state
    }

    fn check(&self, state: Option<&str>, round: &str) -> Result<(), ErrorData> {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            Some(state) if given.contains(state) && state.starts_with(round) => Ok(()),
            _ => Err(ErrorData::invalid_params(
                "requestState: not one of ours",
                None,
            )),
        }
    }
}

/// What a call that is made again brings.
pub(super) struct Brought<'a> {
    pub(super) responses: &'a BTreeMap<String, Value>,
    pub(super) state: Option<&'a str>,
    /// The client's capabilities.
    pub(super) can: &'a Value,
}

impl Brought<'_> {
    fn field(&self, key: &str, pointer: &str) -> Option<&Value> {
        self.responses.get(key)?.pointer(pointer)
    }
}

/// What comes of one round: an answer's text, or what the client is to be asked.
pub(super) enum Round {
    Done(String),
    Ask {
        requests: Value,
        state: Option<String>,
    },
}

fn ask(requests: Value, state: Option<String>) -> Round {
    Round::Ask { requests, state }
}

fn elicit(message: &str, field: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {field: {"type": kind}},
            "required": [field],
        },
    }})
}

fn sample(question: &str, max_tokens: u32) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": question}}],
        "maxTokens": max_tokens,
    }})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

fn name_wanted() -> Value {
    elicit("What is your name?", "name", "string")
}

/// One round of the tool or prompt of this name; `None` if it asks nothing.
pub(super) fn round(
    name: &str,
    brought: &Brought<'_>,
    states: &States,
) -> Option<Result<Round, ErrorData>> {
    let short = name.strip_prefix("test_input_required_result_");
    Some(match short.or(Some(name))? {
        "elicitation" | "test_streaming_elicitation" => Ok(name_round(brought)),
        "sampling" => Ok(match brought.field("capital_question", "/content/text") {
            Some(answer) => Round::Done(format!("The model said {answer}")),
            None => ask(
                json!({"capital_question": sample("What is the capital of France?", 100)}),
                None,
            ),
        }),
        "list_roots" => Ok(match brought.field("client_roots", "/roots") {
            Some(found @ Value::Array(_)) => Round::Done(format!("The roots are {found}")),
            _ => ask(json!({"client_roots": roots()}), None),
        }),
        "request_state" | "tampered_state" => confirm_round(brought, states),
        "multiple_inputs" => three_round(brought, states),
        "multi_round" => two_rounds(brought, states),
        "capabilities" => Ok(able_round(brought)),
        "prompt" => Ok(match brought.field("user_context", "/content/context") {
            Some(context) => Round::Done(format!("Use this context: {context}")),
            None => ask(
                json!({"user_context": elicit("What context should the prompt use?", "context", "string")}),
                None,
            ),
        }),
        _ => return None,
    })
}

fn name_round(brought: &Brought<'_>) -> Round {
    match brought.field("user_name", "/content/name") {
        Some(Value::String(name)) => Round::Done(format!("Hello, {name}!")),
        _ => ask(json!({"user_name": name_wanted()}), None),
    }
}

fn confirm_round(brought: &Brought<'_>, states: &States) -> Result<Round, ErrorData> {
    if brought.responses.contains_key("confirm") {
        states.check(brought.state, "confirm")?;
        return Ok(Round::Done("state-ok".to_owned()));
    }
    let requests = json!({"confirm": elicit("Please confirm", "ok", "boolean")});
    Ok(ask(requests, Some(states.give("confirm"))))
}

fn three_round(brought: &Brought<'_>, states: &States) -> Result<Round, ErrorData> {
    let wanted = json!({
        "user_name": name_wanted(),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": roots(),
    });
    let all = wanted
        .as_object()
        .is_some_and(|wanted| wanted.keys().all(|key| brought.responses.contains_key(key)));
    if all {
        states.check(brought.state, "three")?;
        return Ok(Round::Done("all three came".to_owned()));
    }
    Ok(ask(wanted, Some(states.give("three"))))
}

fn two_rounds(brought: &Brought<'_>, states: &States) -> Result<Round, ErrorData> {
    if brought.responses.contains_key("step2") {
        states.check(brought.state, "second")?;
        return Ok(Round::Done("both steps are done".to_owned()));
    }
    if brought.responses.contains_key("step1") {
        states.check(brought.state, "first")?;
        let question = elicit("Step 2: What is your favorite color?", "color", "string");
        return Ok(ask(json!({"step2": question}), Some(states.give("second"))));
    }
    let question = elicit("Step 1: What is your name?", "name", "string");
    Ok(ask(json!({"step1": question}), Some(states.give("first"))))
}

fn able_round(brought: &Brought<'_>) -> Round {
    let mut requests = serde_json::Map::new();
    for (capability, key, request) in [
        ("elicitation", "user_name", name_wanted()),
        ("sampling", "greeting", sample("Generate a greeting", 50)),
        ("roots", "client_roots", roots()),
    ] {
        if brought.can.get(capability).is_some() && !brought.responses.contains_key(key) {
            requests.insert(key.to_owned(), request);
        }
    }
    if requests.is_empty() {
        return Round::Done("there is nothing to ask".to_owned());
    }
    ask(Value::Object(requests), None)
}
