//! The server that the suite's scenarios are written for, as a handler on the daemon's session layer.

use std::sync::Arc;
use std::time::Duration;

use ptcd::session::Offer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, Implementation, InitializeResult,
    InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerConfig, ServerNotification, ServerRequest, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::rounds::{self, Brought, Round, States};
use super::stock;

/// Every method that the fixtures serve.
pub const OFFER: Offer = Offer {
    methods: &[
        "initialize",
        "server/discover",
        "ping",
        "logging/setLevel",
        "completion/complete",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "subscriptions/listen",
    ],
    asks: true,
};

/// Between two messages of one tool, as the suite wants it.
const STEP: Duration = Duration::from_millis(50);
/// Longer than the front holds a silent stream open.
const LONG: Duration = Duration::from_millis(1500);

/// The server; all clones are one, as all connections of a real server are.
#[derive(Clone, Debug)]
pub struct Fixture {
    states: Arc<States>,
    changes: broadcast::Sender<&'static str>,
}

impl Default for Fixture {
    fn default() -> Self {
        Self {
            states: Arc::default(),
            changes: broadcast::Sender::new(16),
        }
    }
}

/// A value of the protocol from its JSON, which shows better what goes on the wire.
fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|fault| ErrorData::internal_error(fault.to_string(), None))
}

fn content(blocks: &[Value]) -> Result<CallToolResponse, ErrorData> {
    made(json!({"content": blocks})).map(CallToolResponse::Complete)
}

async fn notify(peer: &Peer<RoleServer>, method: &str, params: Value) -> Result<(), ErrorData> {
    let notification: ServerNotification = made(json!({"method": method, "params": params}))?;
    peer.send_notification(notification)
        .await
        .map_err(|fault| ErrorData::internal_error(fault.to_string(), None))
}

/// Asks the client and waits for its answer.
async fn question(
    peer: &Peer<RoleServer>,
    method: &str,
    params: Value,
) -> Result<Value, ErrorData> {
    let fault = |text: String| ErrorData::internal_error(text, None);
    let request: ServerRequest = made(json!({"method": method, "params": params}))?;
    let answer = peer.send_request(request).await;
    let answer = answer.map_err(|error| fault(error.to_string()))?;
    serde_json::to_value(answer).map_err(|error| fault(error.to_string()))
}

impl Fixture {
    async fn tool(
        &self,
        name: &str,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match name {
            "test_tool_with_logging" => {
                for line in [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ] {
                    log(&context.peer, line).await?;
                    tokio::time::sleep(STEP).await;
                }
                content(&[stock::text("The log is written")])
            }
            "test_logging_tool" => {
                if context.meta.log_level().is_some() {
                    log(&context.peer, "a line that was asked for").await?;
                }
                content(&[stock::text("Nothing else is written")])
            }
            "test_tool_with_progress" => progress(context).await,
            "test_reconnection" => {
                tokio::time::sleep(LONG).await;
                content(&[stock::text("It took its time")])
            }
            "test_missing_capability" => missing(context),
            "test_trigger_tool_change" | "test_trigger_prompt_change" => {
                let prompts = name.contains("prompt");
                let method = if prompts { "prompts" } else { "tools" };
                // Nobody may be listening.
                let _ = self.changes.send(method);
                content(&[stock::text("Said")])
            }
            "test_sampling"
            | "test_elicitation"
            | "test_elicitation_sep1034_defaults"
            | "test_elicitation_sep1330_enums" => asking(name, arguments, &context.peer).await,
            _ => simple(name),
        }
    }

