//! Real servers that misbehave, and what callers then see.

mod calls;
mod life;
mod projects;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ptc_protocol::status::ServerState;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::testing::{eventually, options, server};
use super::*;

struct Bench {
    downstream: Downstream,
    folder: TempDir,
}

impl Bench {
    /// One server called `s` that runs the script with this `MODE`.
    fn new(mode: &str) -> Self {
        Self::with(mode, |_| {})
    }

    fn with(mode: &str, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = server("s", mode, folder.path());
        change(&mut config);
        let downstream = Downstream::start(vec![config], options(folder.path())).unwrap();
        Self { downstream, folder }
    }

    async fn ready(self) -> Self {
        eventually(|| self.state().state == ServerState::Ready).await;
        self
    }

    fn state(&self) -> ptc_protocol::status::ServerStatus {
        self.downstream.servers().remove(0).state
    }

    async fn detail(&self, part: &str) -> String {
        eventually(|| self.state().detail.unwrap_or_default().contains(part)).await;
        self.state().detail.unwrap()
    }

    fn call(&self, tool: &str) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        self.call_for(tool, Duration::from_secs(20))
    }

    fn call_for(
        &self,
        tool: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let (downstream, tool) = (self.downstream.clone(), tool.to_owned());
        async move {
            let cancel = CancellationToken::new();
            downstream
                .call(
                    &View::default(),
                    "s",
                    &tool,
                    Arc::from("{}"),
                    limit,
                    &cancel,
                )
                .await
        }
    }

    async fn stats(&self) -> Value {
        let answer = self.call("stats").await.unwrap();
        structured_of(&answer)
    }

    async fn count(&self, method: &str) -> u64 {
        self.stats().await["counts"][method].as_u64().unwrap_or(0)
    }
}

fn alive(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim().starts_with('Z'))
}

fn structured_of(answer: &Answer) -> Value {
    let text = answer.result["structuredContent"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

fn text_of(answer: &Answer) -> &str {
    answer.result["content"][0]["text"].as_str().unwrap()
}
