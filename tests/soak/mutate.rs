//! Changes an input a little: bytes, ranges, and the words of JSON.

use fastrand::Rng;
use ptc_tests::documents::{self, Form, KEYS, NUMBERS};
use ptc_tests::programs::data;
use serde_json::Value;

/// What a JSON text is made of, and what readers stumble over.
const WORDS: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "null",
    "true",
    "false",
    "NaN",
    "Infinity",
    "-",
    "-0",
    "1e999",
    "{}",
    "[]",
    "\"\"",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "\u{feff}",
    "\0",
    "\n",
    "\r\n",
    " ",
    "//",
    "\u{1e}",
    "9999999999999999999999",
    "0.0",
    "1.0",
    "\"$ref\":\"#\"",
    "\"isError\":true",
];

/// Longest input that is made, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Changes a few things, often one.
pub(crate) fn mutate(rng: &mut Rng, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
    let times = 1 << rng.u8(..4);
    for _ in 0..rng.usize(1..=times) {
        once(rng, input, kept);
    }
    input.truncate(MAX_BYTES);
}

fn once(rng: &mut Rng, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
    let at = rng.usize(..=input.len());
    let end = (at + rng.usize(..=16)).min(input.len());
    match rng.u8(..10) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.u8(..8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.u8(..);
            }
        }
        2 => drop(input.drain(at..end)),
        3 => {
            let part = input[at..end].to_vec();
            let to = rng.usize(..=input.len());
            input.splice(to..to, part);
        }
        4 => {
            let times = rng.usize(1..200);
            let part = input[at..end].repeat(times);
            input.splice(at..at, part);
        }
        5 if !kept.is_empty() => {
            let other = &kept[rng.usize(..kept.len())];
            let from = rng.usize(..=other.len());
            let to = rng.usize(from..=other.len());
            input.splice(at..end, other[from..to].iter().copied());
        }
        6 => {
            let word = NUMBERS[rng.usize(..NUMBERS.len())];
            input.splice(at..end, word.bytes());
        }
        7 => {
            let key = Value::from(KEYS[rng.usize(..KEYS.len())]);
            input.splice(at..at, format!("{key}:").into_bytes());
        }
        8 => {
            let form = Form {
                depth: 3,
                duplicates: true,
            };
            input.splice(at..end, documents::document(rng, form).into_bytes());
        }
        _ => {
            let word = WORDS[rng.usize(..WORDS.len())];
            input.splice(at..at, word.bytes());
        }
    }
}

/// The bytes of the golden frames of a file in `tests/frames`.
pub(crate) fn golden(name: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(data("frames").join(name)).expect("the golden frames");
    let rows = text.lines().map(serde_json::from_str::<Value>);
    rows.map(|row| {
        let row = row.expect("a row of JSON");
        let hex = row["hex"].as_str().expect("its bytes");
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte"))
            .collect()
    })
    .collect()
}

/// The words of a message that are not taken from the input, as the kind of an outcome.
pub(crate) fn kind_of(message: &str) -> String {
    // What is quoted comes from the input, and so do digits.
    let mut kind = String::new();
    let mut quoted = false;
    for c in message.chars().take(400) {
        match c {
            '`' | '"' => quoted = !quoted,
            _ if quoted => {}
            c if c.is_ascii_alphabetic() || c == ' ' => kind.push(c),
            _ => {}
        }
    }
    kind.chars().take(90).collect()
}
