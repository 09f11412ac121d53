//! What a program meets when it calls tools of real servers.

use std::collections::BTreeSet;

use ptc_protocol::run::ToolErrorKind;
use tempfile::TempDir;

use super::*;
use crate::config::{ServerConfig, ToolFilter, Transport};
use crate::downstream::testing::{eventually, options, server};

/// Tools and exact results from two variables of the environment.
const SCRIPTED: &str = r#"
tools, results = json.loads(os.environ["TOOLS"]), json.loads(os.environ["RESULTS"])
def listing(m):
    reply(m, {"tools": tools})
def call(m):
    name = m["params"]["name"]
    if name in results:
        raw(m, results[name].encode("utf-8", "surrogateescape"))
    else:
        reply(m, {"structuredContent": {"tool": name, "arguments": m["params"]["arguments"]}})
"#;

struct Bench {
    registry: Registry,
    downstream: Downstream,
    folder: TempDir,
}

impl Bench {
    async fn new(servers: &[(&str, Value, Value)], filter: ToolFilter) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let configs = servers
            .iter()
            .map(|(name, tools, results)| scripted(name, tools, results, &folder))
            .collect();
        Self::start(configs, filter, folder).await
    }

    /// One server called `s`.
    async fn one(tools: Value, results: Value) -> Self {
        Self::new(&[("s", tools, results)], ToolFilter::All).await
    }

    async fn start(configs: Vec<ServerConfig>, filter: ToolFilter, folder: TempDir) -> Self {
        let downstream = Downstream::start(configs, options(folder.path())).unwrap();
        let policy = Policy::new(&filter).unwrap();
        let registry = Registry::new(
            downstream.clone(),
            policy,
            folder.path().join("names"),
            true,
        );
        registry.settled(Duration::from_secs(30)).await;
        Self {
            registry,
            downstream,
            folder,
        }
    }

    async fn call(&self, name: &str, arguments: &str) -> Result<String, ToolError> {
        let call = self.registry.prepare(name, arguments)?;
        let limit = Duration::from_secs(20);
        let reply = self.registry.call(&call, limit, CancellationToken::new());
        reply.await.map(|reply| {
            assert_eq!(reply.bytes, reply.encoded.len());
            reply.encoded.to_string()
        })
    }
}

fn scripted(name: &str, tools: &Value, results: &Value, folder: &TempDir) -> ServerConfig {
    let mut config = server(name, SCRIPTED, folder.path());
    if let Transport::Stdio { env, .. } = &mut config.transport {
        env.insert("TOOLS".to_owned(), tools.to_string());
        env.insert("RESULTS".to_owned(), results.to_string());
    }
    config
}

fn tools(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .collect()
}

#[tokio::test]
async fn odd_names_are_callable_and_the_original_goes_on_the_wire() {
    let odd = [
        "catalog.get-entity",
        "send-email",
        "class",
        "天气查询",
        "新闻查询",
        "x(): pass\nimport os; os._exit(66)  #",
    ];
    let folding = ["a-b", "a.b", "a_b", "a b"];
    let bench = Bench::new(
        &[
            ("internal-apis", tools(&odd), json!({})),
            ("s", tools(&folding), json!({})),
            ("a", tools(&["b__c"]), json!({})),
            ("a__b", tools(&["c"]), json!({})),
        ],
        ToolFilter::All,
    )
    .await;
    let listing = bench.registry.list();
    assert_eq!(listing.unavailable, BTreeMap::new());
    assert_eq!(listing.tools.len(), odd.len() + folding.len() + 2);
    for name in [
        "mcp__internal_apis__catalog_get_entity",
        "mcp__internal_apis__send_email",
        "mcp__internal_apis__class",
        "mcp__s__a_b",
    ] {
        assert!(listing.tools.contains(&name.to_owned()), "{listing:?}");
    }
    let mut reached = BTreeSet::new();
    for name in &listing.tools {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        let reply = bench.call(name, "{}").await.unwrap();
        let tool: Value = serde_json::from_str(&reply).unwrap();
        reached.insert(tool["tool"].as_str().unwrap().to_owned());
    }
    let expected = odd.into_iter().chain(folding).chain(["b__c", "c"]);
    let expected = expected.map(str::to_owned);
    assert_eq!(reached, expected.collect());
    bench.downstream.stop().await;
}

