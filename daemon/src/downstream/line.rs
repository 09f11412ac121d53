//! Cuts a server's stdout into lines with bounded memory.

use super::id_scan::IdScan;

/// One step of the reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole line without its newline.
    Line(Vec<u8>),
    /// A line has grown over the cap, and what is known of its id so far.
    /// Its rest is passed over.
    TooLong {
        /// The id of the answer, if it is one and its id has come.
        id: Option<i64>,
    },
    /// The end of a line that was too long.
    TooLongEnd {
        /// Its size in bytes.
        bytes: usize,
        /// The id, where it came after the cap was passed.
        id: Option<i64>,
        /// The first bytes of it.
        head: Vec<u8>,
    },
}

/// How much of a passed-over line is kept for messages, in bytes.
const HEAD_BYTES: usize = 200;

/// Collects bytes into lines of at most `cap` bytes.
#[derive(Debug)]
pub(super) struct LineCutter {
    cap: usize,
    line: Vec<u8>,
    over: Option<Over>,
}

#[derive(Debug)]
struct Over {
    scan: IdScan,
    bytes: usize,
    head: Vec<u8>,
    id_told: bool,
}

impl LineCutter {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            line: Vec::new(),
            over: None,
        }
    }

    /// Whether a line over the cap is being passed over, and how long it is so far.
    pub(super) fn passing_over(&self) -> Option<usize> {
        self.over.as_ref().map(|over| over.bytes)
    }

    /// Takes bytes up to the first event in them. Returns how many were taken.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, Option<Piece>) {
        let newline = find_newline(bytes);
        let part = bytes
            .get(..newline.unwrap_or(bytes.len()))
            .unwrap_or_default();
        let taken = newline.map_or(bytes.len(), |at| at + 1);
        if let Some(over) = &mut self.over {
            over.scan.feed(part);
            over.bytes = over.bytes.saturating_add(part.len());
            let late_id = if over.id_told {
                None
            } else {
                over.scan.answer_id()
            };
            if newline.is_some() {
                let bytes = over.bytes;
                let head = std::mem::take(&mut over.head);
                self.over = None;
                let id = late_id;
                return (taken, Some(Piece::TooLongEnd { bytes, id, head }));
            }
            over.id_told |= late_id.is_some();
            return (taken, late_id.map(|id| Piece::TooLong { id: Some(id) }));
        }
        let room = self.cap.saturating_sub(self.line.len());
        if part.len() > room {
            let (fits, _) = part.split_at(room);
            self.line.extend_from_slice(fits);
            return (room, Some(self.go_over()));
        }
        self.line.extend_from_slice(part);
        if newline.is_none() {
            return (taken, None);
        }
        (taken, Some(Piece::Line(std::mem::take(&mut self.line))))
    }

    fn go_over(&mut self) -> Piece {
        let line = std::mem::take(&mut self.line);
        let mut scan = IdScan::default();
        scan.feed(&line);
        let id = scan.answer_id();
        let head = line.get(..HEAD_BYTES.min(line.len())).unwrap_or_default();
        self.over = Some(Over {
            scan,
            bytes: line.len(),
            head: head.to_vec(),
            id_told: id.is_some(),
        });
        Piece::TooLong { id }
    }
}

fn find_newline(bytes: &[u8]) -> Option<usize> {
    // `contains` is the vectorised search; most reads of a long line hold no newline.
    if bytes.contains(&b'\n') {
        bytes.iter().position(|&byte| byte == b'\n')
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(cap: usize, chunks: &[&[u8]]) -> Vec<Piece> {
        let mut cutter = LineCutter::new(cap);
        let mut pieces = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            while !rest.is_empty() {
                let (taken, piece) = cutter.feed(rest);
                pieces.extend(piece);
                assert!(cutter.line.len() <= cap);
                rest = &rest[taken..];
            }
        }
        pieces
    }

    fn line(text: &str) -> Piece {
        Piece::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_come_whole_however_they_are_written() {
        assert_eq!(
            cut(10, &[b"a\n\nbc", b"", b"d\n", b"0123456789", b"\nrest"]),
            [line("a"), line(""), line("bcd"), line("0123456789")]
        );
    }

    #[test]
    fn a_line_over_the_cap_is_told_at_once_and_passed_over() {
        let text = format!("{{\"id\":3,\"result\":\"{}\"}}", "z".repeat(100));
        let bytes = text.len();
        let whole = format!("{text}\nok\n");
        assert_eq!(
            cut(32, &[whole.as_bytes()]),
            [
                Piece::TooLong { id: Some(3) },
                Piece::TooLongEnd {
                    bytes,
                    id: None,
                    head: whole.as_bytes()[..32].to_vec(),
                },
                line("ok"),
            ]
        );
    }

    #[test]
    fn an_id_behind_the_cap_is_told_when_it_comes() {
        let head = format!("{{\"result\":\"{}\"", "z".repeat(100));
        let pieces = cut(32, &[head.as_bytes(), b",\"id\":4,\"x\":1", b"}\n"]);
        assert_eq!(pieces[0], Piece::TooLong { id: None });
        assert_eq!(pieces[1], Piece::TooLong { id: Some(4) });
        assert!(matches!(pieces[2], Piece::TooLongEnd { id: None, .. }));
    }

    proptest! {
        #[test]
        fn any_cutting_of_the_input_gives_the_same_lines(
            lines in prop::collection::vec("[a-z]{0,12}", 0..8),
            step in 1usize..7,
        ) {
            let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(step).collect();
            let expected: Vec<Piece> = lines.iter().map(|text| line(text)).collect();
            prop_assert_eq!(cut(12, &chunks), expected);
        }
    }
}
