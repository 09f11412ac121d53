//! Keeps one server connected: connect, list, serve, lose, wait, again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ptc_protocol::status::ServerState;
use ptc_protocol::text::steers;
use rmcp::service::{Peer, RoleClient};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::backoff::Backoff;
use super::carrier::Carrier;
use super::connection::{self, HandshakeError, Plan, Session, Setup, Side};
use super::ladder::{Ladder, Spoken, pinned_wrongly};
use super::link::Link;
use super::listen;
use super::listing::{self, ListError, Listing};
use super::process::PATIENCE;
use super::result::middle_cut;
use super::server::{Live, Server};
use super::spawn::Spawner;
use super::stderr::Tail;
use crate::config::Transport;

/// How long a server whose connection is of no use gets for each step of its end.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between the news that tools have changed and the listing.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest such pause, for a server that never stops saying so.
const LONGEST_SETTLE: Duration = Duration::from_secs(10);
/// After this long without such news the pause is short again.
const CALM: Duration = Duration::from_secs(30);
/// Lines of stderr that an error shows.
const SHOWN_LINES: usize = 3;
/// Longest reason, in characters: a server may have written it.
const MAX_WHY_CHARS: usize = 600;

/// One server's task.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) server: Arc<Server>,
    pub(super) spawner: Spawner,
    pub(super) options: Arc<Options>,
    /// Size of one result, in bytes.
    pub(super) max_result_bytes: usize,
    pub(super) stop: CancellationToken,
}

/// How one connection, or the attempt at one, ended.
enum End {
    /// The supervisor is told to stop; everything is gone.
    Stopped,
    /// The operator wants a new connection.
    Restart,
    /// It may be tried again.
    Lost { why: String, up: Duration },
    /// Trying again would end in the same way.
    ForGood { why: String },
}

/// How a meeting with a server ended.
enum Missed {
    /// The two did not agree on how to talk.
    Greeting(HandshakeError),
    Ended(End),
}

impl Supervisor {
    /// Works until told to stop. When it returns, no process is left.
    pub(super) async fn run(self) {
        if !self.server.config.enabled {
            return;
        }
        let mut backoff = Backoff::default();
        let mut first = true;
        loop {
            if self.stop.is_cancelled() {
                break;
            }
            let end = match self.plan() {
                Ok(plan) => self.live(plan, backoff, first).await,
                Err(why) => End::ForGood { why },
            };
            first = false;
            let restarted = match end {
                End::Stopped => break,
                End::Restart => true,
                End::ForGood { why } => {
                    tracing::warn!(server = %self.server.config.name, %why, "server failed");
                    self.server.failed(why);
                    tokio::select! {
                        () = self.server.restart.notified() => true,
                        () = self.stop.cancelled() => break,
                    }
                }
                End::Lost { why, up } => {
                    backoff.failed(up);
                    let Some(restarted) = self.wait(why, backoff).await else {
                        break;
                    };
                    restarted
                }
            };
            if restarted {
                backoff = Backoff::default();
            }
        }
        // Calls that still wait for this server need not wait any longer.
        self.server.failed("it is stopped".to_owned());
    }

    /// How to connect, or why that cannot be.
    fn plan(&self) -> Result<Plan, String> {
        let config = &self.server.config;
        self.options
            .plan(config, self.server.project().map(AsRef::as_ref))
            .map_err(|error| (self.options.mask)(&error.to_string()))
    }

    /// Pauses. `None` when told to stop; true when the operator wants a fresh start.
    async fn wait(&self, why: String, backoff: Backoff) -> Option<bool> {
        let mut chance = [0; 1];
        // Without randomness the pause is merely the longest.
        let _ = getrandom::fill(&mut chance);
        let pause = backoff.pause(chance.first().copied().unwrap_or_default());
        tracing::warn!(
            server = %self.server.config.name,
            %why,
            attempt = backoff.attempt(),
            ?pause,
            "server is not connected"
        );
        self.server.down(why, backoff.attempt(), pause);
        let woken = async {
            tokio::time::sleep(backoff.least()).await;
            self.server.wake.notified().await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => Some(false),
            () = woken => Some(false),
            () = self.server.restart.notified() => Some(true),
            () = self.stop.cancelled() => None,
        }
    }