#[tokio::test]
async fn names_survive_a_restart_and_never_move() {
    let folder = tempfile::tempdir().unwrap();
    let config = scripted("s", &tools(&["a-b"]), &json!({}), &folder);
    let bench = Bench::start(vec![config], ToolFilter::All, folder).await;
    assert_eq!(bench.registry.list().tools, ["mcp__s__a_b"]);
    bench.downstream.stop().await;
    let folder = bench.folder;
    let config = scripted("s", &tools(&["a_b", "a-b"]), &json!({}), &folder);
    let bench = Bench::start(vec![config], ToolFilter::All, folder).await;
    let reply = bench.call("mcp__s__a_b", "{}").await.unwrap();
    assert!(reply.contains("\"a-b\""), "{reply}");
    assert_eq!(bench.registry.list().tools.len(), 2);
    bench.registry.reset_names();
    let reply = bench.call("mcp__s__a_b", "{}").await.unwrap();
    assert!(reply.contains("\"a_b\""), "{reply}");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn what_policy_hides_is_not_there_and_the_hint_says_why() {
    let bench = Bench::new(
        &[("s", tools(&["get_one", "delete_all"]), json!({}))],
        ToolFilter::Allow(vec!["mcp__s__get_*".to_owned()]),
    )
    .await;
    let registry = &bench.registry;
    assert_eq!(registry.list().tools, ["mcp__s__get_one"]);
    assert_eq!(registry.signatures().len(), 1);
    assert_eq!(
        registry.hint("mcp__s__delete_all").unwrap(),
        "it is blocked by tools.allow, which only the user can change: do without it"
    );
    assert_eq!(
        registry.hint("mcp__s__get_on").unwrap(),
        "did you mean mcp__s__get_one?"
    );
    assert_eq!(registry.hint("whatever"), None);
    let error = bench.call("mcp__s__delete_all", "{}").await.unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::UnknownTool);
    let unknown = registry.inspect("mcp__s__gat_one").unwrap_err();
    assert_eq!(unknown.near, ["mcp__s__get_one"]);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn inspection_shows_the_servers_own_words_and_notes() {
    let description = "ends \"\"\" here {braces} %s \\N{DASH} \u{0} ```";
    let input = json!({"type": "object", "properties": {
        "max-results": {"type": "integer", "pattern": "["}, "q": {"type": "string"},
    }});
    let output = json!({"type": "object", "properties": {"b": {"$ref": "#/$defs/Gone"}}});
    let bench = Bench::one(
        json!([
            {"name": "t", "description": description, "inputSchema": input, "outputSchema": output},
            {"name": "plain"},
        ]),
        json!({}),
    )
    .await;
    let shown = bench.registry.inspect("mcp__s__t").unwrap();
    let keys: Vec<&String> = shown.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["name", "description", "inputSchema", "outputSchema", "note"]
    );
    assert_eq!(shown["description"], json!(description));
    assert_eq!(shown["inputSchema"], input);
    assert_eq!(shown["outputSchema"], output);
    let note = shown["note"].as_str().unwrap();
    for part in [
        "**{\"max-results\": ...}",
        "are sent, too: mind the spelling",
        "1 pattern(s)",
        "output schema cannot be used",
    ] {
        assert!(note.contains(part), "{note}");
    }
    let plain = bench.registry.inspect("mcp__s__plain").unwrap();
    assert_eq!(plain["inputSchema"], json!({}));
    assert_eq!(plain["outputSchema"], Value::Null);
    assert!(
        plain["note"]
            .as_str()
            .unwrap()
            .starts_with("No output schema defined")
    );
    assert_eq!(
        bench.registry.signatures()["mcp__s__t"],
        ["max-results", "q"]
    );
    bench.downstream.stop().await;
}

