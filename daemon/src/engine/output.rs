//! What a program prints: kept in order, cut on character borders, made safe to show.

use std::fmt::Write as _;

use ptc_protocol::text::steers;

use super::streams::Streams;
use crate::journal::RunRecorder;
use crate::pool::frame::Stream;

/// Most bytes of one run's output that its record keeps whole.
pub const MAX_RECORDED: usize = 8 * 1024 * 1024;

/// How the last line of an output begins that was cut.
pub(super) const TRUNCATED: &str = "... (output truncated: ";

/// Collects the output of one run.
#[derive(Clone, Debug, Default)]
pub struct OutputBuffer {
    text: String,
    /// Bytes of the text there would be if all of it were kept.
    length: u64,
    /// Bytes that were printed.
    total: u64,
    /// Bytes of the two pipes that do not yet make a whole character.
    pending: [Vec<u8>; 2],
    /// The same by stream.
    pub(super) streams: Streams,
    /// Whether raw bytes of each stream come through its own pipe; else all come through one and count as standard
    /// output.
    apart: bool,
}

/// Which pipe raw bytes came through.
#[derive(Clone, Copy, Debug)]
pub enum Pipe {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

impl From<Stream> for Pipe {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}

impl OutputBuffer {
    pub(super) fn new(apart: bool) -> Self {
        Self {
            apart,
            ..Self::default()
        }
    }

    /// Takes text the runtime sent.
    pub fn push(&mut self, pipe: Pipe, text: &str) {
        self.total += text.len() as u64;
        self.streams.push(pipe, text);
        self.keep(text);
    }

    fn keep(&mut self, text: &str) {
        self.length += text.len() as u64;
        let room = MAX_RECORDED.saturating_sub(self.text.len());
        self.text.push_str(head(text, room));
    }

    /// Counts bytes that were printed and are not here.
    pub fn skip(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        self.length = self.length.saturating_add(bytes);
    }

    /// Takes bytes that went round the runtime; what is no UTF-8 becomes U+FFFD.
    pub fn push_bytes(&mut self, pipe: Pipe, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let mut all = std::mem::take(self.pending_of(pipe));
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        let text = String::from_utf8_lossy(all.get(..whole).unwrap_or_default()).into_owned();
        *self.pending_of(pipe) = all.split_off(whole);
        self.streams.push(self.stream_of(pipe), &text);
        self.keep(&text);
    }

    /// Takes what is left of a cut character as it is.
    pub fn flush(&mut self) {
        for pipe in [Pipe::Stdout, Pipe::Stderr] {
            let rest = std::mem::take(self.pending_of(pipe));
            if !rest.is_empty() {
                let text = String::from_utf8_lossy(&rest).into_owned();
                self.streams.push(self.stream_of(pipe), &text);
                self.keep(&text);
            }
        }
    }

    /// Bytes printed so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Everything kept, up to [`MAX_RECORDED`] bytes, as it was printed.
    pub fn recorded(&self) -> &str {
        &self.text
    }

    /// The same as far as a record may have it once it is masked: of an output that is not all here, what may be the
    /// first half of a secret at its end is left out. May be large.
    pub(super) fn settled(&self, recorder: &RunRecorder) -> &str {
        if (self.text.len() as u64) < self.length {
            recorder.settled(&self.text)
        } else {
            &self.text
        }
    }

    /// The output as a client gets it: at most `max` bytes, what was made
    /// visible counted as it is shown, with a last line that gives the whole size where it was cut
    /// and names the run whose record has more of it.
    pub fn shown(&self, max: usize, run: Option<&str>) -> String {
        let mut kept = head(&self.text, max);
        let mut shown = visible(kept);
        while shown.len() > max {
            // What steers a terminal takes more room where it is made visible.
            let fewer = kept.len().saturating_mul(max) / shown.len();
            kept = head(kept, fewer.min(kept.len() - 1));
            shown = visible(kept);
        }
        if (kept.len() as u64) < self.length {
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            let _ = write!(
                shown,
                "{TRUNCATED}{} of {} bytes shown; execution.max_output_bytes; print less",
                self.total.min(kept.len() as u64),
                self.total
            );
            if let Some(run) = run {
                let whole = self.total <= MAX_RECORDED as u64;
                let _ = if whole {
                    write!(
                        shown,
                        "; the whole is in the resource ptc://runs/{run}/response"
                    )
                } else {
                    write!(
                        shown,
                        "; the first {} MiB are in the resource ptc://runs/{run}/response",
                        MAX_RECORDED >> 20
                    )
                };
            }
            shown.push(')');
        }
        shown
    }

    fn stream_of(&self, pipe: Pipe) -> Pipe {
        if self.apart { pipe } else { Pipe::Stdout }
    }

