//! What the scripted server does when it speaks the revision without a handshake.

use serde_json::{Value, json};

use super::Server;
use super::options::Modern;

/// The revision.
const REVISION: &str = "2026-07-28";

impl Server {
    /// Does what is special to the revision; true when the request is dealt with.
    pub(super) fn take_modern(
        &self,
        how: Modern,
        method: &str,
        id: &Value,
        params: &Value,
    ) -> bool {
        let refuse = |code: i64, message: &str, data: Value| {
            self.send(&json!({
                "jsonrpc": "2.0", "id": id,
                "error": {"code": code, "message": message, "data": data},
            }));
            true
        };
        if method == "initialize" {
            if how == Modern::Ends {
                std::process::exit(4);
            }
            self.state().spoilt = true;
            return refuse(
                -32022,
                "no handshake here",
                json!({"supported": [REVISION]}),
            );
        }
        if self.state().spoilt {
            return refuse(-32600, "this connection is spoilt", Value::Null);
        }
        let meta = &params["_meta"];
        let whole = meta["io.modelcontextprotocol/protocolVersion"] == json!(REVISION)
            && meta["io.modelcontextprotocol/clientCapabilities"].is_object()
            && meta["io.modelcontextprotocol/clientInfo"]["name"] == json!("ptcd");
        if !whole {
            return refuse(-32602, "the request says not what it is", meta.clone());
        }
        match method {
            "server/discover" => {
                self.answer(
                    id,
                    &json!({
                        "supportedVersions": [REVISION],
                        "capabilities": {"tools": {"listChanged": true}},
                        "ttlMs": 1000, "cacheScope": "private",
                    }),
                );
                true
            }
            "subscriptions/listen" => {
                self.state().listening.push(id.clone());
                self.notify("notifications/subscriptions/acknowledged", id);
                true
            }
            "tools/call" if params["name"] == json!("echo") => {
                let listening = self.state().listening.clone();
                for id in &listening {
                    self.notify("notifications/tools/list_changed", id);
                }
                false
            }
            _ => false,
        }
    }

    fn notify(&self, method: &str, subscription: &Value) {
        self.send(&json!({
            "jsonrpc": "2.0", "method": method,
            "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}},
        }));
    }
}
