//! Makes visible what would steer a terminal, in text and in JSON.

use std::fmt::Write as _;

/// A text with escapes in place of what would steer a terminal; tabs and line ends stay.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_line = c == '\r' && chars.peek() == Some(&'\n');
        if !steers(c) || ends_line {
            out.push(c);
        } else if u32::from(c) < 0x100 {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        } else {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    out
}

/// The JSON of a value with escapes of JSON in place of what would steer a terminal: the same value.
pub(super) fn json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Tabs and line ends stand between the values only.
        if steers(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters but tabs and line feeds, and the marks that set the direction of what follows.
pub(super) fn steers(c: char) -> bool {
    c != '\n' && c != '\t' && ptc_protocol::text::steers(c)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn what_steers_a_terminal_is_shown_and_the_rest_stays() {
        assert_eq!(
            super::text("a\u{1b}[2J\u{9b}m\u{7f}\u{202e}\u{200f}\u{61c}\tü\r\n\r"),
            "a\\x1b[2J\\x9bm\\x7f\\u202e\\u200f\\u061c\tü\r\n\\x0d"
        );
    }

    #[test]
    fn json_keeps_its_value() {
        let value = json!({"\u{9b}": ["\u{202e}\u{7f}", "\u{1b}\n", "ü"]});
        for text in [value.to_string(), format!("{value:#}")] {
            let shown = super::json(&text);
            assert!(
                !shown.contains(['\u{9b}', '\u{202e}', '\u{7f}']),
                "{}",
                shown.escape_debug()
            );
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
