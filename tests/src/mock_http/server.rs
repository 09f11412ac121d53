//! What the server does where no script says otherwise.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Body, Mock, Plays, Request, error, event, result};

impl Mock {
    pub(super) fn behave(&self, request: &Request) -> Answer {
        match self.inner.plays {
            Plays::Legacy => self.legacy(request),
            Plays::Modern => modern(request),
            Plays::Sse => self.sse(request),
        }
    }

    fn legacy(&self, request: &Request) -> Answer {
        let session = request.header("mcp-session-id").unwrap_or("").to_owned();
        match request.name() {
            "GET" => Answer::status(405),
            "initialize" => {
                let mut state = self.state();
                state.made += 1;
                let session = format!("session-{}", state.made);
                state.sessions.push(session.clone());
                drop(state);
                Answer::json(200, &result(request, &initialized(request)))
                    .header("Mcp-Session-Id", &session)
            }
            "server/discover" => Answer::json(400, &error(request, -32000, "no session id")),
            _ if !self.state().sessions.contains(&session) => {
                Answer::json(404, &error(request, -32001, "no such session"))
            }
            "DELETE" => {
                self.state().sessions.retain(|known| *known != session);
                Answer::status(200)
            }
            _ if request.message.get("id").is_none() => Answer::status(202),
            _ => Answer::json(200, &plain(request)),
        }
    }

    fn sse(&self, request: &Request) -> Answer {
        if request.method == "GET" {
            return Answer::open(&b": hello\n\nevent: endpoint\ndata: messages?session=1\n\n"[..]);
        }
        if !request.path.starts_with("/messages?") {
            return Answer::status(404);
        }
        if request.name() == "initialize" {
            self.push(&result(request, &initialized(request)));
        } else if request.message.get("id").is_some() {
            self.push(&plain(request));
        }
        Answer::text(202, "text/plain", "Accepted")
    }
}

/// The revision without a handshake.
fn modern(request: &Request) -> Answer {
    let meta = &request.message["params"]["_meta"];
    let revision = &meta["io.modelcontextprotocol/protocolVersion"];
    if request.method != "POST" {
        return Answer::status(405);
    }
    if request.name() == "initialize" {
        return Answer::json(400, &error(request, -32022, "no handshake here"));
    }
    let same = |header: &str, value: &Value| request.header(header) == value.as_str();
    if !same("mcp-protocol-version", revision) || !same("mcp-method", &request.message["method"]) {
        return Answer::json(400, &error(request, -32020, "headers and body differ"));
    }
    match request.name() {
        "server/discover" => Answer::json(
            200,
            &result(
                request,
                &json!({
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "ttlMs": 1000, "cacheScope": "private",
                }),
            ),
        ),
        "subscriptions/listen" => Answer::open(event(&json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {
                "notifications": {"toolsListChanged": true},
                "_meta": {"io.modelcontextprotocol/subscriptionId": request.message["id"]},
            },
        }))),
        _ => {
            let mut answer = plain(request);
            if let Some(result) = answer.get_mut("result") {
                result["resultType"] = json!("complete");
            }
            Answer::json(200, &answer)
        }
    }
}

fn initialized(request: &Request) -> Value {
    json!({
        "protocolVersion": request.message["params"]["protocolVersion"],
        "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "mock", "version": "1"},
    })
}

/// The answer to what is the same in all eras.
fn plain(request: &Request) -> Value {
    let params = &request.message["params"];
    match request.name() {
        "tools/list" => result(request, &json!({"tools": tools()})),
        "tools/call" => {
            let arguments = &params["arguments"];
            if params["name"] == json!("sleep") {
                std::thread::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0)));
            }
            let content = json!([{"type": "text", "text": arguments.to_string()}]);
            result(
                request,
                &json!({"content": content, "structuredContent": arguments}),
            )
        }
        name => error(request, -32601, &format!("no method {name}")),
    }
}

/// The tools that it lists.
pub(super) fn tools() -> Value {
    json!([
        {"name": "echo", "inputSchema": {"type": "object"}},
        {"name": "sleep", "inputSchema": {"type": "object"}},
    ])
}

impl Answer {
    /// A tool result in bytes that no JSON library has touched.
    pub fn raw_result(request: &Request, text: &[u8]) -> Self {
        let mut body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":",
            request.message["id"]
        )
        .into_bytes();
        body.extend_from_slice(text);
        body.push(b'}');
        Self {
            body: Body::Whole(body),
            ..Self::text(200, "application/json", "")
        }
    }

    /// The same as an event.
    pub fn raw_event(request: &Request, text: &[u8]) -> Self {
        let Body::Whole(body) = Self::raw_result(request, text).body else {
            return Self::status(500);
        };
        let piece = [&b"data: "[..], &body, b"\n\n"].concat();
        Self::stream(vec![piece], false)
    }
}
