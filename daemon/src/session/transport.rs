//! JSON-RPC lines of one client, bounded, with the client's own ids on the wire.

use std::time::Duration;

use ptc_protocol::MAX_LINE_BYTES;
use ptc_protocol::envelope::Id;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerResult,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::era::Era;
use super::incoming::{self, Incoming};
use super::layer::Offer;
use super::requests::{Requests, Unread};
use super::writer::{Line, QUEUE, write_lines};

/// Bytes kept of the head of a line that is too long, to find its id in.
const KEPT_HEAD: usize = 64 * 1024;
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// How long a request waits for a place. Answers may be on their way out that a client which sends
/// many requests at once has read already.
const PLACE_PATIENCE: Duration = Duration::from_secs(1);

/// The stream has ended, or its reader has.
#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
pub(super) struct Gone;

/// One client's stream as rmcp wants it.
#[derive(Debug)]
pub(super) struct LineTransport<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Whether the line being read is too long, and only its head is kept.
    skipping: bool,
    /// An answer of this border's own that is still to be queued.
    answer: Option<Vec<u8>>,
    /// A request that waits for a place; nothing is read meanwhile.
    waiting: Option<Waiting>,
    /// Whether a request may wait: not after one that waited in vain.
    patient: bool,
    writer: mpsc::Sender<Line>,
    offer: Offer,
    era: Era,
    requests: Requests,
    gone: CancellationToken,
}

/// What is to be looked at next.
#[derive(Debug)]
enum Next {
    Line(Vec<u8>),
    /// The head of a line that is too long.
    TooLong(Vec<u8>),
    /// A request waited for a place in vain, and its answer is set.
    Refused,
}

#[derive(Debug)]
struct Waiting {
    line: Vec<u8>,
    refusal: Vec<u8>,
    until: Instant,
}

