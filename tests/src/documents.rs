//! Makes JSON texts of every odd form from a seed, so that a failure can be repeated.

use std::fmt::Write as _;

use fastrand::Rng;

/// Numbers at which readers differ.
pub const NUMBERS: [&str; 31] = [
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1",
    "-1",
    "1.0",
    "1.5",
    "42",
    "1e3",
    "1E3",
    "1E+3",
    "1e-3",
    "1.10",
    "1e308",
    "-1e308",
    "1e400",
    "5e-324",
    "1e-400",
    "0.1",
    "1e16",
    "1e22",
    "1e23",
    "9007199254740993",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1267650600228229401496703205376",
    "12345678901234567890.0",
    "3.141592653589793238",
    "2.5e-9",
];

/// Keys that mean something to someone on the way.
pub const KEYS: [&str; 24] = [
    "",
    "a",
    "result",
    "_notes",
    "_ptc_notes",
    "data",
    "self",
    "name",
    "tool_name",
    "code",
    "arguments",
    "type",
    "text",
    "id",
    "$ref",
    "$serde_json::private::Number",
    "$serde_json::private::RawValue",
    "__class__",
    "max-results",
    "grüße",
    "a b",
    "0",
    "True",
    "\u{1f600}",
];

/// Pieces of strings as they stand in JSON, escapes included.
const PIECES: [&str; 34] = [
    "a",
    "Z",
    " ",
    "0",
    "\\\"",
    "\\\\",
    "\\/",
    "\\b",
    "\\f",
    "\\n",
    "\\r",
    "\\t",
    "\\u0000",
    "\\u001b",
    "\\u007f",
    "\u{7f}",
    "\\u00e9",
    "é",
    "e\u{301}",
    "\\u2028",
    "\u{2028}",
    "\u{85}",
    "\\ud83d\\ude00",
    "\\uD83D\\uDE00",
    "😀",
    "\u{10ffff}",
    "\u{feff}",
    "\\ufffe",
    "\u{202e}",
    "'",
    "{",
    "]",
    "null",
    "\u{ffff}",
];

/// How texts are made.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Most brackets open at once.
    pub depth: usize,
    /// Whether a key may come twice.
    pub duplicates: bool,
}

/// A JSON text.
pub fn document(rng: &mut Rng, form: Form) -> String {
    let mut out = String::new();
    if form.depth > 8 && rng.u8(..16) == 0 {
        // A deep one and nothing else.
        let depth = rng.usize(1..=form.depth);
        let open: Vec<bool> = (0..depth).map(|_| rng.bool()).collect();
        for list in &open {
            out.push_str(if *list { "[" } else { "{\"k\":" });
        }
        out.push_str(if rng.bool() { "1" } else { "null" });
        for list in open.iter().rev() {
            out.push(if *list { ']' } else { '}' });
        }
        return out;
    }
    let form = Form {
        depth: form.depth.min(6),
        ..form
    };
    value(rng, form, &mut out);
    out
}

/// The text of a JSON object.
pub fn object_text(rng: &mut Rng, form: Form) -> String {
    let mut out = String::new();
    object(rng, form, &mut out);
    out
}

/// The text of a JSON string, quotes included.
pub fn string(rng: &mut Rng) -> String {
    let mut out = String::from("\"");
    let length = match rng.u8(..32) {
        0 => rng.usize(..300),
        1..=8 => 0,
        _ => rng.usize(..8),
    };
    for _ in 0..length {
        if rng.u8(..4) == 0 {
            let c = rng.char(..);
            match c {
                '"' | '\\' => out.push('x'),
                c if c < ' ' => {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{:04X}", u32::from(c));
                }
                c => out.push(c),
            }
        } else {
            out.push_str(PIECES[rng.usize(..PIECES.len())]);
        }
    }
    out.push('"');
    out
}

/// The text of a number.
pub fn number(rng: &mut Rng) -> String {
    match rng.u8(..6) {
        0..=2 => NUMBERS[rng.usize(..NUMBERS.len())].to_owned(),
        3 => rng.i64(..).to_string(),
        4 => {
            let number = f64::from_bits(rng.u64(..));
            if number.is_finite() {
                format!("{number:?}")
            } else {
                "0.5".to_owned()
            }
        }
        _ => {
            let digits: String = (0..rng.usize(1..60)).map(|_| rng.digit(10)).collect();
            let sign = if rng.bool() { "-" } else { "" };
            format!("{sign}{}", digits.trim_start_matches('0').to_owned() + "1")
        }
    }
}

fn blank(rng: &mut Rng, out: &mut String) {
    if rng.u8(..12) == 0 {
        out.push_str([" ", "\t", "\r", "  "][rng.usize(..4)]);
    }
}

fn value(rng: &mut Rng, form: Form, out: &mut String) {
    let kinds = if form.depth == 0 { 6 } else { 10 };
    match rng.u8(..kinds) {
        0 => out.push_str(["null", "true", "false"][rng.usize(..3)]),
        1..=2 => out.push_str(&number(rng)),
        3..=5 => out.push_str(&string(rng)),
        6..=7 => list(rng, form, out),
        _ => object(rng, form, out),
    }
}

fn list(rng: &mut Rng, form: Form, out: &mut String) {
    let below = Form {
        depth: form.depth.saturating_sub(1),
        ..form
    };
    out.push('[');
    for at in 0..rng.usize(..5) {
        if at > 0 {
            out.push(',');
        }
        blank(rng, out);
        value(rng, below, out);
        blank(rng, out);
    }
    out.push(']');
}

fn object(rng: &mut Rng, form: Form, out: &mut String) {
    let below = Form {
        depth: form.depth.saturating_sub(1),
        ..form
    };
    out.push('{');
    let count = rng.usize(..5);
    for at in 0..count {
        if at > 0 {
            out.push(',');
        }
        blank(rng, out);
        let key = match rng.u8(..4) {
            0 => string(rng),
            1 => format!("\"k{}\"", rng.u8(..)),
            _ => serde_json::Value::from(KEYS[rng.usize(..KEYS.len())]).to_string(),
        };
        if form.duplicates {
            out.push_str(&key);
        } else {
            // Its place in the object makes it differ from the others.
            let _ = write!(out, "{}{at}\"", key.strip_suffix('"').unwrap_or("\""));
        }
        blank(rng, out);
        out.push(':');
        blank(rng, out);
        value(rng, below, out);
        blank(rng, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn every_text_is_json_and_a_seed_gives_the_same_again() {
        let mut twice = 0;
        for seed in 0..2000 {
            let form = Form {
                depth: 100,
                duplicates: seed % 2 == 0,
            };
            let text = document(&mut Rng::with_seed(seed), form);
            assert_eq!(text, document(&mut Rng::with_seed(seed), form));
            let read = reference::read(&text);
            assert!(read.is_some(), "seed {seed}: {text:?}");
            let read = read.unwrap();
            assert!(form.duplicates || !read.duplicates, "seed {seed}: {text}");
            twice += usize::from(read.duplicates);
        }
        assert!(twice > 10, "{twice}");
    }
}