    /// One connection, from its start to its end; a second try in the other era may be part of it.
    async fn live(&self, plan: Plan, backoff: Backoff, first: bool) -> End {
        let config = &self.server.config;
        let limit = backoff.start_limit(config.start_timeout);
        let mut ladder = Ladder::new(config.protocol, &config.transport, self.server.spoken());
        let mut before: Option<String> = None;
        loop {
            let tail = Tail::default();
            self.server.starting(first, plan.clone(), tail.clone());
            if let Some(before) = &before {
                let opener = ladder.now.opener();
                self.server
                    .trying_otherwise(format!("{before}; trying {opener}"));
            }
            let setup = self.setup(tail.clone());
            let started = tokio::select! {
                started = connection::start(plan.clone(), ladder.now, setup) => started,
                () = self.stop.cancelled() => return End::Stopped,
            };
            let started = match started {
                Ok(started) => started,
                Err(error) => {
                    let why = (self.options.mask)(&error.to_string());
                    return if error.is_transient() {
                        End::Lost {
                            why,
                            up: Duration::ZERO,
                        }
                    } else {
                        End::ForGood { why }
                    };
                }
            };
            self.server.has_process(started.side.pid());
            let (side, link) = (started.side, started.link);
            let error = match self
                .meet(started.carrier, ladder, &link, &tail, limit)
                .await
            {
                Missed::Ended(end) => {
                    self.finish(side, &end).await;
                    return end;
                }
                Missed::Greeting(error) => error,
            };
            let why = self.said(&error, &link, &tail);
            let Some(next) = ladder.after(&error) else {
                let remedy = pinned_wrongly(config.protocol, &error);
                let why = remedy.map_or(why.clone(), |remedy| format!("{why}; {remedy}"));
                let end = not_met(before, why, error.is_for_good() || remedy.is_some());
                self.finish(side, &end).await;
                return end;
            };
            side.end(SHORT_PATIENCE).await;
            (ladder, before) = (next, Some(why));
        }
    }

    /// From the handshake to the end of the connection.
    async fn meet(
        &self,
        carrier: Carrier,
        ladder: Ladder,
        link: &Arc<Link>,
        tail: &Tail,
        limit: Duration,
    ) -> Missed {
        let reached = tokio::select! {
            reached = self.begin(carrier, ladder, link, tail, limit) => reached,
            () = self.server.restart.notified() => Err(Missed::Ended(End::Restart)),
            () = self.stop.cancelled() => Err(Missed::Ended(End::Stopped)),
        };
        match reached {
            Ok((session, listing)) => {
                Missed::Ended(self.serve(session, listing, ladder.now, link, tail).await)
            }
            Err(missed) => missed,
        }
    }

    /// The handshake and the first list.
    async fn begin(
        &self,
        carrier: Carrier,
        ladder: Ladder,
        link: &Arc<Link>,
        tail: &Tail,
        limit: Duration,
    ) -> Result<(Session, Listing), Missed> {
        let spoken = ladder.now;
        let session = connection::shake_hands(carrier, spoken, link, ladder.limit(limit))
            .await
            .map_err(Missed::Greeting)?;
        let peer = session.peer();
        let listed = tokio::select! {
            listed = listing::list(&peer, limit, self.repeats(spoken)) => listed,
            () = link.ended.cancelled() => Err(ListError::Lost),
        };
        match listed {
            Ok(listing) => Ok((session, listing)),
            Err(ListError::Lost) if link.ended.is_cancelled() => {
                let how = format!("{} before its tools were known", link.how());
                Err(Missed::Ended(self.lost(&how, tail, Duration::ZERO)))
            }
            Err(error) => Err(Missed::Ended(self.lost(
                &error.to_string(),
                tail,
                Duration::ZERO,
            ))),
        }
    }

    /// Whether arguments may have to be repeated in headers.
    fn repeats(&self, spoken: Spoken) -> bool {
        self.is_http() && spoken == Spoken::Modern
    }

    fn is_http(&self) -> bool {
        matches!(self.server.config.transport, Transport::Http { .. })
    }

    /// Longest message that is read: text and structured copies of a result come together.
    fn cap(&self) -> usize {
        self.max_result_bytes
            .saturating_mul(2)
            .saturating_add(1024 * 1024)
    }