#[tokio::test]
async fn arguments_are_read_once_checked_and_normalised() {
    let schema = json!({
        "type": "object",
        "properties": {"limit": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["limit"],
        "additionalProperties": false,
    });
    let bench = Bench::one(
        json!([{"name": "page", "inputSchema": schema}, {"name": "any"}]),
        json!({}),
    )
    .await;
    let page = "mcp__s__page";
    let call = bench
        .registry
        .prepare(page, r#" {"limit": 20.0, "name": "1"} "#)
        .unwrap();
    assert_eq!(&*call.encoded, r#"{"limit":20,"name":"1"}"#);
    assert_eq!((call.tool.as_str(), call.server.as_str()), ("page", "s"));
    assert_eq!(call.arguments.len(), 2);
    let reply = bench.call(page, r#"{"limit":20.0}"#).await.unwrap();
    assert_eq!(reply, r#"{"tool":"page","arguments":{"limit":20}}"#);
    for (arguments, parts) in [
        (
            r#"{"limit":0.5}"#,
            [
                "argument `limit` must be an integer, got a number (0.5)",
                "signature: mcp__s__page(limit: integer, name: string = optional)",
            ],
        ),
        (
            r#"{"limits":1}"#,
            ["unknown argument `limits`", "did you mean `limit`?"],
        ),
        (
            r#"{"limit":1,"limit":2}"#,
            ["cannot be read", "duplicate key \"limit\""],
        ),
        ("[1]", ["its arguments are a list", "an object is required"]),
        ("{", ["cannot be read", "EOF"]),
    ] {
        let error = bench.registry.prepare(page, arguments).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
        assert_eq!(error.server.as_deref(), Some("s"));
        for part in parts {
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
    let deep = r#"{"a":[{"b":1,"b":2}]}"#;
    assert!(bench.registry.prepare("mcp__s__any", deep).is_err());
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_ARGUMENT_BYTES));
    let error = bench.registry.prepare("mcp__s__any", &long).unwrap_err();
    assert!(
        error.message.contains("over the limit of 4194304"),
        "{}",
        error.message
    );
    let exact = r#"{"n":18446744073709551617,"f":1.50,"e":1e5}"#;
    let reply = bench.call("mcp__s__any", exact).await.unwrap();
    assert!(reply.contains("18446744073709551617"), "{reply}");
    bench
        .registry
        .reload(Policy::new(&ToolFilter::All).unwrap(), false);
    assert!(bench.registry.prepare(page, r#"{"limits":0.5}"#).is_ok());
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_signature_shows_types_choices_and_defaults() {
    let schema = json!({
        "type": "object",
        "$defs": {"Order": {"enum": ["newest", "oldest"]}, "Page": {"type": "object"}},
        "properties": {
            "query": {"type": "string"},
            "page": {"$ref": "#/$defs/Page"},
            "order": {"$ref": "#/$defs/Order", "default": "newest"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
            "size": {"type": ["integer", "null"], "default": 10},
            "other": {"oneOf": [{"const": 1}, {"type": "string"}]},
        },
        "required": ["query"],
    });
    let bench = Bench::one(json!([{"name": "find", "inputSchema": schema}]), json!({})).await;
    let error = bench.registry.prepare("mcp__s__find", "{}").unwrap_err();
    assert_eq!(
        error.message,
        "mcp__s__find on server s was not called: missing argument `query` (string); signature: \
         mcp__s__find(query: string, page: object = optional, order: \"newest\" | \"oldest\" = \
         \"newest\", limit: integer | null = optional, size: integer | null = 10, \
         other: any = optional)"
    );
    bench.downstream.stop().await;
}

/// A server with a result of each sort.
async fn results() -> Bench {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let with_output = |name: &str| json!({"name": name, "outputSchema": schema});
    Bench::one(
        json!([
            {"name": "big"}, {"name": "nan"}, {"name": "failed"}, {"name": "silent"},
            {"name": "null"}, {"name": "list"}, {"name": "empty"}, {"name": "two"},
            with_output("fits"), with_output("differs"), with_output("prose"), with_output("json"),
            {"name": "arr", "outputSchema": {"type": "array", "items": {"type": "integer"}}},
            {"name": "nularr", "outputSchema": {"type": ["null", "array"]}},
            {"name": "wrapped", "outputSchema": {"type": "object", "x-fastmcp-wrap-result": true,
                "properties": {"result": {"type": "integer"}}, "required": ["result"]}},
        ]),
        json!({
            "big": r#"{"structuredContent":{"id":1915883588174806058,"b":99999999999999999999,"f":1.0}}"#,
            "nan": r#"{"structuredContent":{"x":NaN}}"#,
            "failed": r#"{"isError":true,"content":[{"type":"text","text":"no luck"}],"structuredContent":{"c":7}}"#,
            "silent": r#"{"isError":true,"content":[]}"#,
            "null": "null",
            "list": "[]",
            "empty": "{}",
            "two": r#"{"content":[{"type":"text","text":"{\"id\":1}"},{"type":"text","text":"{\"id\":2}"}]}"#,
            "fits": r#"{"content":[],"structuredContent":{"n":1.0}}"#,
            "differs": r#"{"content":[{"type":"text","text":"why"}],"structuredContent":{"n":"x"}}"#,
            "prose": r#"{"content":[{"type":"text","text":"invalid: expects an integer"}]}"#,
            "json": r#"{"content":[{"type":"text","text":"{\"n\": 3}"}]}"#,
            "arr": r#"{"content":[{"type":"text","text":"[1,2]"}],"structuredContent":[1,2]}"#,
            "nularr": r#"{"content":[{"type":"text","text":"null"}],"structuredContent":null}"#,
            "wrapped": r#"{"content":[{"type":"text","text":"{\"result\":5}"}],"structuredContent":{"result":5}}"#,
        }),
    )
    .await
}

#[tokio::test]
async fn results_come_as_values() {
    let bench = results().await;
    for (name, expected) in [
        (
            "big",
            r#"{"id":1915883588174806058,"b":99999999999999999999,"f":1.0}"#,
        ),
        ("empty", "null"),
        ("two", r#"[{"id":1},{"id":2}]"#),
        ("fits", r#"{"n":1.0}"#),
        ("json", r#"{"n":3}"#),
        ("arr", "[1,2]"),
        ("nularr", "null"),
        ("wrapped", "5"),
    ] {
        let reply = bench.call(&format!("mcp__s__{name}"), "{}").await;
        assert_eq!(reply.unwrap(), expected, "{name}");
    }
    bench.downstream.stop().await;
}

#[tokio::test]
async fn results_that_are_none_are_errors_that_name_the_fault() {
    let bench = results().await;
    for (name, kind, part) in [
        ("nan", ToolErrorKind::Protocol, "not valid JSON"),
        ("failed", ToolErrorKind::ToolFailed, "no luck"),
        ("silent", ToolErrorKind::ToolFailed, "no text came"),
        ("null", ToolErrorKind::Protocol, "the result is null"),
        ("list", ToolErrorKind::Protocol, "the result is a list"),
        (
            "differs",
            ToolErrorKind::InvalidResult,
            "member `n` must be an integer, got a string (\"x\"); its text: why",
        ),
        (
            "prose",
            ToolErrorKind::InvalidResult,
            "invalid: expects an integer",
        ),
    ] {
        let name = format!("mcp__s__{name}");
        let error = bench.call(&name, "{}").await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(
            error.message.contains(part) && error.message.contains(&name),
            "{error}"
        );
        assert!(error.message.contains("server s"), "{error}");
    }
    let error = bench.call("mcp__s__failed", "{}").await.unwrap_err();
    assert_eq!(error.data.as_deref(), Some(&json!({"c": 7})));
    bench.downstream.stop().await;
}

#[tokio::test]
async fn sizes_are_counted_as_utf8_and_a_result_over_the_limit_says_how_to_ask_for_less() {
    // The limit of these tests is 1 MiB.
    let text = "é".repeat(400_000);
    let fits = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let text = "é".repeat(600_000);
    let over = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fits"), fits).unwrap();
    std::fs::write(folder.path().join("over"), over).unwrap();
    let mode = "TOOLS = [{'name': 'fits'}, {'name': 'over'}]\n\
                def call(m): raw(m, open(m['params']['name'], 'rb').read())";
    let config = server("s", mode, folder.path());
    let bench = Bench::start(vec![config], ToolFilter::All, folder).await;
    let reply = bench.call("mcp__s__fits", "{}").await.unwrap();
    assert_eq!(reply.len(), 800_002);
    let error = bench.call("mcp__s__over", "{}").await.unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::ResultTooLarge);
    for part in ["1200002 bytes", "limit of 1048576", "ask for less"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    bench.downstream.stop().await;
}

#[tokio::test]
async fn tools_of_a_lost_server_are_not_listed_but_a_call_waits_for_it() {
    let mode = r#"
def call(m):
    if not os.path.exists("died"):
        open("died", "w").close()
        os._exit(3)
    reply(m, text("back"))"#;
    let folder = tempfile::tempdir().unwrap();
    let config = server("s", mode, folder.path());
    let bench = Bench::start(vec![config], ToolFilter::All, folder).await;
    let registry = &bench.registry;
    assert_eq!(registry.list().tools, ["mcp__s__stats", "mcp__s__t"]);
    assert_eq!(
        registry.status(),
        json!({"s": {"connected": true, "tools": 2, "error": null}})
    );
    let error = bench.call("mcp__s__t", "{}").await.unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::ConnectionLost);
    assert!(error.message.contains("exit code 3"), "{error}");
    eventually(|| registry.list().tools.is_empty()).await;
    assert!(registry.list().unavailable["s"].starts_with("reconnecting: "));
    assert!(
        registry
            .hint("mcp__s__new")
            .unwrap()
            .starts_with("server s is reconnecting")
    );
    assert_eq!(registry.signatures().len(), 2);
    assert_eq!(bench.call("mcp__s__t", "{}").await.unwrap(), "\"back\"");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn eight_hundred_tools_are_listed_without_delay() {
    let mode = "TOOLS = [{'name': 'op_%04d' % i, 'description': 'd' * 900, 'inputSchema': \
                {'type': 'object', 'properties': {'id': {'type': 'string'}}}} for i in range(800)]";
    let folder = tempfile::tempdir().unwrap();
    let config = server("s", mode, folder.path());
    let bench = Bench::start(vec![config], ToolFilter::All, folder).await;
    assert_eq!(bench.registry.list().tools.len(), 800);
    for _ in 0..20 {
        bench
            .registry
            .prepare("mcp__s__op_0799", r#"{"id":"x"}"#)
            .unwrap();
    }
    assert_eq!(bench.downstream.servers()[0].state.calls, 0);
    bench.downstream.stop().await;
}
