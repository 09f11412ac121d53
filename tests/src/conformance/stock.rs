//! What the suite wants to find listed: tools, resources and prompts.

use serde_json::{Value, json};

/// One red pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A sound of no length.
pub(super) const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
pub(super) const STATIC_TEXT: &str = "This is the content of the static text resource.";

/// Tools without arguments, and what each does.
const PLAIN: &[(&str, &str)] = &[
    ("test_simple_text", "Returns a text"),
    ("test_image_content", "Returns an image"),
    ("test_audio_content", "Returns a sound"),
    ("test_embedded_resource", "Returns a resource"),
    (
        "test_multiple_content_types",
        "Returns a text, an image and a resource",
    ),
    ("test_tool_with_logging", "Writes three log messages"),
    ("test_error_handling", "Fails"),
    ("test_tool_with_progress", "Says how far it is, three times"),
    (
        "test_reconnection",
        "Takes longer than a stream is held open",
    ),
    (
        "test_elicitation_sep1034_defaults",
        "Asks with defaults of every type",
    ),
    (
        "test_elicitation_sep1330_enums",
        "Asks with choices of every form",
    ),
    ("test_missing_capability", "Wants a client that can sample"),
    (
        "test_streaming_elicitation",
        "Asks in the course of its answer",
    ),
    ("test_logging_tool", "Writes a log message if it may"),
    (
        "test_trigger_tool_change",
        "Says that the tools have changed",
    ),
    (
        "test_trigger_prompt_change",
        "Says that the prompts have changed",
    ),
    ("test_input_required_result_elicitation", "Asks for a name"),
    ("test_input_required_result_sampling", "Asks for a capital"),
    (
        "test_input_required_result_list_roots",
        "Asks for the roots",
    ),
    (
        "test_input_required_result_request_state",
        "Asks and keeps its state with the client",
    ),
    (
        "test_input_required_result_multiple_inputs",
        "Asks for three things at once",
    ),
    ("test_input_required_result_multi_round", "Asks twice"),
    (
        "test_input_required_result_tampered_state",
        "Asks and knows its state again",
    ),
    (
        "test_input_required_result_capabilities",
        "Asks only for what the client can do",
    ),
];

/// The tools, sorted by name.
pub(super) fn tools() -> Value {
    let mut tools: Vec<Value> = PLAIN
        .iter()
        .map(|(name, text)| tool(name, text, &json!({"type": "object", "properties": {}})))
        .collect();
    for (name, argument) in [("test_sampling", "prompt"), ("test_elicitation", "message")] {
        let schema = json!({
            "type": "object",
            "properties": {argument: {"type": "string", "description": "What to ask"}},
            "required": [argument],
        });
        tools.push(tool(name, "Asks the client", &schema));
    }
    tools.push(tool(
        "json_schema_2020_12_tool",
        "Has a schema with many keywords",
        &rich_schema(),
    ));
    tools.push(tool(
        "test_custom_header",
        "Has an argument that is a header, too",
        &json!({
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }),
    ));
    tools.sort_by_key(|tool| tool["name"].to_string());
    json!({"tools": tools, "ttlMs": 1000, "cacheScope": "public"})
}

fn tool(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "address",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "phone": {"type": "string"},
            "mail": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["mail"]}]}],
        "if": {"required": ["address"]},
        "then": {"required": ["name"]},
        "else": {"properties": {"name": {"minLength": 1}}},
        "additionalProperties": false,
    })
}

pub(super) fn resources() -> Value {
    json!({
        "resources": [
            {"uri": "test://static-text", "name": "static text", "description": "A text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "static binary", "description": "An image", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "watched", "description": "A text that could change", "mimeType": "text/plain"},
        ],
        "ttlMs": 1000,
        "cacheScope": "public",
    })
}

pub(super) fn templates() -> Value {
    json!({
        "resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data",
            "name": "template",
            "description": "Data by a number",
            "mimeType": "application/json",
        }],
        "ttlMs": 1000,
        "cacheScope": "public",
    })
}

/// What a resource holds; `None` if there is no such one.
pub(super) fn resource(uri: &str) -> Option<Value> {
    let content = match uri {
        "test://static-text" => json!({"mimeType": "text/plain", "text": STATIC_TEXT}),
        "test://static-binary" => json!({"mimeType": "image/png", "blob": PNG}),
        "test://watched-resource" => json!({"mimeType": "text/plain", "text": "as before"}),
        _ => {
            let id = uri
                .strip_prefix("test://template/")?
                .strip_suffix("/data")?;
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"mimeType": "application/json", "text": data.to_string()})
        }
    };
    let mut content = content;
    content["uri"] = json!(uri);
    Some(json!({"contents": [content], "ttlMs": 1000, "cacheScope": "public"}))
}

pub(super) fn prompts() -> Value {
    let argument =
        |name: &str| json!({"name": name, "description": "An argument", "required": true});
    json!({
        "prompts": [
            {"name": "test_simple_prompt", "description": "A prompt"},
            {"name": "test_prompt_with_arguments", "description": "A prompt with arguments",
             "arguments": [argument("arg1"), argument("arg2")]},
            {"name": "test_prompt_with_embedded_resource", "description": "A prompt with a resource",
             "arguments": [argument("resourceUri")]},
            {"name": "test_prompt_with_image", "description": "A prompt with an image"},
            {"name": "test_input_required_result_prompt", "description": "A prompt that asks first"},
        ],
        "ttlMs": 1000,
        "cacheScope": "public",
    })
}

/// A prompt's messages; `None` if there is no such one.
pub(super) fn prompt(name: &str, argument: impl Fn(&str) -> String) -> Option<Value> {
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => vec![text(&format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        ))],
        "test_prompt_with_embedded_resource" => vec![
            json!({"type": "resource", "resource": {
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }}),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![
            json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
            text("Please analyze the image above."),
        ],
        _ => return None,
    };
    let messages: Vec<Value> = contents
        .into_iter()
        .map(|content| json!({"role": "user", "content": content}))
        .collect();
    Some(json!({"messages": messages}))
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
