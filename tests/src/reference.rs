//! A second JSON reader, slow and plain, with the semantics of Python's `json`: what the daemon makes of a text is compared with it.

/// A JSON value; a key that comes again keeps its first place and takes the last value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as it is written, but for the letter case and the plus sign of its exponent.
    Number(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, in order.
    Object(Vec<(String, Json)>),
}

/// A text, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its value.
    pub value: Json,
    /// Whether a key occurs twice in one of its objects.
    pub duplicates: bool,
    /// Whether a string holds half a surrogate pair, which is read as U+FFFD.
    pub halves: bool,
    /// How many brackets are open at its deepest place.
    pub depth: usize,
}

impl Json {
    /// A member of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }
}

/// Reads a text; `None` where it is no JSON.
pub fn read(text: &str) -> Option<Document> {
    let mut reader = Reader {
        rest: text,
        duplicates: false,
        halves: false,
        open: 0,
        depth: 0,
    };
    reader.blank();
    let value = reader.value()?;
    reader.blank();
    reader.rest.is_empty().then_some(Document {
        value,
        duplicates: reader.duplicates,
        halves: reader.halves,
        depth: reader.depth,
    })
}

/// Deeper texts are not read, so that this reader needs no more stack than it has.
const MAX_DEPTH: usize = 300;

struct Reader<'a> {
    rest: &'a str,
    duplicates: bool,
    halves: bool,
    open: usize,
    depth: usize,
}

impl Reader<'_> {
    fn blank(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    /// Takes what the text goes on with, if it does.
    fn takes(&mut self, what: &str) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Option<Json> {
        match self.rest.as_bytes().first()? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::list),
            b'"' => self.text().map(Json::Text),
            b'-' | b'0'..=b'9' => self.number(),
            _ if self.takes("null") => Some(Json::Null),
            _ if self.takes("true") => Some(Json::Bool(true)),
            _ if self.takes("false") => Some(Json::Bool(false)),
            _ => None,
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Option<Json>) -> Option<Json> {
        self.open += 1;
        self.depth = self.depth.max(self.open);
        if self.open > MAX_DEPTH {
            return None;
        }
        self.rest = self.rest.get(1..)?;
        self.blank();
        let value = read(self)?;
        self.open -= 1;
        Some(value)
    }

    fn list(&mut self) -> Option<Json> {
        let mut items = Vec::new();
        if self.takes("]") {
            return Some(Json::List(items));
        }
        loop {
            self.blank();
            items.push(self.value()?);
            self.blank();
            if self.takes("]") {
                return Some(Json::List(items));
            }
            if !self.takes(",") {
                return None;
            }
        }
    }

    fn object(&mut self) -> Option<Json> {
        let mut members: Vec<(String, Json)> = Vec::new();
        if self.takes("}") {
            return Some(Json::Object(members));
        }
        loop {
            self.blank();
            let key = self.text()?;
            self.blank();
            if !self.takes(":") {
                return None;
            }
            self.blank();
            let value = self.value()?;
            match members.iter_mut().find(|(known, _)| *known == key) {
                Some((_, old)) => {
                    self.duplicates = true;
                    *old = value;
                }
                None => members.push((key, value)),
            }
            self.blank();
            if self.takes("}") {
                return Some(Json::Object(members));
            }
            if !self.takes(",") {
                return None;
            }
        }
    }

    fn text(&mut self) -> Option<String> {
        if !self.takes("\"") {
            return None;
        }
        let mut text = String::new();
        loop {
            let c = self.rest.chars().next()?;
            self.rest = self.rest.get(c.len_utf8()..)?;
            match c {
                '"' => return Some(text),
                '\\' => text.push(self.escape()?),
                c if c < ' ' => return None,
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = self.rest.get(letter.len_utf8()..)?;
        Some(match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    self.halves |= (0xdc00..0xe000).contains(&first);
                    return Some(char::from_u32(first).unwrap_or('\u{fffd}'));
                }
                let before = self.rest;
                let second = self.takes("\\u").then(|| self.unit()).flatten();
                match second {
                    Some(second) if (0xdc00..0xe000).contains(&second) => {
                        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?
                    }
                    _ => {
                        self.rest = before;
                        self.halves = true;
                        '\u{fffd}'
                    }
                }
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest.get(..4)?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        self.rest = self.rest.get(4..)?;
        plain.then(|| u32::from_str_radix(digits, 16).ok())?
    }

    fn digits(&mut self) -> Option<&str> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!digits.is_empty()).then_some(digits)
    }

    fn number(&mut self) -> Option<Json> {
        let mut text = String::new();
        if self.takes("-") {
            text.push('-');
        }
        if self.takes("0") {
            text.push('0');
        } else {
            text.push_str(self.digits()?);
        }
        if self.takes(".") {
            text.push('.');
            text.push_str(self.digits()?);
        }
        if self.takes("e") || self.takes("E") {
            text.push('e');
            if self.takes("-") {
                text.push('-');
            } else {
                self.takes("+");
            }
            text.push_str(self.digits()?);
        }
        Some(Json::Number(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Json {
        read(text).unwrap().value
    }

    #[test]
    fn texts_are_read_as_python_reads_them() {
        assert_eq!(
            value(" {\"a\" : [1, -0.0,1E+2,\"\\ud83d\\ude00\\n\"],\"b\":null, \"a\":true}\r\n"),
            Json::Object(vec![
                ("a".into(), Json::Bool(true)),
                ("b".into(), Json::Null)
            ])
        );
        let read = read("{\"a\":[{\"b\":1,\"\\u0062\":2}]}").unwrap();
        assert!(read.duplicates && read.depth == 3, "{read:?}");
        assert_eq!(
            value("[-0.0,1E+2,0e-1,12]"),
            Json::List(
                ["-0.0", "1e2", "0e-1", "12"]
                    .map(|text| Json::Number(text.into()))
                    .into()
            )
        );
    }

    #[test]
    fn half_a_pair_is_told() {
        for text in [r#""\ud800""#, r#""\udc00\ud83d""#, r#""\ud83d\u0041""#] {
            assert!(read(text).is_some_and(|read| read.halves), "{text}");
        }
        assert!(!read(r#""\ud83d\ude00""#).unwrap().halves);
    }

    #[test]
    fn what_is_no_json_is_not_read() {
        for text in [
            "",
            " ",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "nul",
            "1 2",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u+123\"",
            "\"",
            "[",
            "NaN",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
