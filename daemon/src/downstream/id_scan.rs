//! Finds the id of a JSON-RPC message that cannot be read as JSON.

/// Longest id that is recognised, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Follows the brackets and strings of one message byte by byte, and remembers
/// the value of its own `id`. Memory use does not depend on the message.
///
/// What lies between may be anything: NaN, broken UTF-8, a missing end.
#[derive(Debug, Default)]
pub(super) struct IdScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The string or bare word at depth 1 that is being read.
    word: Vec<u8>,
    /// The last whole key at depth 1, once its colon has come.
    key: Option<Key>,
    id: Option<i64>,
    has_method: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Id,
    Other,
}

impl IdScan {
    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    /// The id found so far, if the message is an answer: a request or a notification has a method.
    pub(super) fn answer_id(&self) -> Option<i64> {
        if self.has_method { None } else { self.id }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.step_in_string(byte);
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.word.clear();
                }
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 2 {
                    self.word.clear();
                }
            }
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_member(),
            b':' if self.depth == 1 => {
                self.has_method |= self.word == b"method";
                self.key = Some(if self.word == b"id" {
                    Key::Id
                } else {
                    Key::Other
                });
                self.word.clear();
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            other => self.keep(other),
        }
    }

    fn step_in_string(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
            return;
        } else if byte == b'"' {
            self.in_string = false;
            return;
        }
        self.keep(byte);
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() <= MAX_ID_BYTES {
            self.word.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.key == Some(Key::Id) && self.id.is_none() {
            self.id = std::str::from_utf8(&self.word).ok().and_then(parse_id);
        }
        self.key = None;
        self.word.clear();
    }
}

/// The number behind an id: some servers answer 7 with "7" or 7.0.
pub(super) fn parse_id(text: &str) -> Option<i64> {
    if let Ok(id) = text.parse() {
        return Some(id);
    }
    let (whole, fraction) = text.split_once('.')?;
    fraction
        .chars()
        .all(|c| c == '0')
        .then(|| whole.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(text: &[u8]) -> Option<i64> {
        let mut scan = IdScan::default();
        scan.feed(text);
        scan.answer_id()
    }

    #[test]
    fn the_messages_own_id_is_found_before_or_after_what_cannot_be_read() {
        for text in [
            &br#"{"jsonrpc":"2.0","id":7,"result":{"id":9,"x":NaN}}"#[..],
            br#"{"result":{"id":9,"x":["\"id\":1"]},"jsonrpc":"2.0","id": 7 }"#,
            b"{\"id\":\"7\",\"result\":\"caf\xe9 \\",
            br#"{"id":7.0,"result":{"#,
            br#"{"id":7,"id":8,"result":null}"#,
        ] {
            assert_eq!(scan(text), Some(7), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn requests_and_texts_without_an_own_id_give_none() {
        for text in [
            &br#"{"jsonrpc":"2.0","id":7,"method":"ping","x":NaN}"#[..],
            br#"{"result":{"id":7}}"#,
            br#"[{"id":7}]"#,
            br#"{"id":null,"result":NaN}"#,
            b"listening on 7",
            br#"{"result":"id","x":7}"#,
        ] {
            assert_eq!(scan(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    proptest! {
        #[test]
        fn the_id_of_any_answer_is_found_in_any_pieces(
            id in 0i64..1_000_000,
            text in "\\PC{0,40}",
            cut in 0usize..200,
            first in any::<bool>(),
        ) {
            let inner = serde_json::json!({"id": 1, "text": text, "list": [{"id": 2}]});
            let line = if first {
                format!("{{\"id\":{id},\"result\":{inner}}}")
            } else {
                format!("{{\"result\":{inner},\"id\":{id}}}")
            };
            let (head, tail) = line.as_bytes().split_at(cut.min(line.len()));
            let mut scan = IdScan::default();
            scan.feed(head);
            scan.feed(tail);
            prop_assert_eq!(scan.answer_id(), Some(id));
        }
    }
}
