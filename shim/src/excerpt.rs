//! Finds the id of a message of which only both ends are left.

use crate::lines::Excerpt;
use crate::message::Id;

/// Most places at a line's end that are looked at.
const MAX_CANDIDATES: usize = 64;

/// What the ends of a line that is too long say.
#[derive(Debug, PartialEq, Eq)]
pub struct Gist {
    /// The message's own id.
    pub id: Option<Id>,
    /// Whether it is an answer.
    pub is_response: bool,
}

/// Reads the members of the top level at both ends.
pub fn gist(excerpt: &Excerpt) -> Gist {
    let mut gist = scan_head(&excerpt.head);
    if gist.id.is_none() {
        gist.id = scan_tail(&excerpt.tail);
    }
    gist
}

/// Walks the top level from the line's start for as long as it is there.
fn scan_head(bytes: &[u8]) -> Gist {
    let mut gist = Gist {
        id: None,
        is_response: false,
    };
    let mut at = Cursor { bytes, at: 0 };
    if !at.eat(b'{') {
        return gist;
    }
    while let Some(key) = at.string() {
        if matches!(key, br#""result""# | br#""error""#) {
            gist.is_response = true;
        }
        if !at.eat(b':') {
            break;
        }
        let Some(value) = at.value() else { break };
        if key == br#""id""# {
            gist.id = std::str::from_utf8(value).ok().and_then(Id::from_json);
        }
        if !at.eat(b',') {
            break;
        }
    }
    gist
}

/// Looks for an `"id"` behind which only plain members and the line's last brace follow.
///
/// In a line that is JSON such a place is a member of the top level: a string
/// that held the same text could not be closed by what follows.
fn scan_tail(bytes: &[u8]) -> Option<Id> {
    let key = br#""id""#;
    let places = bytes.windows(key.len()).enumerate().rev();
    places
        .filter(|(_, window)| window == key)
        .take(MAX_CANDIDATES)
        .find_map(|(at, _)| {
            let mut at = Cursor { bytes, at };
            at.string()?;
            let value = at.eat(b':').then(|| at.scalar()).flatten()?;
            while at.eat(b',') {
                at.string()?;
                at.eat(b':').then(|| at.scalar()).flatten()?;
            }
            if !at.eat(b'}') || at.peek().is_some() {
                return None;
            }
            Id::from_json(std::str::from_utf8(value).ok()?)
        })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let start = self.at;
        let mut escaped = false;
        for (offset, byte) in self.bytes.get(start + 1..)?.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    self.at = start + offset + 2;
                    return self.bytes.get(start..self.at);
                }
                _ => {}
            }
        }
        None
    }

    /// A string, number or word that ends before the bytes do.
    fn scalar(&mut self) -> Option<&'a [u8]> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => None,
            _ => {
                let start = self.at;
                let rest = self.bytes.get(start..)?;
                let length = rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b' '))?;
                self.at += length;
                self.bytes.get(start..self.at)
            }
        }
    }

    /// Any value that ends before the bytes do.
    fn value(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.peek()?, b'{' | b'[') {
            return self.scalar();
        }
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return self.bytes.get(start..self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(line: &str) -> Gist {
        let bytes = line.as_bytes();
        let middle = line.find("CUT").unwrap_or(bytes.len());
        gist(&Excerpt {
            head: bytes[..middle].to_vec(),
            tail: bytes[middle..].to_vec(),
            length: bytes.len() as u64,
        })
    }

    fn id(text: &str) -> Option<Id> {
        Id::from_json(text)
    }

    #[test]
    fn the_id_is_found_before_the_cut() {
        let line = r#"{"jsonrpc":"2.0", "params":{"id":9,"a":["}",{}]}, "id" : "x" ,"m":"CUT"#;
        assert_eq!(
            cut(line),
            Gist {
                id: id("\"x\""),
                is_response: false
            }
        );
        assert_eq!(cut(r#"{"id":12,"method":"CUT"#).id, id("12"));
    }

    #[test]
    fn the_id_is_found_behind_the_cut() {
        let line = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"id":1,"code":"CUT\"id\":2"}},"id":3}"#;
        assert_eq!(cut(line).id, id("3"));
        assert_eq!(
            cut(r#"{"params":"CUT", "id":"q", "jsonrpc":"2.0"} "#).id,
            id("\"q\"")
        );
    }

    #[test]
    fn an_inner_id_is_never_taken() {
        for line in [
            r#"{"params":{"a":"CUT","id":1}}"#,
            r#"{"params":{"a":"CUT","id":1},"jsonrpc":"2.0"}"#,
            r#"{"params":["CUT",{"id":1}]}"#,
            "CUT",
            "[{\"id\":1},CUT",
        ] {
            assert_eq!(cut(line).id, None, "{line}");
        }
    }

    #[test]
    fn an_answer_is_known_by_its_result() {
        assert!(cut(r#"{"jsonrpc":"2.0","id":1,"result":{"CUT"#).is_response);
        assert!(!cut(r#"{"jsonrpc":"2.0","id":1,"params":{"result":1,"CUT"#).is_response);
    }
}