impl<R: AsyncRead + Unpin + Send> LineTransport<R> {
    /// Takes a stream's halves. `gone` is cancelled as soon as either is of no use.
    pub(super) fn new<W>(
        read: R,
        write: W,
        offer: Offer,
        requests: Requests,
        gone: CancellationToken,
    ) -> Self
    where
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (writer, queue) = mpsc::channel(QUEUE);
        tokio::spawn(write_lines(write, queue, gone.clone()));
        Self {
            reader: BufReader::with_capacity(64 * 1024, read),
            line: Vec::new(),
            skipping: false,
            answer: None,
            waiting: None,
            patient: true,
            writer,
            offer,
            era: Era::default(),
            requests,
            gone,
        }
    }

    /// Where lines go that are no answers. It does not keep the stream open.
    pub(super) fn writer(&self) -> mpsc::WeakSender<Line> {
        self.writer.downgrade()
    }

    /// The request that waits for a place, or else the next line. May be dropped at any await.
    async fn next(&mut self) -> Option<Next> {
        if let Some(waiting) = &self.waiting {
            let placed = tokio::select! {
                biased;
                () = self.requests.place() => true,
                () = tokio::time::sleep_until(waiting.until) => false,
            };
            let waiting = self.waiting.take()?;
            if placed {
                return Some(Next::Line(waiting.line));
            }
            self.patient = false;
            self.answer = Some(waiting.refusal);
            return Some(Next::Refused);
        }
        self.next_line().await
    }

    /// The next line without its end. May be dropped at any await: what was read stays in `self`.
    async fn next_line(&mut self) -> Option<Next> {
        loop {
            let available = match self.reader.fill_buf().await {
                Ok([]) | Err(_) => return None,
                Ok(bytes) => bytes,
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(available.len(), |at| at + 1);
            let piece = available.get(..end.unwrap_or(used)).unwrap_or_default();
            if self.line.len() + piece.len() > MAX_LINE_BYTES {
                self.skipping = true;
                self.line.truncate(KEPT_HEAD);
            }
            if !self.skipping {
                self.line.extend_from_slice(piece);
            }
            self.reader.consume(used);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                let skipped = std::mem::take(&mut self.skipping);
                return Some(if skipped {
                    Next::TooLong(line)
                } else {
                    Next::Line(line)
                });
            }
        }
    }

    fn answered(&self, id: &RequestId) -> Option<(Id, Unread)> {
        match id {
            RequestId::Number(number) => self.requests.answered(*number),
            RequestId::String(_) => None,
        }
    }

    /// The notification as a line; `None` when nobody wants it any more.
    fn notification(&self, notification: &ServerNotification) -> Option<Vec<u8>> {
        if let ServerNotification::ProgressNotification(progress) = notification
            && !self.requests.wants(&progress.params.progress_token)
        {
            return None;
        }
        let mut value = serde_json::to_value(notification).ok()?;
        let subscription = value
            .get_mut("params")
            .and_then(|params| params.get_mut("_meta"))
            .and_then(|meta| meta.get_mut(SUBSCRIPTION));
        if let Some(place) = subscription {
            *place = self.requests.id(place.as_i64()?)?.value();
        }
        let mut line = br#"{"jsonrpc":"2.0""#.to_vec();
        for (name, member) in value.as_object()? {
            line.extend_from_slice(format!(",{}:{member}", Value::from(name.as_str())).as_bytes());
        }
        line.push(b'}');
        Some(line)
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleServer> for LineTransport<R> {
    type Error = Gone;

    /// What has to be in order with other messages is done before the future is made: rmcp lets
    /// the futures of several messages run at once.
    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let writer = self.writer.clone();
        let queued = match item {
            JsonRpcMessage::Response(response) => self
                .answered(&response.id)
                .map(|(id, unread)| (Body::Result(Box::new(response.result), id), Some(unread))),
            JsonRpcMessage::Error(error) => error
                .id
                .as_ref()
                .and_then(|id| self.answered(id))
                .map(|(id, unread)| (Body::Error(error.error, id), Some(unread))),
            JsonRpcMessage::Notification(message) => {
                let line = self.notification(&message.notification);
                if matches!(
                    message.notification,
                    ServerNotification::ProgressNotification(_)
                ) {
                    // Queued now or never, so that none comes after its answer or waits in memory.
                    if let Some(bytes) = line {
                        let _ = writer.try_send(whole(bytes, None));
                    }
                    None
                } else {
                    line.map(|line| (Body::Line(line), None))
                }
            }
            JsonRpcMessage::Request(_) if !self.offer.asks || self.era != Era::Legacy => None,
            // The handler's questions have ids of their own, which the client only repeats.
            JsonRpcMessage::Request(question) => serde_json::to_vec(&question)
                .ok()
                .map(|line| (Body::Line(line), None)),
        };
        async move {
            let Some((body, unread)) = queued else {
                return Ok(());
            };
            let bytes = body.into_line().ok_or(Gone)?;
            writer.send(whole(bytes, unread)).await.map_err(|_| Gone)
        }
    }

    /// May be dropped at any await, as rmcp does whenever something else happens.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.answer.is_some() {
                let place = self.writer.reserve().await.ok()?;
                if let Some(answer) = self.answer.take() {
                    place.send(whole(answer, None));
                }
            }
            let gone = self.gone.clone();
            let line = tokio::select! {
                biased;
                () = gone.cancelled() => None,
                line = self.next() => line,
            };
            let Some(line) = line else {
                self.gone.cancel();
                return None;
            };
            let incoming = match &line {
                Next::Line(line) => incoming::read(line, self.offer, &mut self.era, &self.requests),
                Next::TooLong(head) => Incoming::Answer(incoming::too_long(head, MAX_LINE_BYTES)),
                Next::Refused => Incoming::Nothing,
            };
            match (incoming, line) {
                (Incoming::Message(message), _) => {
                    self.patient = true;
                    return Some(*message);
                }
                (Incoming::Answer(line), _) => self.answer = Some(line),
                (Incoming::Full(refusal), Next::Line(line)) if self.patient => {
                    let until = Instant::now() + PLACE_PATIENCE;
                    self.waiting = Some(Waiting {
                        line,
                        refusal,
                        until,
                    });
                }
                (Incoming::Full(refusal), _) => self.answer = Some(refusal),
                (Incoming::Nothing, _) => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.gone.cancel();
        Ok(())
    }
}

fn whole(mut bytes: Vec<u8>, unread: Option<Unread>) -> Line {
    bytes.push(b'\n');
    Line { bytes, unread }
}

/// A message that is still to be written out, which takes long where it is large.
#[derive(Debug)]
enum Body {
    Result(Box<ServerResult>, Id),
    Error(rmcp::ErrorData, Id),
    Line(Vec<u8>),
}

