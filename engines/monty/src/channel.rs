//! The worker's end of its channel: frames out at once, frames in as they come.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;

use crate::frame::{self, HEADER, ToWorker};
use crate::last_words;
use crate::system::{self, Ready, wait};

/// The descriptor that every worker is started with.
pub(crate) const NUMBER: i32 = 3;
/// The code with which a worker leaves when its channel is gone.
pub(crate) const LOST: i32 = 70;
/// Bytes read at once.
const READ: usize = 64 * 1024;

static DESCRIPTOR: OnceLock<OwnedFd> = OnceLock::new();

/// The channel's descriptor, once it was taken.
pub(crate) fn descriptor() -> Option<BorrowedFd<'static>> {
    DESCRIPTOR.get().map(AsFd::as_fd)
}

/// The channel. Where it fails there is nobody to work for, and the process ends.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: BorrowedFd<'static>,
    /// What has come and is no whole frame yet.
    raw: Vec<u8>,
    /// Where reads go first.
    buffer: Vec<u8>,
    inbox: VecDeque<ToWorker>,
    next_id: u64,
}

impl Channel {
    /// Takes the descriptor; to be called once.
    pub(crate) fn open() -> Option<Self> {
        let taken = system::take_descriptor(NUMBER)?;
        rustix::io::ioctl_fionbio(&taken, true).ok()?;
        DESCRIPTOR.set(taken).ok()?;
        Some(Self {
            socket: descriptor()?,
            raw: Vec::new(),
            buffer: vec![0; READ],
            inbox: VecDeque::new(),
            next_id: 1,
        })
    }

    /// An id that no call and no query had.
    pub(crate) fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Writes a frame whose body is `body` as JSON.
    pub(crate) fn send<T: Serialize>(&mut self, kind: u8, body: &T) {
        match serde_json::to_vec(body) {
            Ok(body) => self.send_text(kind, &body),
            Err(_) => lost(),
        }
    }

    /// Writes a frame whose body is JSON text. What comes meanwhile is taken: two sides that both only write would
    /// wait for each other for ever.
    pub(crate) fn send_text(&mut self, kind: u8, body: &[u8]) {
        let frame = frame::encode(kind, body);
        let mut rest = frame.as_slice();
        last_words::writing(true);
        while !rest.is_empty() {
            match rustix::io::write(self.socket, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN) => {
                    let ready = wait(self.socket, Ready::BOTH, None);
                    if ready.read && !ready.write {
                        self.pump();
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => lost(),
            }
        }
        last_words::writing(false);
    }

    /// Takes the next frame if one has come, without waiting.
    pub(crate) fn next(&mut self) -> Option<ToWorker> {
        if self.inbox.is_empty() {
            self.pump();
        }
        self.inbox.pop_front()
    }

    /// Waits for the next frame, `None` once `patience` is over; without one for ever.
    pub(crate) fn wait(&mut self, patience: Option<Duration>) -> Option<ToWorker> {
        let until = patience.map(|patience| std::time::Instant::now() + patience);
        loop {
            if let Some(message) = self.next() {
                return Some(message);
            }
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            wait(self.socket, Ready::TO_READ, left);
        }
    }

    /// Whether something has come that nobody has looked at.
    pub(crate) fn has_news(&self) -> bool {
        !self.inbox.is_empty() || wait(self.socket, Ready::TO_READ, Some(Duration::ZERO)).read
    }

    /// Whether the daemon has asked where the program waits; looks at what has come, and keeps the rest.
    pub(crate) fn is_stopped(&mut self) -> bool {
        self.pump();
        self.inbox
            .iter()
            .any(|message| matches!(message, ToWorker::Stop))
    }

    fn pump(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            match rustix::io::read(self.socket, buffer.as_mut_slice()) {
                Ok(0) => lost(),
                Ok(read) => self
                    .raw
                    .extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => lost(),
            }
        }
        self.buffer = buffer;
        let mut at = 0;
        while let Some(head) = self
            .raw
            .get(at..at + HEADER)
            .and_then(|head| <[u8; HEADER]>::try_from(head).ok())
        {
            let Ok((length, kind)) = frame::header(head) else {
                lost()
            };
            let Some(body) = self.raw.get(at + HEADER..at + HEADER + length) else {
                // A large body is read into the room it needs at once.
                self.raw
                    .reserve((at + HEADER + length).saturating_sub(self.raw.len()));
                break;
            };
            match frame::decode(kind, body) {
                Ok(message) => self.inbox.push_back(message),
                Err(_) => lost(),
            }
            at += HEADER + length;
        }
        self.raw.drain(..at);
        if self.raw.is_empty() {
            self.raw = Vec::new();
        }
    }
}

/// Ends the process: its channel is gone, or carries what is no frame.
pub(crate) fn lost() -> ! {
    last_words::disarm();
    std::process::exit(LOST)
}
