//! Keeps a run apart from its session: a task of its own, a token that follows, nobody to ask.

use tokio_util::sync::CancellationToken;

use crate::engine::{Asker, Boxed};

/// Clients of this version cannot be asked.
#[derive(Debug)]
pub(super) struct NoAsker;

impl Asker for NoAsker {
    fn ask(&self, _tool: &str, _question: &str) -> Boxed<'static, Result<(), String>> {
        Box::pin(std::future::ready(Err(
            "this client cannot be asked for approval".to_owned(),
        )))
    }
}

/// Cancels one token when another is cancelled, until dropped.
#[derive(Debug)]
pub(super) struct CancelWith(tokio::task::JoinHandle<()>);

impl CancelWith {
    pub(super) fn new(cause: &CancellationToken, effect: &CancellationToken) -> Self {
        let (cause, effect) = (cause.clone(), effect.clone());
        Self(tokio::spawn(async move {
            cause.cancelled().await;
            effect.cancel();
        }))
    }
}

impl Drop for CancelWith {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the work gave; nothing where it panicked, which the log is told. rmcp answers nothing where
/// a handler panics, so that without this the client would wait for ever.
pub(super) async fn apart<T: Send + 'static>(
    what: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    match tokio::spawn(work).await {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::error!(%error, "{what} failed inside the daemon");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_run_is_its_answer() {
        assert_eq!(apart("a run", async { 7 }).await, Some(7));
        let none = apart::<()>("a run", async { panic!("a fault of the daemon") }).await;
        assert_eq!(none, None);
    }
}
