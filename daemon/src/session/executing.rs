//! Runs one program for a client, over as many requests as its questions take.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, RequestId};
use rmcp::service::RequestContext;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::apart::CancelWith;
use super::asking::{ByAnswer, ByRequest, NoAsker, can_be_asked};
use super::rounds::{KEPT, Next, Ran, Retry, Running, hash};
use super::tools::{Given, names_tools};
use super::{
    FIRST_CONNECTION, Face, NAMED_CONNECTION, Session, failure, is_modern, progress, render,
    session_span,
};
use crate::engine::{Asker, Progress, Purpose, Request};

impl Session {
    /// Runs a program, or goes on with one whose questions the client has answered.
    pub(super) async fn execute(
        &self,
        given: Given,
        retry: Retry,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let face = self.face();
        if let RequestId::Number(number) = context.id {
            tokio::select! {
                () = context.ct.cancelled() => {}
                () = self.requests.reserve(number, render::largest(&face)) => {}
            }
        }
        let mut running = if retry.is_new() {
            self.begin(given, context).await
        } else {
            match self.rounds.take_up(&retry, &given.text) {
                Ok(running) => running,
                Err(text) => return failure(&text).into(),
            }
        };
        let cancels = CancelWith::new(&context.ct, &running.cancel);
        let reporter = context.meta.get_progress_token().map(|token| {
            let (peer, watched) = (context.peer.clone(), running.progress.clone());
            tokio::spawn(progress::report(
                peer,
                token,
                watched,
                running.cancel.clone(),
            ))
        });
        let asked = loop {
            match running.next().await {
                Next::Ended(ran) => {
                    if let Some(reporter) = &reporter {
                        reporter.abort();
                    }
                    return self.ended(*ran, face).await;
                }
                Next::Asked(asked) if asked.is_empty() => {}
                Next::Asked(asked) => break asked,
            }
        };
        // The client's next request goes on with it; this one is over.
        drop(cancels);
        if let Some(reporter) = reporter {
            reporter.abort();
        }
        match self.rounds.park(running, asked) {
            Ok((state, answer)) => {
                self.forget_later(state);
                answer.into()
            }
            Err(running) => {
                running.cancel.cancel();
                failure("the program was ended: its questions cannot be put to this client").into()
            }
        }
    }

    async fn begin(&self, given: Given, context: &RequestContext<RoleServer>) -> Running {
        let code = given.text;
        let cancel = CancellationToken::new();
        let stop = CancelWith::new(&self.gone, &cancel);
        let waits = CancelWith::new(&context.ct, &cancel);
        if names_tools(&code) {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = self.host.registry.settled(FIRST_CONNECTION) => {}
            }
            tokio::select! {
                () = cancel.cancelled() => {}
                () = self.host.registry.settled_for(&code, NAMED_CONNECTION) => {}
            }
        }
        drop(waits);
        let (progress, watched) = watch::channel(Progress::default());
        let modern = is_modern(context);
        let mut questions = None;
        let asker: Arc<dyn Asker> = match (can_be_asked(context, modern), modern) {
            (false, _) => Arc::new(NoAsker),
            (true, false) => Arc::new(ByRequest::new(context.peer.clone())),
            (true, true) => {
                let (asker, from) = ByAnswer::new();
                questions = Some(from);
                Arc::new(asker)
            }
        };
        let hash = hash(&code);
        let request = Request {
            code,
            caller: self.caller(context),
            purpose: Purpose::program(given.engine),
            asker,
            progress,
            cancel: cancel.clone(),
        };
        let engine = self.host.engine.clone();
        let span = session_span(&self.client.session);
        // Boxed, since a task of its own takes it whole.
        let run = Box::pin(async move { engine.run(request).await }.instrument(span));
        Running {
            code: hash,
            cancel,
            run: tokio::spawn(run),
            questions,
            left: Vec::new(),
            progress: watched,
            _stop: stop,
        }
    }

    async fn ended(&self, ran: Ran, face: Arc<Face>) -> CallToolResponse {
        match ran {
            Ok(Ok(outcome)) => self.render(outcome, face).await.into(),
            Ok(Err(error)) => {
                render::render(crate::engine::refused(&error, face.confinement), &face).into()
            }
            Err(error) => {
                tracing::error!(%error, "a run failed inside the daemon");
                failure("the daemon failed while it ran this program; its log has the reason")
                    .into()
            }
        }
    }

    /// Ends a program whose client does not come back, some time after its questions are answered with no.
    fn forget_later(&self, state: String) {
        let (rounds, gone) = (self.rounds.clone(), self.gone.clone());
        let limit = self.host.engine.parts().approval.limit + KEPT;
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(limit) => {}
                () = gone.cancelled() => {}
            }
            rounds.forget(&state);
        });
    }
}
