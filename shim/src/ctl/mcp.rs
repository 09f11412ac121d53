//! An MCP session of the command line, like any client's.

use std::time::Duration;

use anyhow::{Context as _, bail};
use ptc_protocol::BUILD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::Context;
use crate::connect::Stream;
use crate::handshake::{hello, new_session, shake};
use crate::lines::Frame;

/// How long the daemon may take to open the session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer is waited for after Ctrl-C.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// The id of the one call.
const CALL: u64 = 2;

/// A stream on which MCP is spoken.
pub(super) struct Session(Stream);

impl Session {
    /// Connects to the daemon and opens a session there.
    pub(super) async fn open(context: &Context) -> anyhow::Result<Self> {
        let mut session = Self(context.connect().await?.upgrade().await?);
        let hello = hello(&context.places, new_session()?, Some("ptcctl".to_owned()));
        shake(&mut session.0, &hello, |name| std::env::var_os(name)).await?;
        timeout(OPEN_TIMEOUT, session.initialize())
            .await
            .context("the daemon does not open a session")??;
        Ok(session)
    }

    async fn initialize(&mut self) -> anyhow::Result<()> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "ptcctl", "version": BUILD },
        });
        self.request(1, "initialize", &params).await?;
        self.answer(1).await?;
        self.notify("notifications/initialized", &json!({})).await
    }

    /// A program's answer; `None` after Ctrl-C, when the daemon has been told and has nothing to say.
    pub(super) async fn execute(
        &mut self,
        code: &str,
        engine: Option<&str>,
    ) -> anyhow::Result<Option<Value>> {
        let mut arguments = json!({ "code": code });
        if let Some(engine) = engine {
            arguments["engine"] = json!(engine);
        }
        let params = json!({ "name": "execute_program", "arguments": arguments });
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut term = signal(SignalKind::terminate())?;
        self.request(CALL, "tools/call", &params).await?;
        // The program's own time limit, which the daemon keeps, bounds this wait.
        tokio::select! {
            answer = self.answer(CALL) => return answer.map(Some),
            _ = interrupt.recv() => {}
            _ = term.recv() => {}
        }
        let params = json!({ "requestId": CALL, "reason": "interrupted" });
        self.notify("notifications/cancelled", &params).await?;
        match timeout(CANCEL_TIMEOUT, self.answer(CALL)).await {
            Ok(answer) => answer.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The result of a request; what the daemon says in between is passed over.
    async fn answer(&mut self, id: u64) -> anyhow::Result<Value> {
        loop {
            let line = match self.0.lines.next().await? {
                Some(Frame::Line(line)) => line,
                Some(Frame::TooLong(excerpt)) => {
                    bail!(
                        "the daemon's answer of {} bytes is too long",
                        excerpt.length
                    )
                }
                None => bail!("the daemon ended the connection"),
            };
            let mut message: Value =
                serde_json::from_slice(&line).context("the daemon's answer cannot be read")?;
            if message.get("id") != Some(&json!(id)) || message.get("method").is_some() {
                continue;
            }
            if let Some(error) = message.get("error") {
                let text = error.get("message").and_then(Value::as_str);
                bail!(
                    "the daemon answered: {}",
                    text.unwrap_or("an error without a message")
                );
            }
            return Ok(message
                .get_mut("result")
                .map(Value::take)
                .unwrap_or_default());
        }
    }

    async fn request(&mut self, id: u64, method: &str, params: &Value) -> anyhow::Result<()> {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&request).await
    }

    async fn notify(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await
    }

    async fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        let line = format!("{message}\n");
        timeout(OPEN_TIMEOUT, self.0.writer.write_all(line.as_bytes()))
            .await
            .context("the daemon does not read")??;
        Ok(())
    }
}
