//! Cuts a stream of bytes into lines of bounded length.

use std::io;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::OwnedReadHalf;

/// Bytes kept of each end of a line that is too long.
pub const EXCERPT_BYTES: usize = 64 * 1024;
/// Capacity above which an emptied buffer is given back.
const KEEP_BYTES: usize = 128 * 1024;
/// Bytes asked for in one read of a socket.
const CHUNK_BYTES: usize = 16 * 1024;

/// What stood between two newlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line within the limit, without its newline.
    Line(Vec<u8>),
    /// A line past the limit, of which the middle was thrown away.
    TooLong(Excerpt),
}

/// Both ends of a line that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The first [`EXCERPT_BYTES`].
    pub head: Vec<u8>,
    /// The last [`EXCERPT_BYTES`].
    pub tail: Vec<u8>,
    /// The whole line's length in bytes.
    pub length: u64,
}

impl Excerpt {
    fn extend(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let from = bytes.len().saturating_sub(EXCERPT_BYTES);
        self.tail.extend(bytes.iter().skip(from));
        let surplus = self.tail.len().saturating_sub(EXCERPT_BYTES);
        self.tail.drain(..surplus);
    }
}

/// Turns pushed bytes into frames; holds at most one line and what was pushed behind it.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the next line begins in `buffer`.
    start: usize,
    /// Up to where `buffer` is known to have no newline.
    searched: usize,
    skipping: Option<Excerpt>,
}

impl Splitter {
    /// Lines of more than `limit` bytes become [`Frame::TooLong`].
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            skipping: None,
        }
    }

    /// Changes the limit for the lines that are still to come.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, if one is there.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let unseen = self.buffer.get(self.searched..)?;
        if let Some(offset) = unseen.iter().position(|byte| *byte == b'\n') {
            let end = self.searched + offset;
            let line = self.take(end, end + 1);
            return Some(self.frame(line));
        }
        self.searched = self.buffer.len();
        if self.skipping.is_some() || self.searched - self.start > self.limit {
            let end = self.searched;
            let part = self.take(end, end);
            self.skip(&part);
        }
        None
    }

    /// What is left at the end of the stream, if it is anything.
    pub fn finish(&mut self) -> Option<Frame> {
        let end = self.buffer.len();
        let rest = self.take(end, end);
        if rest.is_empty() && self.skipping.is_none() {
            return None;
        }
        Some(self.frame(rest))
    }

    /// Takes the bytes from the line's start to `end` out, the next line starting at `next`.
    fn take(&mut self, end: usize, next: usize) -> Vec<u8> {
        let whole = self.start == 0 && next == self.buffer.len();
        let part = if whole {
            let mut part = std::mem::take(&mut self.buffer);
            part.truncate(end);
            part
        } else {
            self.buffer
                .get(self.start..end)
                .map(<[u8]>::to_vec)
                .unwrap_or_default()
        };
        if whole || next == self.buffer.len() {
            self.buffer.clear();
            if self.buffer.capacity() > KEEP_BYTES {
                self.buffer = Vec::new();
            }
            self.start = 0;
        } else {
            self.start = next;
        }
        self.searched = self.start;
        part
    }

    fn frame(&mut self, line: Vec<u8>) -> Frame {
        if self.skipping.is_none() && line.len() <= self.limit {
            return Frame::Line(line);
        }
        self.skip(&line);
        match self.skipping.take() {
            Some(excerpt) => Frame::TooLong(excerpt),
            None => Frame::Line(line),
        }
    }

    fn skip(&mut self, part: &[u8]) {
        let excerpt = self.skipping.get_or_insert_with(|| Excerpt {
            head: part.iter().take(EXCERPT_BYTES).copied().collect(),
            tail: Vec::new(),
            length: 0,
        });
        excerpt.extend(part);
    }
}

/// Reads frames from the daemon's stream.
#[derive(Debug)]
pub struct LineReader {
    socket: OwnedReadHalf,
    splitter: Splitter,
    chunk: Box<[u8]>,
}

impl LineReader {
    /// Reads from `socket`, after `read` which has been read from it already.
    pub fn new(socket: OwnedReadHalf, read: &[u8], limit: usize) -> Self {
        let mut splitter = Splitter::new(limit);
        splitter.push(read);
        Self {
            socket,
            splitter,
            chunk: vec![0; CHUNK_BYTES].into_boxed_slice(),
        }
    }

    /// Changes the limit for the lines that are still to come.
    pub fn set_limit(&mut self, limit: usize) {
        self.splitter.set_limit(limit);
    }

    /// The next frame, `None` at the end of the stream; a cut last line is no frame.
    ///
    /// Nothing is lost when the future is dropped before it is done.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.splitter.next_frame() {
                return Ok(Some(frame));
            }
            let count = self.socket.read(&mut self.chunk).await?;
            match self.chunk.get(..count) {
                Some(bytes) if count > 0 => self.splitter.push(bytes),
                _ => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(splitter: &mut Splitter, pieces: &[&[u8]]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            while let Some(frame) = splitter.next_frame() {
                frames.push(frame);
            }
        }
        frames
    }

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_come_out_whole_however_they_arrive() {
        let mut splitter = Splitter::new(100);
        let frames = all(&mut splitter, &[b"a", b"b\nc\n\nd", b"", b"\ne"]);
        assert_eq!(frames, [line("ab"), line("c"), line(""), line("d")]);
        assert_eq!(splitter.finish(), Some(line("e")));
        assert_eq!(splitter.finish(), None);
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        let mut splitter = Splitter::new(4);
        let frames = all(&mut splitter, &[b"1234\n12345\n1\n"]);
        let cut = Frame::TooLong(Excerpt {
            head: b"12345".to_vec(),
            tail: b"12345".to_vec(),
            length: 5,
        });
        assert_eq!(frames, [line("1234"), cut, line("1")]);
    }

    #[test]
    fn of_a_long_line_only_its_ends_are_kept() {
        let mut splitter = Splitter::new(1000);
        let middle = vec![b'm'; 300_000];
        let mut frames = all(&mut splitter, &[b"head", &middle, &middle]);
        assert!(splitter.buffer.capacity() <= KEEP_BYTES);
        frames.extend(all(&mut splitter, &[&middle, b"tail\nnext\n"]));
        let [Frame::TooLong(excerpt), next] = &frames[..] else {
            panic!("two frames expected");
        };
        assert_eq!(excerpt.length, 900_008);
        assert!(excerpt.head.starts_with(b"headm") && excerpt.head.len() == EXCERPT_BYTES);
        assert!(excerpt.tail.ends_with(b"mtail") && excerpt.tail.len() == EXCERPT_BYTES);
        assert_eq!(next, &line("next"));
    }

    #[test]
    fn a_long_line_without_an_end_is_still_reported() {
        let mut splitter = Splitter::new(2);
        assert_eq!(all(&mut splitter, &[b"abc"]), []);
        assert!(matches!(splitter.finish(), Some(Frame::TooLong(_))));
    }
}
