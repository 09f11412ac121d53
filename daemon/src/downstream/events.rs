//! Cuts an event stream into events with bounded memory.
//!
//! Own code because an event over the cap must still tell whose answer it was
//! to be: its call fails at once, and the stream goes on.

use std::time::Duration;

use super::id_scan::IdScan;

/// Longest event id that is kept for a resumption, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// Longest pause before a resumption that a server may ask for.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// One step of the reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole event.
    Event(Event),
    /// An event has grown over the cap, and what is known of the id of the
    /// answer in it. Its rest is passed over.
    TooLong { id: Option<i64> },
}

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its type; empty is the usual one.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

impl Event {
    /// Whether it carries a message of the protocol.
    pub(super) fn is_message(&self) -> bool {
        (self.name.is_empty() || self.name == "message") && !self.data.is_empty()
    }
}

/// Collects bytes into events of at most `cap` bytes.
#[derive(Debug)]
pub(super) struct EventCutter {
    cap: usize,
    line: Vec<u8>,
    event: Event,
    over: Option<Over>,
    at_start: bool,
    after_cr: bool,
    id: Option<String>,
    /// The id of the event that is coming in, once it has one.
    coming: Option<String>,
    retry: Option<Duration>,
}

#[derive(Debug, Default)]
struct Over {
    scan: IdScan,
    told: bool,
    line_is_empty: bool,
}

impl EventCutter {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            line: Vec::new(),
            event: Event::default(),
            over: None,
            at_start: true,
            after_cr: false,
            id: None,
            coming: None,
            retry: None,
        }
    }

    /// The id of the latest whole event, with which the stream can be resumed.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The pause before a resumption that the server asks for.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// A new stream goes on where the last one broke off; what was incomplete is gone.
    pub(super) fn resume(&mut self) {
        self.line.clear();
        self.event = Event::default();
        self.coming = None;
        self.over = None;
        self.at_start = true;
        self.after_cr = false;
    }

    /// Takes bytes up to the first event in them. Returns how many were taken.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, Option<Piece>) {
        let mut taken = 0;
        while let Some(mut rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if std::mem::take(&mut self.after_cr)
                && let Some(after) = rest.strip_prefix(b"\n")
            {
                taken += 1;
                rest = after;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            taken += part.len();
            let piece = self.add(part);
            if let Some(end) = end {
                taken += 1;
                self.after_cr = rest.get(end) == Some(&b'\r');
                // Neither can happen along with the other: a line that has grown too long does not end an event.
                let piece = piece.or(self.end_line());
                if piece.is_some() {
                    return (taken, piece);
                }
            } else if piece.is_some() {
                return (taken, piece);
            }
        }
        (bytes.len(), None)
    }

    fn add(&mut self, part: &[u8]) -> Option<Piece> {
        if let Some(over) = &mut self.over {
            over.scan.feed(part);
            over.line_is_empty &= part.is_empty();
            return over.news();
        }
        self.line.extend_from_slice(part);
        if self.line.len() + self.event.data.len() <= self.cap {
            return None;
        }
        let mut over = Over::default();
        over.scan.feed(&self.event.data);
        let (name, value) = field(&self.line);
        if name == b"data" {
            over.scan.feed(value);
        }
        self.line.clear();
        self.event.data.clear();
        let id = over.scan.answer_id();
        over.told = id.is_some();
        self.over = Some(over);
        Some(Piece::TooLong { id })
    }

    fn end_line(&mut self) -> Option<Piece> {
        if let Some(over) = &mut self.over {
            if over.line_is_empty {
                self.over = None;
                self.event = Event::default();
                self.arrived();
            } else {
                over.line_is_empty = true;
            }
            return None;
        }
        let line = std::mem::take(&mut self.line);
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if self.at_start => rest,
            _ => line.as_slice(),
        };
        self.at_start = false;
        if line.is_empty() {
            self.arrived();
            let event = std::mem::take(&mut self.event);
            let says_something = !event.data.is_empty() || !event.name.is_empty();
            return says_something.then_some(Piece::Event(event));
        }
        let (name, value) = field(line);
        match name {
            b"data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.name = String::from_utf8_lossy(value).into_owned(),
            b"id" if value.len() <= MAX_ID_BYTES && value.iter().all(u8::is_ascii_graphic) => {
                self.coming = std::str::from_utf8(value).ok().map(str::to_owned);
            }
            b"retry" => {
                let millis = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.retry = millis
                    .map(|millis| Duration::from_millis(millis).min(MAX_RETRY))
                    .or(self.retry);
            }
            _ => {}
        }
        None
    }
}

