//! The ways in which one secret may be written by programs that escape what they write.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::mask::MIN_CHARACTERS;

/// As it is, in JSON as one or the other library writes it, in JSON within JSON, in Rust's debug form, in Python's, in an
/// address.
pub(super) fn spellings(value: &str) -> HashSet<String> {
    let json = json_escaped(value);
    let mut quoted = vec![json.clone(), python(value, false), python(value, true)];
    for capital in [false, true] {
        let escape = |of: fn(char) -> bool| escaped(&json, of, capital);
        let beyond = escape(|c| !c.is_ascii() || c == '\u{7f}');
        let ascii = escape(|c| !c.is_ascii());
        quoted.extend([
            beyond,
            ascii.replace('/', "\\/"),
            ascii,
            // What could end a script or a tag, and the line ends of JavaScript.
            escape(|c| "<>&\u{2028}\u{2029}".contains(c)),
            escape(|c| !c.is_ascii() || "<>&'+`\u{7f}".contains(c)),
        ]);
    }
    quoted.push(json.replace('/', "\\/"));
    let again: Vec<String> = quoted.iter().map(|text| json_escaped(text)).collect();
    let mut found = HashSet::from([value.to_owned(), value.escape_debug().to_string()]);
    found.extend(quoted);
    found.extend(again);
    found.extend(in_address(value));
    found
}

/// The text as it stands between the quotes of a JSON string.
pub(super) fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(text).to_owned()
}

/// A JSON text in which these characters are written as the numbers of their UTF-16 units.
fn escaped(json: &str, which: fn(char) -> bool, capital: bool) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if !which(c) {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = if capital {
                write!(text, "\\u{unit:04X}")
            } else {
                write!(text, "\\u{unit:04x}")
            };
        }
    }
    text
}

/// The text as it stands between the quotes of `repr`, or of `ascii` where `all` is set; the quote itself is escaped
/// only where both kinds occur.
fn python(value: &str, all: bool) -> String {
    let both = value.contains('\'') && value.contains('"');
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        let number = u32::from(c);
        // Writing to a string cannot fail.
        let _ = match c {
            '\\' => write!(text, "\\\\"),
            '\'' if both => write!(text, "\\'"),
            '\n' => write!(text, "\\n"),
            '\r' => write!(text, "\\r"),
            '\t' => write!(text, "\\t"),
            _ if c.is_control() || (all && (0x80..0x100).contains(&number)) => {
                write!(text, "\\x{number:02x}")
            }
            _ if all && (0x100..0x1_0000).contains(&number) => write!(text, "\\u{number:04x}"),
            _ if all && number >= 0x1_0000 => write!(text, "\\U{number:08x}"),
            _ => write!(text, "{c}"),
        };
    }
    text
}

/// The ways a value may be written in an address: with what a path, a query, a form or a part of one escapes, a host in
/// small letters, and what stands before a `?` or `#` alone.
fn in_address(value: &str) -> Vec<String> {
    let mut found = vec![value.to_ascii_lowercase()];
    let parts = value
        .split(['?', '#'])
        .filter(|part| part.chars().count() >= MIN_CHARACTERS);
    for part in parts.chain([value]) {
        found.push(part.to_owned());
        let form: String = url::form_urlencoded::byte_serialize(part.as_bytes()).collect();
        found.push(form);
        for open in ["-._~", "-._~/", "-._~!*'()", "-._*"] {
            found.extend([true, false].map(|capital| percent(part, open, capital)));
        }
        let Ok(mut address) = url::Url::parse("http://h/") else {
            continue;
        };
        address.set_query(Some(part));
        found.extend(address.query().map(str::to_owned));
        address.set_path(part);
        let path = address.path();
        found.push(path.strip_prefix('/').unwrap_or(path).to_owned());
    }
    // Dots and slashes alone are taken out of a path.
    found.retain(|text| text.chars().count() >= MIN_CHARACTERS);
    found
}

/// The text with every byte as its number but for letters, digits and those that are `open`.
fn percent(text: &str, open: &str, capital: bool) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = char::from(byte);
        // Writing to a string cannot fail.
        let _ = if plain.is_ascii_alphanumeric() || open.contains(plain) {
            write!(written, "{plain}")
        } else if capital {
            write!(written, "%{byte:02X}")
        } else {
            write!(written, "%{byte:02x}")
        };
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_common_libraries_write_is_a_spelling() {
        let value = "a\"b'c\\d/<é&€\u{1f600}>\u{7f}\u{1} +~";
        let found = spellings(value);
        for (who, text) in [
            (
                "json.dumps of Python",
                r#"a\"b'c\\d/<\u00e9&\u20ac\ud83d\ude00>\u007f\u0001 +~"#,
            ),
            (
                "json_encode of PHP",
                "a\\\"b'c\\\\d\\/<\\u00e9&\\u20ac\\ud83d\\ude00>\u{7f}\\u0001 +~",
            ),
            (
                "JSON.stringify",
                "a\\\"b'c\\\\d/<é&€\u{1f600}>\u{7f}\\u0001 +~",
            ),
            (
                "encoding/json of Go",
                "a\\\"b'c\\\\d/\\u003cé\\u0026€\u{1f600}\\u003e\u{7f}\\u0001 +~",
            ),
            ("repr", "a\"b\\'c\\\\d/<é&€\u{1f600}>\\x7f\\x01 +~"),
            ("ascii", r#"a"b\'c\\d/<\xe9&\u20ac\U0001f600>\x7f\x01 +~"#),
            (
                "quote of Python, nothing safe",
                "a%22b%27c%5Cd%2F%3C%C3%A9%26%E2%82%AC%F0%9F%98%80%3E%7F%01%20%2B~",
            ),
            (
                "quote of Python",
                "a%22b%27c%5Cd/%3C%C3%A9%26%E2%82%AC%F0%9F%98%80%3E%7F%01%20%2B~",
            ),
            (
                "encodeURIComponent",
                "a%22b'c%5Cd%2F%3C%C3%A9%26%E2%82%AC%F0%9F%98%80%3E%7F%01%20%2B~",
            ),
            (
                "the same in small letters",
                "a%22b'c%5cd%2f%3c%c3%a9%26%e2%82%ac%f0%9f%98%80%3e%7f%01%20%2b~",
            ),
        ] {
            let found = found.contains(text);
            assert!(found, "{who}: {text}");
        }
        assert!(spellings("it's so long").contains("it's so long"));
    }

    #[test]
    fn what_needs_no_escaping_has_one_spelling() {
        assert_eq!(
            spellings("plain-value_1"),
            HashSet::from(["plain-value_1".to_owned()])
        );
    }
}
