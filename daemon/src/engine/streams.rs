//! What a program printed on each of its two streams, by itself: the beginning, the end, the size.

use super::output::{Pipe, head};
use crate::journal::RunRecorder;

/// Most bytes kept of a stream's beginning.
const HEAD: usize = 64 * 1024;
/// Most bytes kept of a stream's end.
const TAIL: usize = 16 * 1024;

/// Both streams of one run.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    stdout: One,
    stderr: One,
}

/// One stream.
#[derive(Clone, Debug, Default)]
pub struct One {
    beginning: String,
    /// What came after the beginning, as far as it is kept.
    end: String,
    bytes: u64,
}

impl Streams {
    /// Takes text of one stream.
    pub(super) fn push(&mut self, pipe: Pipe, text: &str) {
        match pipe {
            Pipe::Stdout => self.stdout.push(text),
            Pipe::Stderr => self.stderr.push(text),
        }
    }

    /// Standard output.
    pub fn stdout(&self) -> &One {
        &self.stdout
    }

    /// Standard error.
    pub fn stderr(&self) -> &One {
        &self.stderr
    }
}

impl One {
    fn push(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        let first = if self.end.is_empty() {
            head(text, HEAD - self.beginning.len())
        } else {
            ""
        };
        self.beginning.push_str(first);
        let rest = text.get(first.len()..).unwrap_or_default();
        self.end.push_str(rest);
        if self.end.len() > 2 * TAIL {
            self.end = tail(&self.end, TAIL).to_owned();
        }
    }

    /// The first 64 KiB.
    pub fn beginning(&self) -> &str {
        &self.beginning
    }

    /// The first 64 KiB as far as a record may have them once they are masked.
    pub(super) fn settled(&self, recorder: &RunRecorder) -> &str {
        if (self.beginning.len() as u64) < self.bytes {
            recorder.settled(&self.beginning)
        } else {
            &self.beginning
        }
    }

    /// The last so many characters, at most 4,000.
    pub fn last(&self, characters: usize) -> String {
        let all = format!("{}{}", tail(&self.beginning, TAIL), self.end);
        let skip = all.chars().count().saturating_sub(characters);
        all.chars().skip(skip).collect()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// At most so many of the last bytes, from a character's border.
fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_keeps_its_beginning_its_end_and_its_size() {
        let mut streams = Streams::default();
        for n in 0..30_000 {
            streams.push(Pipe::Stdout, &format!("é{n}\n"));
            streams.push(Pipe::Stderr, if n == 7 { "seven" } else { "" });
        }
        assert_eq!(streams.stderr().beginning(), "seven");
        assert_eq!(streams.stderr().last(3), "ven");
        let out = streams.stdout();
        assert!(out.beginning().starts_with("é0\né1\n"));
        assert!((HEAD - 1..=HEAD).contains(&out.beginning().len()));
        assert!(out.last(2000).ends_with("é29998\né29999\n"));
        assert_eq!(out.last(2000).chars().count(), 2000);
        let bytes: usize = (0..30_000).map(|n| format!("é{n}\n").len()).sum();
        assert_eq!(out.bytes(), bytes as u64);
    }

    #[test]
    fn a_piece_cut_at_the_border_is_not_continued_by_the_next() {
        let mut one = One::default();
        one.push(&"x".repeat(HEAD - 1));
        one.push("éa");
        one.push("b");
        assert_eq!(one.beginning().len(), HEAD - 1);
        assert_eq!(one.last(3), "éab");
    }
}