impl EventCutter {
    /// An event is whole: only now its id says where to go on.
    fn arrived(&mut self) {
        if let Some(id) = self.coming.take() {
            // An empty one takes the place back.
            self.id = Some(id).filter(|id| !id.is_empty());
        }
    }
}

impl Over {
    fn news(&mut self) -> Option<Piece> {
        let id = self.scan.answer_id().filter(|_| !self.told)?;
        self.told = true;
        Some(Piece::TooLong { id: Some(id) })
    }
}

/// The name and the value of a line; a comment has an empty name.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return (line, b"");
    };
    let (name, rest) = line.split_at(colon);
    let value = rest.get(1..).unwrap_or_default();
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(cap: usize, chunks: &[&[u8]]) -> (Vec<Piece>, EventCutter) {
        let mut cutter = EventCutter::new(cap);
        let mut pieces = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            while !rest.is_empty() {
                let (taken, piece) = cutter.feed(rest);
                pieces.extend(piece);
                assert!(cutter.line.len() + cutter.event.data.len() <= cap);
                rest = &rest[taken..];
            }
        }
        (pieces, cutter)
    }

    fn event(name: &str, data: &str) -> Piece {
        Piece::Event(Event {
            name: name.into(),
            data: data.into(),
        })
    }

    #[test]
    fn every_line_end_comments_and_missing_blanks_are_understood() {
        let text =
            b"\xef\xbb\xbf: hello\r\n\r\nid: 7\r\nretry: 250\r\ndata:one\r\ndata: two\r\n\r\n\
            event: endpoint\ndata:  /x\n\ndata: three\r\rdata\n\nid\n\ndata: cut";
        for chunks in [vec![&text[..]], text.chunks(1).collect()] {
            let (pieces, cutter) = cut(100, &chunks);
            assert_eq!(
                pieces,
                [
                    event("", "one\ntwo"),
                    event("endpoint", " /x"),
                    event("", "three"),
                ]
            );
            assert_eq!(cutter.last_id(), None);
            assert_eq!(cutter.retry(), Some(Duration::from_millis(250)));
        }
    }

    #[test]
    fn an_event_over_the_cap_names_its_answer_and_costs_no_other() {
        let long = format!(
            "data: {{\"id\":3,\"result\":\"{}\"}}\n\ndata: ok\n\n",
            "z".repeat(99)
        );
        let (pieces, _) = cut(40, &[long.as_bytes()]);
        assert_eq!(pieces, [Piece::TooLong { id: Some(3) }, event("", "ok")]);
        let late = format!(
            "data: {{\"result\":\"{}\",\"id\":4}}\r\n\r\ndata: ok\r\n\r\n",
            "z".repeat(99)
        );
        let (pieces, _) = cut(40, &late.as_bytes().chunks(20).collect::<Vec<_>>());
        assert_eq!(
            pieces,
            [
                Piece::TooLong { id: None },
                Piece::TooLong { id: Some(4) },
                event("", "ok"),
            ]
        );
        let many = "data: 0123456789\n".repeat(9) + "\ndata: ok\n\n";
        let (pieces, _) = cut(40, &[many.as_bytes()]);
        assert_eq!(pieces, [Piece::TooLong { id: None }, event("", "ok")]);
    }

    #[test]
    fn a_resumption_forgets_what_was_incomplete_and_keeps_the_place() {
        let (_, mut cutter) = cut(99, &[b"id: 5\n\nid: 6\ndata: half"]);
        cutter.resume();
        assert_eq!(cutter.last_id(), Some("5"));
        assert_eq!(cutter.feed(b"data: x\n\n").1, Some(event("", "x")));
    }

    proptest! {
        #[test]
        fn any_cutting_of_the_stream_gives_the_same_events(
            texts in prop::collection::vec("[a-z]{1,9}", 0..6),
            step in 1usize..7,
            ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        ) {
            let stream: String = texts.iter().fold(String::new(), |all, text| all + "data: " + text + ending + ending);
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(step).collect();
            let expected: Vec<Piece> = texts.iter().map(|text| event("", text)).collect();
            prop_assert_eq!(cut(64, &chunks).0, expected);
        }
    }
}