    fn setup(&self, tail: Tail) -> Setup<'_> {
        Setup {
            spawner: &self.spawner,
            cap: self.cap(),
            log: self.options.log_dir.join(self.server.log_name()),
            mask: Arc::clone(&self.options.mask),
            settled: Arc::clone(&self.options.settled),
            tail,
            project: self.server.project().cloned(),
        }
    }

    /// Serves until the connection ends, or is ended.
    async fn serve(
        &self,
        mut session: Session,
        listing: Listing,
        spoken: Spoken,
        link: &Arc<Link>,
        tail: &Tail,
    ) -> End {
        let since = Instant::now();
        let peer = session.peer();
        let live = Live {
            peer: peer.clone(),
            link: Arc::clone(link),
            tail: tail.clone(),
            spoken,
            over_http: self.is_http(),
            cap: self.cap(),
        };
        tracing::info!(
            server = %self.server.config.name,
            tools = listing.tools.len(),
            "server is ready"
        );
        self.server.ready(live, listing.tools.into(), listing.notes);
        let end = tokio::select! {
            () = link.ended.cancelled() => {
                self.lost(&link.how(), tail, since.elapsed())
            }
            () = self.follow_changes(&peer, link, spoken) => {
                self.lost("its session ended", tail, since.elapsed())
            }
            () = listen::follow(&peer, link), if spoken == Spoken::Modern => End::Restart,
            () = self.server.restart.notified() => End::Restart,
            () = self.stop.cancelled() => End::Stopped,
        };
        if let End::Lost { why, .. } = &end {
            // Whoever was told of the loss must find it in the state, too.
            self.server.losing(why.clone());
        }
        // Closes stdin, which is the first step of an orderly end. A failed
        // join means that the session's task is gone already.
        let _ = session.running.close_with_timeout(SHORT_PATIENCE).await;
        end
    }

    /// Lists the tools again whenever the server says that they have changed,
    /// but not more often than is useful.
    async fn follow_changes(&self, peer: &Peer<RoleClient>, link: &Link, spoken: Spoken) {
        let mut settle = SETTLE;
        let mut last = Instant::now();
        loop {
            link.list_changed.notified().await;
            if last.elapsed() > CALM {
                settle = SETTLE;
            }
            tokio::time::sleep(settle).await;
            settle = (settle * 2).min(LONGEST_SETTLE);
            last = Instant::now();
            // What has been announced until now is answered by this listing.
            tokio::select! {
                biased;
                () = link.list_changed.notified() => {}
                () = std::future::ready(()) => {}
            }
            let limit = self.server.config.start_timeout;
            match listing::list(peer, limit, self.repeats(spoken)).await {
                Ok(listing) => self.server.relisted(listing.tools.into(), listing.notes),
                Err(error) => {
                    let why = (self.options.mask)(&error.to_string());
                    self.server
                        .note(format!("its tools may have changed: {why}"));
                }
            }
        }
    }

    /// Ends what is on the other side.
    async fn finish(&self, side: Side, end: &End) {
        let patience = match end {
            End::Stopped | End::Restart => PATIENCE,
            End::Lost { .. } | End::ForGood { .. } => SHORT_PATIENCE,
        };
        side.end(patience).await;
    }

    /// Why there was no handshake, with what the server said beside it.
    fn said(&self, error: &HandshakeError, link: &Link, tail: &Tail) -> String {
        let said = link
            .last_junk()
            .filter(|_| !error.is_for_good())
            .map_or_else(String::new, |line| match self.server.config.transport {
                Transport::Stdio { .. } => format!("; its stdout: {line}"),
                Transport::Http { .. } | Transport::Sse { .. } => format!("; it sent: {line}"),
            });
        self.words(&format!("{error}{said}"), tail)
    }

    fn lost(&self, how: &str, tail: &Tail, up: Duration) -> End {
        let why = self.words(how, tail);
        End::Lost { why, up }
    }

    fn words(&self, how: &str, tail: &Tail) -> String {
        let how = one_line(&(self.options.mask)(how));
        match tail.text(SHOWN_LINES) {
            Some(text) => format!("{how}; stderr: {}", text.replace('\n', " | ")),
            None => how,
        }
    }
}

/// A text with words of a server in it as one line that steers no terminal, head and tail of it where it is long.
fn one_line(text: &str) -> String {
    let plain = |c| if steers(c) { ' ' } else { c };
    let cut = middle_cut(text, MAX_WHY_CHARS);
    cut.chars().map(plain).collect()
}

/// The end of an attempt whose tries all failed.
fn not_met(before: Option<String>, why: String, for_good: bool) -> End {
    let why = match before {
        Some(before) if differ(&before, &why) => format!("{before}; then {why}"),
        Some(before) => before,
        None => why,
    };
    if for_good {
        End::ForGood { why }
    } else {
        End::Lost {
            why,
            up: Duration::ZERO,
        }
    }
}

/// Whether two tries failed for different reasons, and not for one that is only met twice.
fn differ(first: &str, second: &str) -> bool {
    let greeted = Spoken::Legacy.opener();
    let alike = |text: &str| text.replace(Spoken::Modern.opener(), greeted);
    alike(first) != alike(second)
}

/// Whether a call may wait for a server in this state.
pub(super) fn may_come_back(state: ServerState) -> bool {
    match state {
        ServerState::Connecting | ServerState::Reconnecting | ServerState::Ready => true,
        ServerState::Failed | ServerState::Disabled => false,
    }
}
