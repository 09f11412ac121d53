//! Carries JSON-RPC lines both ways between one client and the daemon.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ptc_protocol::paths::{Environment, Places, Sources};
use ptc_protocol::run::RequestCalls;
use ptc_protocol::{MAX_LINE_BYTES, route};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use crate::connect::{ConnectError, Stream, connect};
use crate::handshake::{HandshakeError, hello, new_session, shake};
use crate::launch::{Ask, LaunchError, Progress, launch};
use crate::lines::Frame;
use crate::message::Id;
use crate::options::Options;
use crate::replace::{Found, replaced};
use crate::resume::{Action, Resume};
use crate::said;
use crate::stdio::{self, Stdio};

/// Bytes queued for the client above which nothing more is read.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;
/// How long the last lines may take to be written at the end.
const LAST_WRITE: Duration = Duration::from_secs(30);

/// Why the shim could not serve at all.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The session has no id.
    #[error(transparent)]
    Session(#[from] HandshakeError),
    /// A thread or a signal handler could not be had.
    #[error("cannot set up the shim: {0}")]
    System(#[from] io::Error),
}

/// Serves the client on stdin and stdout until it is gone or told to end.
pub async fn serve(options: Options) -> Result<(), ForwardError> {
    let (links, events) = mpsc::channel(4);
    let sources = Sources {
        config: options.config,
        socket: options.socket,
        environment: Environment::of_process(),
    };
    // A place that cannot be worked out is told to the client like a daemon that is not there.
    let dialler = Dialler {
        places: Places::find(&sources).map_err(|error| error.to_string()),
        session: new_session()?,
        client: options.client,
        asked: Arc::default(),
        links,
    };
    let mut forwarder = Forwarder {
        resume: Resume::new(options.eof_wait),
        dialler,
        events,
        stream: None,
        to_client: VecDeque::new(),
        to_daemon: VecDeque::new(),
        sent: 0,
        input_open: true,
        finished: false,
        told: String::new(),
    };
    forwarder.remember();
    let term = signal(SignalKind::terminate())?;
    let interrupt = signal(SignalKind::interrupt())?;
    forwarder.run(stdio::open()?, term, interrupt).await;
    Ok(())
}

/// What a try to reach the daemon comes to.
#[derive(Debug)]
enum Event {
    /// The try goes on, and waits for this.
    Waiting(String),
    Up(Box<Stream>),
    Refused(String),
    Failed(String),
    /// Trying again is of no use until someone acts.
    Blocked(String),
    /// What became of a question about an earlier daemon's calls.
    Calls(Id, Result<RequestCalls, String>),
}

#[derive(Clone, Debug)]
struct Dialler {
    places: Result<Places, String>,
    session: ptc_protocol::SessionId,
    client: Option<String>,
    /// Whether a daemon has been asked to make room for a newer one.
    asked: Arc<AtomicBool>,
    links: mpsc::Sender<Event>,
}

impl Dialler {
    async fn dial(self, may_launch: bool) {
        let event = match self.try_dial(may_launch).await {
            Ok(stream) => Event::Up(Box::new(stream)),
            Err(event) => event,
        };
        // The loop is gone when the client is; the stream closes with it.
        let _ = self.links.send(event).await;
    }

    async fn try_dial(&self, may_launch: bool) -> Result<Stream, Event> {
        let reached = self.reach(may_launch).await;
        let found = match &reached {
            Ok((_, build)) => Found::Serving(build),
            Err(Event::Refused(_)) => Found::Refusing,
            Err(_) => return reached.map(|(stream, _)| stream),
        };
        // Once in a shim's life, so that two installations do not end each other's daemons for ever.
        if let Ok(places) = &self.places
            && !self.asked.swap(true, Ordering::Relaxed)
            && replaced(places, found).await
        {
            drop(reached);
            return self.reach(true).await.map(|(stream, _)| stream);
        }
        reached.map(|(stream, _)| stream)
    }

    /// A stream to a daemon after the handshake, and the daemon's build.
    async fn reach(&self, may_launch: bool) -> Result<(Stream, String), Event> {
        fn failed(error: impl std::fmt::Display) -> Event {
            Event::Failed(error.to_string())
        }
        let places = self.places.clone().map_err(Event::Blocked)?;
        let places = &places;
        let peer = if may_launch {
            let tell = |progress| {
                if let Progress::Waiting(text) = progress {
                    // One that finds no room in the queue says nothing new.
                    let _ = self.links.try_send(Event::Waiting(text));
                }
            };
            launch(places, Ask::Once, tell)
                .await
                .map_err(|error| launch_failed(&error))?
        } else {
            connect(places).await.map_err(failed)?
        };
        let mut stream = peer.upgrade().await.map_err(failed)?;
        let hello = hello(places, self.session, self.client.clone());
        let lookup = |name: &str| std::env::var_os(name);
        match shake(&mut stream, &hello, lookup).await {
            Ok(build) => Ok((stream, build)),
            Err(error) if error.is_refusal() => Err(Event::Refused(error.to_string())),
            Err(error) => Err(failed(error)),
        }
    }
}

fn launch_failed(error: &LaunchError) -> Event {
    let reason = error.to_string();
    if error.is_permanent() {
        Event::Blocked(reason)
    } else {
        Event::Failed(reason)
    }
}

impl Dialler {
    /// Asks which calls a request made that an earlier daemon had.
    async fn ask(self, id: Id) {
        let calls = self.try_ask(&id).await;
        // The loop is gone when the client is.
        let _ = self.links.send(Event::Calls(id, calls)).await;
    }

    async fn try_ask(&self, id: &Id) -> Result<RequestCalls, String> {
        let places = self.places.as_ref().map_err(Clone::clone)?;
        let path = route::calls(self.session, &id.to_string());
        let asked = async { connect(places).await?.get(&path).await };
        asked.await.map_err(|error: ConnectError| error.to_string())
    }
}

#[derive(Debug)]
struct Forwarder {
    resume: Resume,
    dialler: Dialler,
    events: mpsc::Receiver<Event>,
    stream: Option<Stream>,
    to_client: VecDeque<Vec<u8>>,
    to_daemon: VecDeque<Vec<u8>>,
    /// Bytes of the first line of `to_daemon` that are written.
    sent: usize,
    input_open: bool,
    finished: bool,
    /// What was told last, so that a failure that repeats is told once.
    told: String,
}

impl Forwarder {
    /// Runs until everything is answered after the input's end, or the client is gone.
    ///
    /// Returning drops the stream, by which the daemon cancels what this client started.
    async fn run(mut self, stdio: Stdio, mut term: Signal, mut interrupt: Signal) {
        let Stdio {
            mut input,
            output,
            mut gone,
            written,
        } = stdio;
        let mut watching = true;
        loop {
            self.act();
            if self.finished {
                break;
            }
            let queued: usize = self.to_client.iter().map(Vec::len).sum();
            let room = queued < MAX_QUEUED_BYTES;
            let takes_input = room && self.input_open && self.to_daemon.is_empty();
            let deadline = self.resume.next_deadline();
            let (reader, writer) = match &mut self.stream {
                Some(stream) => (Some(&mut stream.lines), Some(&mut stream.writer)),
                None => (None, None),
            };
            tokio::select! {
                _ = term.recv() => return,
                _ = interrupt.recv() => return,
                result = &mut gone, if watching => match result {
                    Ok(()) => return,
                    Err(_) => watching = false,
                },
                permit = output.reserve(), if !self.to_client.is_empty() => match permit {
                    Ok(permit) => if let Some(line) = self.to_client.pop_front() {
                        permit.send(line);
                    },
                    // The writer has failed, so stdout has no reader.
                    Err(_) => return,
                },
                result = write(writer, self.to_daemon.front(), self.sent) => match result {
                    Ok(count) => self.wrote(count),
                    Err(error) => self.lost(&error.to_string()),
                },
                frame = input.recv(), if takes_input => self.client_frame(frame),
                frame = read(reader), if room => self.daemon_frame(frame),
                Some(event) = self.events.recv() => self.link_event(event),
                () = wait_for(deadline) => self.resume.tick(Instant::now()),
            }
        }
        let last = async {
            for line in self.to_client {
                if output.send(line).await.is_err() {
                    return;
                }
            }
            drop(output);
            // The writer ends without a word when stdout has no reader.
            let _ = written.await;
        };
        tokio::select! {
            _ = timeout(LAST_WRITE, last) => {}
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    /// Does what the state machine decided.
    fn act(&mut self) {
        while let Some(action) = self.resume.next_action() {
            match action {
                Action::ToClient(line) => self.to_client.push_back(line),
                Action::ToDaemon(line) => self.to_daemon.push_back(line),
                Action::Dial { launch } => drop(tokio::spawn(self.dialler.clone().dial(launch))),
                Action::Ask(id) => drop(tokio::spawn(self.dialler.clone().ask(id))),
                Action::HangUp => self.hang_up(),
                Action::Note(text) => self.tell(text),
                Action::Finish => self.finished = true,
            }
        }
    }

    fn client_frame(&mut self, frame: Option<Frame>) {
        let now = Instant::now();
        match frame {
            Some(Frame::Line(line)) => self.resume.client_line(&line, now),
            Some(Frame::TooLong(excerpt)) => self.resume.client_too_long(&excerpt, MAX_LINE_BYTES),
            None => {
                self.input_open = false;
                self.resume.eof(now);
            }
        }
    }

    fn daemon_frame(&mut self, frame: io::Result<Option<Frame>>) {
        match frame {
            Ok(Some(Frame::Line(line))) => self.resume.daemon_line(line, Instant::now()),
            Ok(Some(Frame::TooLong(excerpt))) => {
                self.resume
                    .daemon_too_long(&excerpt, MAX_LINE_BYTES, Instant::now());
            }
            Ok(None) => self.lost("it closed the connection"),
            Err(error) => self.lost(&error.to_string()),
        }
    }

    fn link_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Waiting(reason) => {
                self.resume.waiting(&reason);
                self.tell(reason);
            }
            Event::Up(stream) => {
                self.told.clear();
                self.stream = Some(*stream);
                self.resume.connected(now);
            }
            Event::Refused(reason) => self.resume.refused(&reason),
            Event::Calls(id, calls) => {
                self.resume.told(&id, calls.as_ref().ok(), now);
                if let Err(reason) = calls {
                    self.tell(format!("the calls of {id} are not known: {reason}"));
                }
            }
            Event::Failed(reason) => {
                self.resume.dial_failed(&reason, now);
                self.tell(reason);
            }
            Event::Blocked(reason) => {
                self.resume.blocked(&reason, now);
                self.tell(reason);
            }
        }
    }

    /// Tells the person who reads the client's log of this server.
    fn tell(&mut self, text: String) {
        if self.told != text {
            // Without a stderr there is nobody to tell.
            let _ = writeln!(io::stderr(), "ptc-mcp: {text}");
            self.told = text;
        }
    }

    fn wrote(&mut self, count: usize) {
        self.sent += count;
        // The newline is written with the line, so a whole line counts one byte more.
        if self
            .to_daemon
            .front()
            .is_some_and(|line| self.sent > line.len())
        {
            self.to_daemon.pop_front();
            self.sent = 0;
        }
    }

    /// Reads what the daemon left for while it is not there.
    fn remember(&mut self) {
        let places = self.dialler.places.as_ref().ok();
        self.resume.remember(places.and_then(said::read));
    }

    fn lost(&mut self, reason: &str) {
        self.hang_up();
        self.remember();
        self.resume.lost(reason, Instant::now());
    }

    fn hang_up(&mut self) {
        self.stream = None;
        self.to_daemon.clear();
        self.sent = 0;
    }
}

/// Writes on from byte `sent` of a line with its newline; waits for ever when there is none.
///
/// Nothing is lost when the future is dropped before it is done.
async fn write(
    writer: Option<&mut OwnedWriteHalf>,
    line: Option<&Vec<u8>>,
    sent: usize,
) -> io::Result<usize> {
    let (Some(writer), Some(line)) = (writer, line) else {
        return pending().await;
    };
    let rest = io::IoSlice::new(line.get(sent..).unwrap_or_default());
    let count = writer
        .write_vectored(&[rest, io::IoSlice::new(b"\n")])
        .await?;
    if count == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(count)
}

async fn read(reader: Option<&mut crate::lines::LineReader>) -> io::Result<Option<Frame>> {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}

async fn wait_for(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}