impl Body {
    fn into_line(self) -> Option<Vec<u8>> {
        match self {
            Self::Line(line) => Some(line),
            Self::Error(error, id) => serde_json::to_vec(&error)
                .ok()
                .map(|error| answer(&id, "error", &error)),
            Self::Result(result, id) => result_text(&result, &id)
                .ok()
                .map(|result| answer(&id, "result", &result)),
        }
    }
}

fn result_text(result: &ServerResult, id: &Id) -> Result<Vec<u8>, serde_json::Error> {
    if !matches!(result, ServerResult::SubscriptionsListenResult(_)) {
        return serde_json::to_vec(result);
    }
    let mut value = serde_json::to_value(result)?;
    if let Some(place) = value
        .get_mut("_meta")
        .and_then(|meta| meta.get_mut(SUBSCRIPTION))
    {
        *place = id.value();
    }
    serde_json::to_vec(&value)
}

fn answer(id: &Id, name: &str, text: &[u8]) -> Vec<u8> {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"{name}":"#);
    // With room for the newline, so that megabytes are not moved once more.
    let mut line = Vec::with_capacity(head.len() + text.len() + 2);
    line.extend_from_slice(head.as_bytes());
    line.extend_from_slice(text);
    line.push(b'}');
    line
}

#[cfg(test)]
mod tests {
    use super::super::OFFER;
    use super::*;
    use rmcp::model::{
        CallToolResult, ContentBlock, ProgressNotification, ProgressNotificationParam,
        ProgressToken, SubscriptionsListenResult,
    };
    use serde_json::json;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#;

    fn transport<R: AsyncRead + Unpin + Send>(
        input: R,
    ) -> (LineTransport<R>, mpsc::Receiver<Line>) {
        let (writer, queue) = mpsc::channel(QUEUE);
        let transport = LineTransport {
            reader: BufReader::new(input),
            line: Vec::new(),
            skipping: false,
            answer: None,
            waiting: None,
            patient: true,
            writer,
            offer: OFFER,
            era: Era::default(),
            requests: Requests::default(),
            gone: CancellationToken::new(),
        };
        (transport, queue)
    }

    async fn next(queue: &mut mpsc::Receiver<Line>) -> Value {
        serde_json::from_slice(&queue.recv().await.unwrap().bytes).unwrap()
    }

    fn progress(token: i64, step: f64) -> ServerJsonRpcMessage {
        let token = ProgressToken(RequestId::Number(token));
        let params = ProgressNotificationParam::new(token, step);
        JsonRpcMessage::notification(ServerNotification::ProgressNotification(
            ProgressNotification::new(params),
        ))
    }

