//! A client for the suite's servers: the daemon's registry and downstream rooms, with one server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ptc_protocol::status::ServerState;
use ptcd::config::{Era, Scope, ServerConfig, ToolFilter, Transport};
use ptcd::downstream::{Address, Downstream, Options, Target};
use ptcd::policy::Policy;
use ptcd::registry::Registry;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// How long the server may take to be connected.
const START: Duration = Duration::from_secs(20);
/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(15);
/// The tool that wants to be sent a schema, and the tool whose schema that is.
const ECHO: &str = "mcp__suite__json_schema_echo";
const RICH: &str = "mcp__suite__json_schema_2020_12_tool";

/// Connects to the server, lists its tools and calls what the scenario wants called; says what
/// came of each call.
///
/// # Errors
/// The server cannot be connected, or the scenario's context cannot be read.
pub async fn run(url: &str, context: Option<&str>, state: &Path) -> anyhow::Result<Vec<String>> {
    let downstream = Downstream::start(vec![server(url)], options(state))?;
    let policy = Policy::new(&ToolFilter::All)?;
    // The arguments that a scenario names need not fit the tool's schema.
    let check = context.is_none();
    let registry = Registry::new(downstream.clone(), policy, state.join("names.json"), check);
    registry.settled(START).await;
    let told = match downstream.servers().first() {
        Some(server) if server.state.state == ServerState::Ready => {
            call_all(&registry, context).await
        }
        Some(server) => Err(anyhow::anyhow!("{:?}", server.state)),
        None => Err(anyhow::anyhow!("there is no server")),
    };
    downstream.stop().await;
    told
}

fn server(url: &str) -> ServerConfig {
    ServerConfig {
        name: "suite".to_owned(),
        transport: Transport::Http {
            url: url.to_owned(),
            headers: BTreeMap::new(),
        },
        scope: Scope::Shared,
        start_timeout: START,
        enabled: true,
        purpose: String::new(),
        trust_annotations: false,
        protocol: Era::Auto,
        max_concurrent_calls: 16,
    }
}

fn options(state: &Path) -> Options {
    Options {
        max_result_bytes: 1024 * 1024,
        expand: Arc::new(|config, _| match &config.transport {
            Transport::Http { url, headers } => Ok(Target::Endpoint(Address {
                url: url.clone(),
                headers: headers.clone(),
            })),
            _ => Err("it has no endpoint".to_owned()),
        }),
        recorded: Arc::new(|_| None),
        log_dir: state.to_owned(),
        lists_dir: state.to_owned(),
        idle: LIMIT,
        mask: Arc::new(str::to_owned),
        settled: Arc::new(str::len),
        own_program: None,
        umask: rustix::fs::Mode::from_raw_mode(0o022),
    }
}

async fn call_all(registry: &Registry, context: Option<&str>) -> anyhow::Result<Vec<String>> {
    let mut told = Vec::new();
    for (tool, arguments) in calls(registry, context)? {
        let outcome = match registry.prepare(&tool, &arguments.to_string()) {
            Ok(call) => registry.call(&call, LIMIT, CancellationToken::new()).await,
            Err(error) => Err(error),
        };
        told.push(match outcome {
            Ok(reply) => format!("{tool}: {}", reply.encoded),
            Err(error) => format!("{tool}: {:?}: {}", error.kind, error.message),
        });
    }
    Ok(told)
}

/// What is to be called: what the scenario names, or each tool once.
fn calls(registry: &Registry, context: Option<&str>) -> anyhow::Result<Vec<(String, Value)>> {
    let context: Value = context.map_or(Ok(Value::Null), serde_json::from_str)?;
    let wanted = context["toolCalls"].as_array();
    if let Some(wanted) = wanted {
        let named = wanted.iter().map(|call| {
            let name = call["name"].as_str().context("a call without a name")?;
            Ok((format!("mcp__suite__{name}"), call["arguments"].clone()))
        });
        return named.collect();
    }
    let names = registry.list().tools;
    if names.iter().any(|name| name == ECHO) {
        return Ok(vec![(
            ECHO.to_owned(),
            json!({"schema": schema(registry, RICH)?}),
        )]);
    }
    let each = names.into_iter().map(|name| {
        let arguments = some_arguments(&schema(registry, &name)?);
        Ok((name, arguments))
    });
    each.collect()
}

/// A tool's schema as a program is told it.
fn schema(registry: &Registry, name: &str) -> anyhow::Result<Value> {
    match registry.inspect(name) {
        Ok(told) => Ok(told["inputSchema"].clone()),
        Err(unknown) => bail!("{unknown}"),
    }
}

/// The required arguments of a schema, each with some value of its type.
fn some_arguments(schema: &Value) -> Value {
    let required = schema["required"].as_array();
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    let arguments: Map<String, Value> = names
        .map(|name| {
            let value = match schema["properties"][name]["type"].as_str() {
                Some("number" | "integer") => json!(2),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("some"),
            };
            (name.to_owned(), value)
        })
        .collect();
    Value::Object(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_arguments_have_values_of_their_types() {
        let schema = json!({
            "properties": {"a": {"type": "number"}, "b": {"type": "string"}, "c": {"type": "object"}},
            "required": ["a", "b"],
        });
        assert_eq!(some_arguments(&schema), json!({"a": 2, "b": "some"}));
        assert_eq!(some_arguments(&json!({})), json!({}));
    }
}
