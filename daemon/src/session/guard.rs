//! Stands between rmcp and the handler: a panic becomes an answer, a result says whose it is.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{
    ClientNotification, ClientRequest, Implementation, MetaObject, ProtocolVersion, ResultType,
    ServerConfig, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::apart::apart;

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const FAILED: &str = "the daemon failed while it served this request; its log has the reason";

/// A handler whose every request is answered.
#[derive(Clone, Debug)]
pub(super) struct Guarded<H> {
    handler: Arc<H>,
    /// Who the server is, as every result without a handshake says.
    info: Implementation,
}

impl<H: ServerHandler> Guarded<H> {
    pub(super) fn new(handler: H) -> Self {
        let info = ServerHandler::get_info(&handler).server_info;
        let handler = Arc::new(handler);
        Self { handler, info }
    }
}

impl<H: ServerHandler + Send + Sync + 'static> Service<RoleServer> for Guarded<H> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let modern = context
            .protocol_version()
            .is_some_and(|version| !version.has_initialize());
        let handler = Arc::clone(&self.handler);
        let served = async move { Service::handle_request(&*handler, request, context).await };
        let Some(answer) = apart("a request", served).await else {
            return Err(ErrorData::internal_error(FAILED, None));
        };
        let mut result = answer?;
        if modern {
            sign(&mut result, &self.info);
        }
        Ok(result)
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Service::handle_notification(&*self.handler, notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        ServerHandler::get_info(&*self.handler)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        ServerHandler::supported_protocol_versions(&*self.handler)
    }
}

/// Says of a result what rmcp leaves to each handler: that it is one, and whose.
fn sign(result: &mut ServerResult, info: &Implementation) {
    let (kind, meta) = match result {
        ServerResult::ListToolsResult(result) => (&mut result.result_type, &mut result.meta),
        ServerResult::CallToolResult(result) => (&mut result.result_type, &mut result.meta),
        ServerResult::CompleteResult(result) => (&mut result.result_type, &mut result.meta),
        ServerResult::GetPromptResult(result) => (&mut result.result_type, &mut result.meta),
        ServerResult::ListPromptsResult(result) => (&mut result.result_type, &mut result.meta),
        ServerResult::ListResourcesResult(result) => (&mut result.result_type, &mut result.meta),
        ServerResult::ListResourceTemplatesResult(result) => {
            (&mut result.result_type, &mut result.meta)
        }
        ServerResult::ReadResourceResult(result) => (&mut result.result_type, &mut result.meta),
        // These say what they are by their type.
        ServerResult::DiscoverResult(result) => (&mut None, &mut result.meta),
        ServerResult::InputRequiredResult(result) => (&mut None, &mut result.meta),
        _ => return,
    };
    kind.get_or_insert(ResultType::COMPLETE);
    if let Ok(info) = serde_json::to_value(info) {
        meta.get_or_insert_with(MetaObject::new)
            .insert(SERVER_INFO.to_owned(), info);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::OFFER;
    use rmcp::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult,
        PaginatedRequestParams,
    };
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio_util::sync::CancellationToken;

    /// Panics in one method, says little in another, and answers others.
    #[derive(Debug)]
    struct Brittle;

    impl ServerHandler for Brittle {
        async fn list_tools(
            &self,
            _: Option<PaginatedRequestParams>,
            _: RequestContext<RoleServer>,
        ) -> Result<ListToolsResult, ErrorData> {
            panic!("on purpose");
        }

        async fn call_tool(
            &self,
            _: CallToolRequestParams,
            _: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            let mut result = CallToolResult::success(Vec::new());
            result.result_type = None;
            Ok(result.into())
        }
    }

    /// Answers to requests of the revision without a handshake.
    async fn answers(requests: &[(i64, &str, Value)]) -> Vec<Value> {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let end = CancellationToken::new();
        tokio::spawn(crate::session::carry(server, OFFER, end, |_| Brittle));
        let (read, mut write) = tokio::io::split(client);
        let mut lines = BufReader::new(read).lines();
        let mut answers = Vec::new();
        for (id, method, params) in requests {
            let mut params = params.clone();
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            write
                .write_all(format!("{line}\n").as_bytes())
                .await
                .unwrap();
            let answer = lines.next_line().await.unwrap().unwrap();
            answers.push(serde_json::from_str(&answer).unwrap());
        }
        answers
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_the_session_goes_on() {
        let requests = [
            (1, "tools/list", json!({})),
            (2, "no/such", json!({})),
            (3, "tools/list", json!({})),
        ];
        let codes: Vec<Value> = answers(&requests)
            .await
            .into_iter()
            .map(|answer| json!([answer["id"], answer["error"]["code"]]))
            .collect();
        assert_eq!(
            codes,
            [json!([1, -32603]), json!([2, -32601]), json!([3, -32603])]
        );
    }

    #[tokio::test]
    async fn a_result_says_what_it_is_and_whose_where_its_handler_does_not() {
        let called = answers(&[(1, "tools/call", json!({"name": "x"}))]).await;
        let result = &called[0]["result"];
        assert_eq!(result["resultType"], "complete", "{called:?}");
        assert!(
            result["_meta"][SERVER_INFO]["name"].is_string(),
            "{called:?}"
        );
    }
}
