//! Takes connections: those of the daemon's own user, each with a time to say what it wants.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How long a connection may take to say its next request whole. One that says nothing, or half a
/// line, is closed then.
const HEAD: Duration = Duration::from_secs(10);
/// Connections that may be open at once without being a session; the next wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 512;
/// First and longest pause after the system refused a connection.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long `status` shows that connections could not be taken.
const SHOWN: Duration = Duration::from_mins(10);

/// Whether the system lacked something for new connections.
#[derive(Clone, Debug, Default)]
pub struct Shortage(Arc<Mutex<Option<(Instant, String)>>>);

impl Shortage {
    /// One sentence while it lasts, and for a while after it.
    pub fn note(&self) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, error) = last.as_ref().filter(|(at, _)| at.elapsed() < SHOWN)?;
        Some(format!(
            "connections could not be taken {} s ago ({error}): close clients, or let ptcd have more \
             (`ulimit -n`, LimitNOFILE)",
            at.elapsed().as_secs()
        ))
    }

    fn mark(&self, error: &io::Error) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), error.to_string()));
    }
}

/// Takes connections until `stop` is cancelled. Those that are there then end by themselves.
pub(super) async fn accept(
    listener: UnixListener,
    routes: Router,
    shortage: Shortage,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let own = rustix::process::geteuid().as_raw();
    let mut pause = PAUSES.0;
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = stop.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = PAUSES.0;
                let routes = Routes {
                    served: is_own(&stream, own),
                    routes: routes.clone(),
                };
                tokio::spawn(converse(stream, routes, place, stop.clone()));
            }
            // The other side gave up while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if pause == PAUSES.0 {
                    tracing::error!(%error, "connections cannot be taken; it is tried again");
                }
                shortage.mark(&error);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = PAUSES.1.min(pause * 2);
            }
        }
    }
}

/// The socket's mode keeps others out; this holds where the mode does not.
fn is_own(stream: &UnixStream, own: u32) -> bool {
    let uid = stream.peer_cred().ok().map(|peer| peer.uid());
    if uid != Some(own) {
        tracing::warn!(?uid, "a connection of another user was refused");
    }
    uid == Some(own)
}

/// What one connection gets.
#[derive(Clone, Debug)]
struct Routes {
    /// Whether it is of the daemon's own user.
    served: bool,
    routes: Router,
}

impl Routes {
    async fn answer(self, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        if self.served {
            return TowerToHyperService::new(self.routes).call(request).await;
        }
        let text = "this daemon serves its own user only\n";
        Ok((StatusCode::FORBIDDEN, text).into_response())
    }
}

/// Serves one connection; its place is free again once it is closed or has become a session.
async fn converse(
    stream: UnixStream,
    routes: Routes,
    place: Option<OwnedSemaphorePermit>,
    stop: CancellationToken,
) {
    let service = service_fn(move |request| routes.clone().answer(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
    drop(place);
}