    #[tokio::test]
    async fn answers_bear_the_clients_own_ids() {
        let (mut transport, mut queue) = transport(&b""[..]);
        for id in ["\"a\\nb\"", "1.50", "123456789012345678901"] {
            let number = transport
                .requests
                .open(Id::from_json(id).unwrap(), None)
                .unwrap();
            let number = RequestId::Number(number);
            let result = CallToolResult::success(vec![ContentBlock::text("t")]);
            let result = ServerResult::CallToolResult(result);
            transport
                .send(JsonRpcMessage::response(result, number.clone()))
                .await
                .unwrap();
            let line = queue.recv().await.unwrap().bytes;
            let text = String::from_utf8(line).unwrap();
            let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{");
            assert!(text.starts_with(&start) && text.ends_with("}\n"), "{text}");
            let again = SubscriptionsListenResult::complete(number.clone());
            let again = ServerResult::SubscriptionsListenResult(again);
            let repeated = JsonRpcMessage::response(again, number);
            transport.send(repeated).await.unwrap();
            assert!(queue.try_recv().is_err(), "one answer for one request");
        }
    }

    #[tokio::test]
    async fn a_subscription_ends_under_the_clients_id() {
        let (mut transport, mut queue) = transport(&b""[..]);
        let id = Id::from_json("\"sub\"").unwrap();
        let number = RequestId::Number(transport.requests.open(id, None).unwrap());
        let end = SubscriptionsListenResult::complete(number.clone());
        let end = ServerResult::SubscriptionsListenResult(end);
        transport
            .send(JsonRpcMessage::response(end, number))
            .await
            .unwrap();
        let line = next(&mut queue).await;
        assert_eq!(line["id"], "sub");
        assert_eq!(line["result"]["_meta"][SUBSCRIPTION], "sub");
        assert_eq!(line["result"]["resultType"], "complete");
    }

    #[tokio::test]
    async fn progress_ends_with_its_request_and_never_waits() {
        let (mut transport, mut queue) = transport(&b""[..]);
        let id = Id::from_json("1").unwrap();
        let token = Some(ProgressToken(RequestId::Number(7)));
        transport.requests.open(id.clone(), token).unwrap();
        drop(transport.send(progress(7, 1.0)));
        drop(transport.send(progress(8, 1.0)));
        assert_eq!(next(&mut queue).await["params"]["progress"], json!(1.0));
        assert!(queue.try_recv().is_err(), "nobody asked under this token");
        for step in 0..100 {
            transport.send(progress(7, f64::from(step))).await.unwrap();
        }
        while queue.try_recv().is_ok() {}
        transport.requests.cancel(&id);
        transport.send(progress(7, 200.0)).await.unwrap();
        assert!(queue.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_a_moment_for_a_place_and_those_behind_it_do_not() {
        let lists = ["a", "b", "c"]
            .map(|id| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/list"}}"#));
        let input = format!("{INITIALIZE}\n{}\n", lists.join("\n"));
        let (mut transport, mut queue) = transport(input.as_bytes());
        assert!(transport.receive().await.is_some());
        let requests = transport.requests.clone();
        let open = |n: &u32| requests.open(Id::from_json(&n.to_string()).unwrap(), None);
        assert_eq!((1..100).take_while(|n| open(n).is_ok()).count(), 63);
        let freed = tokio::spawn({
            let requests = requests.clone();
            async move {
                tokio::time::sleep(PLACE_PATIENCE / 2).await;
                requests.cancel(&Id::from_json("7").unwrap())
            }
        });
        assert!(transport.receive().await.is_some(), "a place became free");
        assert!(freed.await.unwrap().is_some());
        let start = Instant::now();
        assert!(transport.receive().await.is_none());
        assert_eq!(start.elapsed(), PLACE_PATIENCE);
        for id in ["b", "c"] {
            let answer = next(&mut queue).await;
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!(id), &json!(-31002))
            );
        }
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_answered_with_its_id_and_the_next_is_read() {
        let mut input = br#"{"jsonrpc":"2.0","id":"long","method":"ping","params":{"x":""#.to_vec();
        input.resize(MAX_LINE_BYTES + 10, b'a');
        input.extend_from_slice(b"\"}}\n");
        input.extend_from_slice(INITIALIZE.as_bytes());
        input.push(b'\n');
        let (mut transport, mut queue) = transport(&*input.leak());
        let message = transport.receive().await.unwrap();
        assert!(matches!(message, JsonRpcMessage::Request(_)));
        let answer = next(&mut queue).await;
        assert_eq!(answer["id"], json!("long"));
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains("16777216"), "{text}");
        assert!(transport.receive().await.is_none());
        assert!(transport.gone.is_cancelled());
    }

    #[tokio::test]
    async fn a_line_survives_a_reader_that_is_dropped_in_its_middle() {
        use tokio::io::AsyncWriteExt as _;
        let (mut client, server) = tokio::io::duplex(1024 * 1024);
        let (mut transport, mut queue) = transport(server);
        let piece = vec![b'a'; 512 * 1024];
        client.write_all(br#"{"id":"long","x":""#).await.unwrap();
        for _ in 0..MAX_LINE_BYTES / piece.len() + 2 {
            client.write_all(&piece).await.unwrap();
            let waited = tokio::time::timeout(Duration::from_millis(1), transport.receive()).await;
            assert!(waited.is_err());
        }
        client.write_all(b"\"}\n").await.unwrap();
        client.write_all(INITIALIZE.as_bytes()).await.unwrap();
        client.write_all(b"\n").await.unwrap();
        let message = transport.receive().await.unwrap();
        assert!(matches!(message, JsonRpcMessage::Request(_)));
        let answer = next(&mut queue).await;
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (
                &json!("long"),
                &json!(ptc_protocol::envelope::INVALID_REQUEST)
            )
        );
    }
}
