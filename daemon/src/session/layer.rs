//! Carries an MCP handler on a client's stream: bounded lines, the client's ids, eras, and an answer whatever happens.

use std::time::Duration;

use rmcp::ServerHandler;
use rmcp::service::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::WeakSender;
use tokio_util::sync::CancellationToken;

use super::guard::Guarded;
use super::requests::Requests;
use super::transport::LineTransport;
use super::writer::Line;

/// How long a session that is ended waits for its last answers to be read.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a handler does for clients, as far as the lines have to know.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Requests that are served; others are answered here. Editors probe for more at every start,
    /// and rmcp would write each probe to the log.
    pub methods: &'static [&'static str],
    /// Whether a client with a handshake may be asked. Otherwise what looks like its answer is dropped.
    pub asks: bool,
}

/// The lines below a handler, for one that must know its place among them.
#[derive(Clone, Debug)]
pub struct Lines {
    pub(super) requests: Requests,
    /// Cancelled when subscriptions are to end, a moment before the rest.
    pub(super) ending: CancellationToken,
    /// Cancelled as soon as the client is gone.
    pub(super) gone: CancellationToken,
    /// Where lines of our own go.
    pub(super) writer: WeakSender<Line>,
}

/// Serves what `handler` makes on a stream, until it ends or `end` is cancelled.
pub async fn carry<S, H>(
    stream: S,
    offer: Offer,
    end: CancellationToken,
    handler: impl FnOnce(Lines) -> H,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
    H: ServerHandler,
{
    let (read, write) = tokio::io::split(stream);
    let gone = CancellationToken::new();
    let requests = Requests::default();
    let transport = LineTransport::new(read, write, offer, requests.clone(), gone.clone());
    let writer = transport.writer();
    let handler = Guarded::new(handler(Lines {
        requests: requests.clone(),
        ending: end.clone(),
        gone: gone.clone(),
        writer,
    }));
    let served = async {
        match handler.serve_with_ct(transport, gone.clone()).await {
            Ok(running) => {
                let _ = running.waiting().await;
            }
            Err(error) => tracing::debug!(%error, "a client left before it was initialized"),
        }
        gone.cancel();
    };
    let ended = async {
        tokio::select! {
            () = end.cancelled() => {}
            () = gone.cancelled() => return,
        }
        // Subscriptions end with an answer, which is on its way now.
        let _ = tokio::time::timeout(FAREWELL, requests.idle()).await;
        gone.cancel();
    };
    tokio::join!(served, ended);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerRequest,
    };
    use rmcp::service::RequestContext;
    use rmcp::{ErrorData, RoleServer};
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    const ASKING: Offer = Offer {
        methods: &["initialize", "tools/list", "tools/call"],
        asks: true,
    };

    /// Asks the client, and answers with its answer.
    #[derive(Debug)]
    struct Curious;

    impl ServerHandler for Curious {
        async fn call_tool(
            &self,
            _: CallToolRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            let question: ServerRequest =
                serde_json::from_value(json!({"method": "roots/list"})).unwrap();
            let answer = context.peer.send_request(question).await;
            let text = match answer {
                Ok(answer) => serde_json::to_string(&answer).unwrap(),
                Err(error) => error.to_string(),
            };
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
        }
    }

    struct Client<R, W> {
        lines: tokio::io::Lines<BufReader<R>>,
        write: W,
    }

    impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Client<R, W> {
        async fn send(&mut self, message: Value) {
            let line = format!("{message}\n");
            self.write.write_all(line.as_bytes()).await.unwrap();
        }

        async fn next(&mut self) -> Value {
            let line = self.lines.next_line().await.unwrap().unwrap();
            serde_json::from_str(&line).unwrap()
        }
    }

    fn client(offer: Offer) -> Client<impl AsyncRead, impl AsyncWrite> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(carry(theirs, offer, CancellationToken::new(), |_| Curious));
        let (read, write) = tokio::io::split(ours);
        Client {
            lines: BufReader::new(read).lines(),
            write,
        }
    }

    fn request(id: u8, method: &str, params: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    fn hello() -> Value {
        let info = json!({"name": "t", "version": "0"});
        request(
            1,
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": info}),
        )
    }

    #[tokio::test]
    async fn a_handler_that_asks_gets_the_clients_answer() {
        let mut client = client(ASKING);
        client.send(hello()).await;
        client.next().await;
        client
            .send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
            .send(request(2, "tools/call", &json!({"name": "x"})))
            .await;
        let question = client.next().await;
        assert_eq!(question["method"], "roots/list", "{question}");
        let roots = json!({"roots": [{"uri": "file:///a"}]});
        client
            .send(json!({"jsonrpc": "2.0", "id": question["id"], "result": roots}))
            .await;
        let answer = client.next().await;
        assert_eq!(answer["id"], 2);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("file:///a"), "{text}");
    }

    #[tokio::test]
    async fn nothing_is_asked_where_the_offer_does_not_say_so() {
        let mut client = client(Offer {
            asks: false,
            ..ASKING
        });
        client.send(hello()).await;
        client.next().await;
        client
            .send(request(2, "tools/call", &json!({"name": "x"})))
            .await;
        // The next line is the answer to this and no question.
        client.send(request(3, "tools/list", &json!({}))).await;
        let answer = client.next().await;
        assert_eq!(answer["id"], 3, "{answer}");
    }

    #[tokio::test]
    async fn what_is_not_offered_is_not_found() {
        let mut client = client(ASKING);
        client.send(hello()).await;
        client.next().await;
        client.send(request(2, "prompts/list", &json!({}))).await;
        let answer = client.next().await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
}
