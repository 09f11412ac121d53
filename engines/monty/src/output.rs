//! What a program prints, written where raw writes would go, in the order written.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use monty_types::{ExcType, MontyException, PrintStream, PrintWriterCallback};
use rustix::io::Errno;
use serde::Serialize;

use crate::channel::Channel;

/// Past this the daemon would keep nothing: only the size still matters.
const MAX_SENT: u64 = 64 * 1024 * 1024;
/// Text that waits for its line's end, in bytes.
const MAX_HELD: usize = 8 * 1024;
/// Characters of one output frame; each takes at most six bytes of JSON.
const PIECE: usize = 40_000;
/// How often a program that computes looks at what the daemon says.
const LOOK: Duration = Duration::from_millis(20);

/// The channel and the output of one program.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) channel: Channel,
    /// Whether each text goes by a frame that names its stream.
    apart: bool,
    held: String,
    stream: Stream,
    sent: u64,
    pub(crate) unsent: u64,
    looked: Instant,
    /// Whether the daemon has ended the run.
    pub(crate) stopped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Stream {
    Stdout,
    Stderr,
}

#[derive(Serialize)]
struct Output<'a> {
    stream: Stream,
    text: &'a str,
}

impl Host {
    /// Makes the two descriptors ends of one pipe, unless each text is to name its stream. What the allocator says in
    /// its own words on descriptor 2 is no output of the program.
    pub(crate) fn new(channel: Channel, apart: bool) -> Self {
        let joined = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
        let silent =
            rustix::pipe::pipe().and_then(|(_, nobody)| rustix::stdio::dup2_stderr(nobody));
        // Where they cannot be moved, all of it goes by frames.
        let apart = apart || joined.is_err() || silent.is_err();
        Self {
            channel,
            apart,
            held: String::new(),
            stream: Stream::Stdout,
            sent: 0,
            unsent: 0,
            looked: Instant::now(),
            stopped: false,
        }
    }

    /// Whether anything was printed.
    pub(crate) fn used(&self) -> bool {
        self.sent > 0 || self.unsent > 0
    }

    /// Writes what is held.
    pub(crate) fn flush(&mut self) {
        let text = std::mem::take(&mut self.held);
        let length = text.len() as u64;
        if text.is_empty() {
            return;
        }
        if self.sent >= MAX_SENT {
            self.unsent += length;
            return;
        }
        self.sent += length;
        if !self.apart {
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                match rustix::io::write(rustix::stdio::stdout(), rest) {
                    Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                    Err(Errno::INTR) => {}
                    // Nobody reads it any more.
                    Err(_) => return,
                }
            }
            return;
        }
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = rest
                .char_indices()
                .nth(PIECE)
                .map_or(rest.len(), |(at, _)| at);
            let (piece, after) = rest.split_at(end);
            self.channel.send(
                b'O',
                &Output {
                    stream: self.stream,
                    text: piece,
                },
            );
            rest = after;
        }
    }

    fn take(&mut self, stream: PrintStream, text: &str) {
        let stream = match stream {
            PrintStream::Stdout => Stream::Stdout,
            PrintStream::Stderr => Stream::Stderr,
        };
        if stream != self.stream {
            self.flush();
            self.stream = stream;
        }
        self.held.push_str(text);
        // A line that is whole is out before whatever may end the process.
        if self.held.ends_with('\n') || self.held.len() > MAX_HELD {
            self.flush();
        }
    }
}

impl PrintWriterCallback for Host {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.take(PrintStream::Stdout, &output);
        Ok(())
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.take(PrintStream::Stdout, end.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn stderr_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.take(PrintStream::Stderr, &output);
        Ok(())
    }

    fn stderr_push(&mut self, end: char) -> Result<(), MontyException> {
        self.take(PrintStream::Stderr, end.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    /// Called while the program computes: a run that was ended raises, again and again where the program catches it.
    fn poll_flush(&mut self) -> Result<(), MontyException> {
        if !self.stopped {
            if self.looked.elapsed() < LOOK {
                return Ok(());
            }
            self.looked = Instant::now();
            self.flush();
            self.stopped = self.channel.has_news() && self.channel.is_stopped();
        }
        if self.stopped {
            return Err(MontyException::new(ExcType::KeyboardInterrupt, None));
        }
        Ok(())
    }
}