    fn round(
        &self,
        name: &str,
        responses: Option<&std::collections::BTreeMap<String, Value>>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<Round, ErrorData>> {
        let none = std::collections::BTreeMap::new();
        let can = serde_json::to_value(context.client_capabilities()).unwrap_or_default();
        let brought = Brought {
            responses: responses.unwrap_or(&none),
            state,
            can: &can,
        };
        rounds::round(name, &brought, &self.states)
    }
}

fn asked(requests: &Value, state: Option<String>) -> Result<InputRequiredResult, ErrorData> {
    let mut result = json!({"resultType": "input_required", "inputRequests": requests});
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    made(result)
}

async fn log(peer: &Peer<RoleServer>, line: &str) -> Result<(), ErrorData> {
    let params = json!({"level": "info", "logger": "fixture", "data": line});
    notify(peer, "notifications/message", params).await
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    let token = context.meta.get_progress_token();
    for step in [0, 50, 100] {
        if let Some(token) = &token {
            let params = json!({"progressToken": token, "progress": step, "total": 100});
            notify(&context.peer, "notifications/progress", params).await?;
        }
        tokio::time::sleep(STEP).await;
    }
    content(&[stock::text("It is done")])
}

fn missing(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    if context
        .client_capabilities()
        .is_some_and(|can| can.sampling.is_some())
    {
        return content(&[stock::text("This client can sample")]);
    }
    let wanted = made(json!({"sampling": {}}))?;
    Err(ErrorData::missing_required_client_capability(wanted))
}

/// Tools that ask a client with a handshake.
async fn asking(
    name: &str,
    arguments: &Value,
    peer: &Peer<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    if name == "test_sampling" {
        let message = json!({"role": "user", "content": stock::text(arguments["prompt"].as_str().unwrap_or_default())});
        let params = json!({"messages": [message], "maxTokens": 100});
        let answer = question(peer, "sampling/createMessage", params).await?;
        let said = answer
            .pointer("/content/text")
            .or_else(|| answer.pointer("/content/0/text"));
        let said = said.and_then(Value::as_str).unwrap_or_default();
        return content(&[stock::text(&format!("LLM response: {said}"))]);
    }
    let (message, properties) = match name {
        "test_elicitation" => (
            arguments["message"].as_str().unwrap_or_default(),
            json!({
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            }),
        ),
        "test_elicitation_sep1034_defaults" => (
            "Everything has a default",
            json!({
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                "verified": {"type": "boolean", "default": true},
            }),
        ),
        _ => ("Choose", choices()),
    };
    let mut schema = json!({"type": "object", "properties": properties});
    if name == "test_elicitation" {
        schema["required"] = json!(["username", "email"]);
    }
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let answer = question(peer, "elicitation/create", params).await?;
    let text = format!(
        "The user's answer: action={}, content={}",
        answer["action"], answer["content"]
    );
    content(&[stock::text(&text)])
}

/// A choice in each of the five forms.
fn choices() -> Value {
    let titled = |word: &str| {
        json!([
            {"const": "value1", "title": format!("First {word}")},
            {"const": "value2", "title": format!("Second {word}")},
            {"const": "value3", "title": format!("Third {word}")},
        ])
    };
    json!({
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    })
}

/// Tools that answer at once.
fn simple(name: &str) -> Result<CallToolResponse, ErrorData> {
    let image = json!({"type": "image", "data": stock::PNG, "mimeType": "image/png"});
    let blocks = match name {
        "test_simple_text" => vec![stock::text("This is a simple text response for testing.")],
        "test_image_content" => vec![image],
        "test_audio_content" => {
            vec![json!({"type": "audio", "data": stock::WAV, "mimeType": "audio/wav"})]
        }
        "test_embedded_resource" => vec![json!({"type": "resource", "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }})],
        "test_multiple_content_types" => vec![
            stock::text("Multiple content types test:"),
            image,
            json!({"type": "resource", "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": "{\"test\":\"data\",\"value\":123}",
            }}),
        ],
        "test_error_handling" => {
            let block = stock::text("This tool intentionally returns an error for testing");
            return made(json!({"content": [block], "isError": true}))
                .map(CallToolResponse::Complete);
        }
        "json_schema_2020_12_tool" | "test_custom_header" => vec![stock::text("Called")],
        _ => {
            return Err(ErrorData::invalid_params(
                format!("unknown tool: {name}"),
                None,
            ));
        }
    };
    content(&blocks)
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
            "logging": {},
            "completions": {},
        });
        let mut info =
            InitializeResult::new(serde_json::from_value(capabilities).unwrap_or_default());
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info.server_info = Implementation::new("fixture", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        made(
            json!({"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": false}}),
        )
    }

    #[expect(deprecated, reason = "the revisions with a handshake have it")]
    async fn set_level(
        &self,
        _: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        made(stock::tools())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let responses = request.input_responses.as_ref();
        let state = request.request_state.as_deref();
        if let Some(round) = self.round(&request.name, responses, state, &context) {
            return match round? {
                Round::Done(text) => content(&[stock::text(&text)]),
                Round::Ask { requests, state } => asked(&requests, state).map(Into::into),
            };
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        self.tool(&request.name, &arguments, &context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        made(stock::resources())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        made(stock::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(resource) = stock::resource(&request.uri) else {
            let data = json!({"uri": request.uri});
            return Err(ErrorData::resource_not_found(
                "there is no such resource",
                Some(data),
            ));
        };
        made(resource).map(ReadResourceResponse::Complete)
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        made(stock::prompts())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let responses = request.input_responses.as_ref();
        let state = request.request_state.as_deref();
        if request.name == "test_input_required_result_prompt"
            && let Some(round) = self.round(&request.name, responses, state, &context)
        {
            return match round? {
                Round::Ask { requests, state } => asked(&requests, state).map(Into::into),
                Round::Done(text) => {
                    let message = json!({"role": "user", "content": stock::text(&text)});
                    made(json!({"messages": [message]})).map(GetPromptResponse::Complete)
                }
            };
        }
        let arguments = request.arguments.unwrap_or_default();
        let argument = |name: &str| {
            let value = arguments.get(name).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        match stock::prompt(&request.name, argument) {
            Some(prompt) => made(prompt).map(GetPromptResponse::Complete),
            None => Err(ErrorData::invalid_params("there is no such prompt", None)),
        }
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let Ok(change) = change else { continue };
            let method = format!("notifications/{change}/list_changed");
            // The sink lets through what was asked for and no more.
            let _ = subscription
                .sink()
                .send(made(json!({"method": method}))?)
                .await;
        }
    }
}