    fn pending_of(&mut self, pipe: Pipe) -> &mut Vec<u8> {
        let [stdout, stderr] = &mut self.pending;
        match pipe {
            Pipe::Stdout => stdout,
            Pipe::Stderr => stderr,
        }
    }
}

/// The longest beginning of `text` of at most `max` bytes that ends on a character border.
pub fn head(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// The longest end of `text` of at most `max` bytes that begins on a character border.
pub fn tail(text: &str, max: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(max));
    text.get(start..).unwrap_or(text)
}

/// `text` within `max` characters: head and tail kept, the middle counted.
pub fn middle_cut(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(60);
    let (first, last) = (room * 2 / 3, room - room * 2 / 3);
    let front: String = text.chars().take(first).collect();
    let back: String = text.chars().skip(count - last).collect();
    format!(
        "{front}\n... ({} characters left out) ...\n{back}",
        count - first - last
    )
}

/// Writes characters that would steer a terminal as escapes; tabs and line ends stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => out.push(c),
            c if steers(c) => {
                let code = u32::from(c);
                let _ = if code < 0x100 {
                    write!(out, "\\x{code:02x}")
                } else {
                    write!(out, "\\u{code:04x}")
                };
            }
            c => out.push(c),
        }
    }
    out
}

/// The JSON of a value with characters that would steer a terminal as escapes: the same value.
pub fn visible_json(json: &str) -> String {
    if !json.contains(steers) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        // Line ends and tabs stand between the values only; in a string they are escapes already.
        if steers(c) && !matches!(c, '\n' | '\r' | '\t') {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Bytes at the end that begin a character without ending it.
fn unfinished(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        // An invalid byte earlier in the text hides the end: look at the last three bytes.
        Err(_) => (1..=3)
            .filter(|back| *back <= bytes.len())
            .find(|back| {
                let end = bytes.get(bytes.len() - back..).unwrap_or_default();
                matches!(std::str::from_utf8(end), Err(e) if e.error_len().is_none() && e.valid_up_to() == 0)
            })
            .unwrap_or(0),
        Ok(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn output_is_cut_on_a_character_border_and_says_the_whole_size() {
        let mut buffer = OutputBuffer::default();
        buffer.push(Pipe::Stdout, &"ä".repeat(10));
        assert_eq!(buffer.shown(20, None), "ä".repeat(10));
        for max in [5, 4] {
            let shown = buffer.shown(max, Some("r7"));
            assert!(shown.starts_with("ää\n... ("), "{shown}");
            assert!(
                shown.contains("4 of 20 bytes") && shown.contains("ptc://runs/r7/response"),
                "{shown}"
            );
        }
    }

    #[test]
    fn sequences_that_steer_a_terminal_are_made_visible() {
        assert_eq!(
            visible("\u{1b}[2Ja\tb\r\nc\rd\u{7f}\u{9b}"),
            "\\x1b[2Ja\tb\r\nc\\x0dd\\x7f\\x9b"
        );
        assert_eq!(visible("a\u{202e}b"), "a\\u202eb");
        assert_eq!(
            visible("\u{61c}\u{200e}\u{200f}\u{200d}\u{2069}"),
            "\\u061c\\u200e\\u200f\u{200d}\\u2069"
        );
    }

    #[test]
    fn json_that_would_steer_a_terminal_is_the_same_value_in_escapes() {
        let value = serde_json::json!({"\u{9b}31m": ["\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}", "\u{1b}\n", "ü😀"]});
        for json in [value.to_string(), format!("{value:#}")] {
            let shown = visible_json(&json);
            assert!(
                shown.chars().all(|c| c == '\n' || !steers(c)),
                "{}",
                shown.escape_debug()
            );
            assert!(shown.contains("\\u009b31m") && shown.contains("ü😀"));
            let back: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(back, value);
        }
    }

    #[test]
    fn a_character_that_comes_in_two_reads_is_whole() {
        let mut buffer = OutputBuffer::default();
        let bytes = "x€y".as_bytes();
        buffer.push_bytes(Pipe::Stdout, &bytes[..2]);
        buffer.push_bytes(Pipe::Stderr, b"z");
        buffer.push_bytes(Pipe::Stdout, &bytes[2..]);
        buffer.flush();
        assert_eq!(buffer.recorded(), "xz€y");
    }

    #[test]
    fn a_long_error_keeps_its_head_and_its_tail() {
        let text = format!("first{}last", "-".repeat(10_000));
        let cut = middle_cut(&text, 1000);
        assert!(cut.starts_with("first") && cut.ends_with("last"));
        assert!(cut.chars().count() <= 1000 && cut.contains("left out"));
        assert_eq!(middle_cut("short", 1000), "short");
    }

    /// What comes, in any order: text of the runtime, and bytes through either pipe.
    fn writes() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
        let odd = prop::sample::select(vec![
            "€",
            "😀",
            "\u{1b}[2J",
            "\r",
            "\n",
            "\r\n",
            "\u{202e}",
            "\u{9b}",
            "\u{0}",
            "x",
        ]);
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..6),
            odd.prop_map(|text| text.as_bytes().to_vec()),
            Just(b"\xe2\x82".to_vec()),
            Just(b"\xf0\x9f".to_vec()),
            Just(b"\x98\x80".to_vec()),
        ];
        prop::collection::vec((0_usize..3, bytes), 0..24)
    }

    /// The text of one pipe or of the runtime, alone.
    fn alone(writes: &[(usize, Vec<u8>)], from: usize) -> String {
        let own = writes.iter().filter(|(source, _)| *source == from);
        if from == 2 {
            return own
                .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
                .collect();
        }
        let bytes: Vec<u8> = own.flat_map(|(_, bytes)| bytes.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn buffer_of(writes: &[(usize, Vec<u8>)]) -> OutputBuffer {
        let mut buffer = OutputBuffer::default();
        for (from, bytes) in writes {
            match from {
                0 => buffer.push_bytes(Pipe::Stdout, bytes),
                1 => buffer.push_bytes(Pipe::Stderr, bytes),
                _ => buffer.push(Pipe::Stdout, &String::from_utf8_lossy(bytes)),
            }
        }
        buffer.flush();
        buffer
    }

    /// Whether the characters of `part` stand in `whole` in the same order, and what is left.
    fn without(whole: &str, part: &str) -> Option<Vec<char>> {
        let mut rest = Vec::new();
        let mut part = part.chars().peekable();
        for c in whole.chars() {
            if part.peek() == Some(&c) {
                part.next();
            } else {
                rest.push(c);
            }
        }
        part.next().is_none().then_some(rest)
    }

    proptest! {
        #[test]
        fn each_source_arrives_whole_and_in_order_beside_the_others(writes in writes()) {
            let buffer = buffer_of(&writes);
            let mut sizes = 0;
            for from in 0..3 {
                let text = alone(&writes, from);
                sizes += text.len();
                prop_assert!(without(buffer.recorded(), &text).is_some(), "{:?}", text);
            }
            prop_assert_eq!(buffer.recorded().len(), sizes);
            let printed = writes.iter().map(|(from, bytes)| match from {
                2 => String::from_utf8_lossy(bytes).len(),
                _ => bytes.len(),
            });
            prop_assert_eq!(buffer.total(), printed.sum::<usize>() as u64);
        }

        #[test]
        fn what_is_shown_steers_no_terminal_and_is_cut_between_characters(
            writes in writes(),
            skipped in 0_u64..3,
            max in 0_usize..80,
        ) {
            let mut buffer = buffer_of(&writes);
            buffer.skip(skipped);
            let whole = buffer.recorded().to_owned();
            let shown = buffer.shown(max, Some("r1"));
            let all = visible(&whole);
            if skipped == 0 && all.len() <= max {
                prop_assert_eq!(&shown, &all);
            } else {
                let (shows, last) = shown.rsplit_once("... (output truncated: ").unwrap();
                let shows = shows.strip_suffix('\n').unwrap_or(shows);
                // A cut between the two halves of a line end shows the first.
                let begins = shows.strip_suffix("\\x0d").unwrap_or(shows);
                prop_assert!(shows.len() <= max && all.starts_with(begins), "{:?}", shows);
                // Nothing is left out that would have had room, but for what visible forms of one head take more.
                let plain = whole.chars().all(|c| !steers(c));
                prop_assert!(!plain || shows.len() + 4 >= max.min(all.len()), "{:?}", shows);
                let sizes = format!(" of {} bytes", buffer.total());
                prop_assert!(last.lines().count() == 1 && last.contains(&sizes) && last.contains("//runs/r1/response"), "{}", last);
            }
            let mut chars = shown.chars().peekable();
            while let Some(c) = chars.next() {
                let ends_line = c == '\r' && chars.peek() == Some(&'\n');
                prop_assert!(matches!(c, '\n' | '\t') || ends_line || !steers(c), "{:?}", c);
            }
        }

        #[test]
        fn a_text_in_any_pieces_is_the_same_text(text in any::<String>(), cuts in prop::collection::vec(1_usize..5, 1..9)) {
            let mut buffer = OutputBuffer::default();
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                buffer.push_bytes(Pipe::Stderr, piece);
                rest = after;
            }
            buffer.flush();
            prop_assert_eq!(buffer.recorded(), &text);
            prop_assert_eq!(head(&text, text.len()), &text);
            for max in 0..text.len() {
                prop_assert_eq!(format!("{}{}", head(&text, max), tail(&text, text.len() - head(&text, max).len())), text.clone());
            }
        }

        #[test]
        fn a_middle_cut_keeps_both_ends_within_the_limit(text in "\\PC{0,300}", max in 100_usize..200) {
            let cut = middle_cut(&text, max);
            prop_assert!(cut.chars().count() <= max);
            if text.chars().count() <= max {
                prop_assert_eq!(&cut, &text);
            } else {
                prop_assert!(cut.contains(" characters left out"));
                prop_assert_eq!(cut.chars().next(), text.chars().next());
                prop_assert_eq!(cut.chars().last(), text.chars().last());
            }
        }

        #[test]
        fn any_bytes_in_any_pieces_end_as_python_would_decode_them(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..8)) {
            let mut buffer = OutputBuffer::default();
            for piece in &pieces {
                buffer.push_bytes(Pipe::Stdout, piece);
            }
            buffer.flush();
            let all: Vec<u8> = pieces.concat();
            prop_assert_eq!(buffer.recorded(), String::from_utf8_lossy(&all));
            for max in 0..all.len() {
                let _ = buffer.shown(max, None);
            }
        }
    }
}
