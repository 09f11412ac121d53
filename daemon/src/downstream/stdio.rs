//! Speaks MCP with a server over its stdin and stdout.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

use super::carrier::Carrier;
use super::inbox::{Inbox, Next};
use super::line::{LineCutter, Piece};
use super::link::Link;
use super::outgoing::Outgoing;
use super::process;
use super::wire;

/// Bytes asked of the pipe at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// How long what an ended server wrote last is still read, and how long a server that closed its stdout may take to end by itself.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Starts to read and write. `cap` is the longest line taken, in bytes.
pub(super) fn start(
    stdin: impl AsyncWrite + Send + Unpin + 'static,
    stdout: impl AsyncRead + Send + Unpin + 'static,
    exit: watch::Receiver<Option<ExitStatus>>,
    cap: usize,
    link: Arc<Link>,
) -> Carrier {
    let (carrier, ends) = Carrier::new(Arc::clone(&link));
    tokio::spawn(write(stdin, ends.queue, Arc::clone(&link)));
    let reader = Reader {
        link,
        answers: ends.answers,
        inbox: ends.inbox,
        cap,
    };
    tokio::spawn(reader.run(stdout, exit));
    carrier
}

async fn write(
    mut stdin: impl AsyncWrite + Send + Unpin + 'static,
    mut queue: mpsc::Receiver<Outgoing>,
    link: Arc<Link>,
) {
    let work = async {
        while let Some(message) = queue.recv().await {
            let mut text = message.text;
            text.push('\n');
            let written = stdin.write_all(text.as_bytes()).await;
            if written.is_err() || stdin.flush().await.is_err() {
                return true;
            }
        }
        false
    };
    let failed = tokio::select! {
        failed = work => failed,
        () = link.closing.cancelled() => false,
    };
    drop(stdin);
    if failed {
        // Its end, if that is the cause, is told by the reader with more detail.
        tokio::time::sleep(LAST_WORDS * 2).await;
        link.end("it closed its stdin".to_owned());
    }
}

struct Reader {
    link: Arc<Link>,
    answers: mpsc::WeakSender<Outgoing>,
    inbox: Inbox,
    cap: usize,
}

impl Reader {
    async fn run(
        self,
        mut stdout: impl AsyncRead + Send + Unpin,
        mut exit: watch::Receiver<Option<ExitStatus>>,
    ) {
        let mut cutter = LineCutter::new(self.cap);
        let mut chunk = vec![0; CHUNK_BYTES];
        let read_on = async {
            loop {
                let read = stdout.read(&mut chunk).await.unwrap_or(0);
                let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                if !self.take(&mut cutter, bytes).await {
                    return;
                }
            }
            // A last answer may lack its newline.
            let _ = self.take(&mut cutter, b"\n").await;
        };
        tokio::pin!(read_on);
        let mut exited = exit.clone();
        let status = tokio::select! {
            () = &mut read_on => process::ended_within(&mut exit, LAST_WORDS).await,
            () = self.link.ended.cancelled() => None,
            status = process::ended_within(&mut exited, Duration::MAX) => {
                // A process it left behind may hold the pipe open for ever.
                let _ = tokio::time::timeout(LAST_WORDS, &mut read_on).await;
                status
            }
        };
        self.link.end(match status {
            Some(status) => process::describe(status),
            None => "it closed its stdout".to_owned(),
        });
    }

    /// Takes in what was read. False when the session wants no more.
    async fn take(&self, cutter: &mut LineCutter, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (taken, piece) = cutter.feed(rest);
            rest = rest.get(taken..).unwrap_or_default();
            let goes_on = match piece {
                None => true,
                Some(Piece::Line(line)) => self.take_line(line).await,
                Some(Piece::TooLong { id }) => {
                    self.link.remark(format!(
                        "it is sending a line of more than {} bytes",
                        self.cap
                    ));
                    self.inbox.too_long(id).await
                }
                Some(Piece::TooLongEnd { bytes, id, head }) => {
                    let shown = wire::shown(&head);
                    self.link.remark(format!(
                        "it sent a line of {bytes} bytes, which begins {shown:?}"
                    ));
                    self.link.add_junk(shown);
                    self.inbox.too_long(id).await
                }
            };
            if !goes_on {
                return false;
            }
        }
        if let Some(bytes) = cutter.passing_over() {
            self.link.remark(format!(
                "it is sending a line of {bytes} bytes so far, without an end"
            ));
        }
        true
    }

    async fn take_line(&self, line: Vec<u8>) -> bool {
        match self.inbox.take(line).await {
            Next::GoOn => true,
            Next::Stop => false,
            Next::Answer(text) => {
                if let Some(answers) = self.answers.upgrade() {
                    // A server that asks without reading gets no answer: waiting here
                    // would stop both sides for good.
                    let _ = answers.try_send(Outgoing::answer(text));
                }
                true
            }
        }
    }
}
