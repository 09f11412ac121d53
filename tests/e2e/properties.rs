//! Values and output through a real Python, for many documents made from seeds.
//!
//! A failure names the seed and the document, which make it again.

use std::fmt::Write as _;

use fastrand::Rng;
use libtest_mimic::Trial;
use ptc_tests::documents::{self, Form};
use ptc_tests::reference::{self, Json};
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, TestResult, party_of};
use serde_json::{Value, json};

/// Seeds of one test, and documents for each.
const SEEDS: std::ops::Range<u64> = 0..4;
const DOCUMENTS: usize = 120;
/// Arguments may be nested a hundred levels deep, and the tests put three around a document.
const FORM: Form = Form {
    depth: 96,
    duplicates: true,
};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        results_are_what_python_reads_in_the_same_text,
        arguments_reach_the_server_as_python_writes_them,
        half_a_surrogate_pair_in_a_result_costs_one_character,
        values_nested_too_deep_fail_their_call_and_say_so,
        emitted_values_reach_the_client_with_every_digit,
        bytes_written_to_the_descriptors_are_the_output,
        printed_text_is_the_output_whatever_it_holds,
    ]
}

fn party() -> (Home, Daemon, Client) {
    let plan = Plan::new()
        .server("m", &["--verbatim"])
        .set("execution.max_tool_calls", 5000)
        .set("execution.max_output_bytes", 4 * 1024 * 1024);
    party_of(&plan)
}

/// The line of a program that sets a name to a value, every character of which arrives.
fn assignment(name: &str, value: &Value) -> String {
    // A string of JSON is a string of Python, too.
    format!("{name} = json.loads({})\n", Value::from(value.to_string()))
}

/// What a program does with the documents: each fault is printed, and at the end their number.
#[track_caller]
fn check(client: &mut Client, seed: u64, documents: &[String], program: &str) {
    let code = format!(
        "import json\nsame = 0\n{}{program}\nprint('same', same)",
        assignment("DOCUMENTS", &json!(documents))
    );
    let run = client.run(&code);
    assert!(
        !run.is_error && run.printed() == format!("same {}", documents.len()),
        "seed {seed}: {}",
        run.text
    );
}

fn made(seed: u64) -> Vec<String> {
    let mut rng = Rng::with_seed(seed);
    (0..DOCUMENTS)
        .map(|_| documents::document(&mut rng, FORM))
        .collect()
}

/// Gives a document back in every form a result has, and reads the same text with `json`.
const READS: &str = r#"
def plain(text):
    "What a text block must become: only what is surely JSON is read."
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, str):
        return text
    if type(value) in (int, float) and ("e" in text or json.dumps(value) != text):
        return text
    return value

def forms(document):
    value = json.loads(document)
    block = lambda text: '{"type": "text", "text": %s}' % json.dumps(text)
    structured = '{"content": [], "structuredContent": %s}'
    alone = value["result"] if type(value) is dict and list(value) == ["result"] else value
    yield structured % document, alone
    yield structured % ('{"v": %s}' % document), {"v": value}
    yield structured % ('{"result": %s}' % document), value
    yield '{"content": [%s], "structuredContent": %s}' % (block(document), document), value
    yield '{"content": [%s]}' % block(document), plain(document)
    listed = "[%s]" % document
    yield '{"content": [%s, %s]}' % (block(listed), block("{}")), [[value], {}]

for document in DOCUMENTS:
    good = True
    for raw, expected in forms(document):
        try:
            got = await mcp__m__raw_result(json=raw)
        except ToolError as error:
            got = error
        if repr(got) != repr(expected):
            good = False
            print("RAW", ascii(raw), "\nGOT", ascii(got), "\nEXPECTED", ascii(expected))
    same += good
"#;

fn results_are_what_python_reads_in_the_same_text() -> TestResult {
    let (_home, _daemon, mut client) = party();
    for seed in SEEDS {
        check(&mut client, seed, &made(seed), READS);
    }
    Ok(())
}

/// Sends what a document holds and compares the bytes that the server got with what `json` writes.
const SENDS: &str = r#"
def expected(arguments):
    try:
        text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return "arguments: " + text
    except ValueError:
        return ValueError

for document in DOCUMENTS:
    value = json.loads(document)
    good = True
    for arguments in [{"v": value}] + ([value] if type(value) is dict else []):
        try:
            got = await mcp__m__echo(**arguments)
        except ToolError as error:
            got = error
        except ValueError:
            got = ValueError
        if got != expected(arguments):
            good = False
            print("SENT", ascii(arguments), "\nGOT", ascii(got))
    same += good
"#;

fn arguments_reach_the_server_as_python_writes_them() -> TestResult {
    let (_home, _daemon, mut client) = party();
    for seed in SEEDS {
        check(&mut client, seed, &made(seed), SENDS);
    }
    Ok(())
}

fn half_a_surrogate_pair_in_a_result_costs_one_character() -> TestResult {
    let (_home, _daemon, mut client) = party();
    let result = json!(
        r#"{"content": [{"type": "text", "text": "cut \ud83d"}], "structuredContent": {"\udfff": "a\ud83d", "whole": "\ud83d\ude00"}}"#
    );
    let text = json!(r#"{"content": [{"type": "text", "text": "{\"cut\": \"\\ud83d\"}"}]}"#);
    let run = client.run(&format!(
        "for raw in [{result}, {text}]:\n    print(ascii(await mcp__m__raw_result(json=raw)))"
    ));
    assert_eq!(
        run.printed(),
        "{'\\ufffd': 'a\\ufffd', 'whole': '\\U0001f600', '_notes': ['cut \\ufffd']}\n{'cut': '\\ufffd'}"
    );
    Ok(())
}

fn values_nested_too_deep_fail_their_call_and_say_so() -> TestResult {
    let (_home, _daemon, mut client) = party();
    let run = client.run(
        r#"
for depth in (100, 125, 126, 5000, 100000):
    raw = '{"content": [], "structuredContent": %s%s}' % ("[" * depth, "]" * depth)
    try:
        value, found = await mcp__m__raw_result(json=raw), 1
        while value:
            value, found = value[0], found + 1
        print(depth, found)
    except ToolError as error:
        print(depth, error.kind, "nested deeper" in str(error))
value = []
for depth in range(1, 102):
    value = [value]
    if depth in (98, 99, 101):
        try:
            await mcp__m__echo(v=value)
            print(depth, "sent")
        except ValueError as error:
            print(depth, "nested deeper" in str(error))
"#,
    );
    assert_eq!(
        run.printed(),
        "100 100\n125 125\n126 protocol True\n5000 protocol True\n100000 protocol True\n98 sent\n99 True\n101 True"
    );
    Ok(())
}

/// Emits all that can be emitted of the documents, and prints the same as text.
const EMITS: &str = r"
def fits(value):
    try:
        json.dumps(value, allow_nan=False)
        return True
    except ValueError:
        return False

values = [value for value in map(json.loads, DOCUMENTS) if fits(value)]
emit(values)
print(json.dumps(values))
";

fn emitted_values_reach_the_client_with_every_digit() -> TestResult {
    let (_home, _daemon, mut client) = party();
    for seed in SEEDS {
        let code = format!(
            "import json\n{}{EMITS}",
            assignment("DOCUMENTS", &json!(made(seed)))
        );
        let params = json!({"name": "execute_program", "arguments": {"code": code}});
        client.request("tools/call", &params);
        // Read by the plain reader: others take some keys for numbers.
        let line = client.line(PATIENCE * 2).unwrap_or_default();
        let answer = reference::read(&line).map(|read| read.value);
        let form = answer
            .as_ref()
            .and_then(|answer| answer.get("result")?.get("structuredContent"));
        let (Some(form), Some(Json::Text(output))) =
            (form, form.and_then(|form| form.get("output")))
        else {
            anyhow::bail!("seed {seed}: {line}");
        };
        let printed = reference::read(output).map(|read| read.value);
        assert!(
            printed.is_some() && form.get("result") == printed.as_ref(),
            "seed {seed}: {:?} is printed and {:?} emitted",
            printed,
            form.get("result")
        );
    }
    Ok(())
}

/// A text as a client gets it, by the rule in words: nothing in it steers a terminal.
fn shown(text: &str) -> String {
    let mut out = String::new();
    let chars: Vec<char> = text.chars().collect();
    for (at, c) in chars.iter().copied().enumerate() {
        let line_end = c == '\r' && chars.get(at + 1) == Some(&'\n');
        let turns =
            ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
        if line_end || c == '\n' || c == '\t' || !(c.is_control() || turns) {
            out.push(c);
        } else {
            let code = u32::from(c);
            let _ = if code < 256 {
                write!(out, "\\x{code:02x}")
            } else {
                write!(out, "\\u{code:04x}")
            };
        }
    }
    out
}

/// Bytes that are text, nearly text, and none.
fn odd_bytes(rng: &mut Rng) -> Vec<u8> {
    let pieces: [&[u8]; 14] = [
        b"plain",
        "grüße €😀".as_bytes(),
        b"\xff",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\x1b[2J\x07",
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b"\xed\xa0\x80",
        "\u{202e}\u{9b}".as_bytes(),
        b"\xc0\xaf",
    ];
    (0..rng.usize(1..30))
        .flat_map(|_| match rng.u8(..8) {
            0 => vec![rng.u8(..)],
            _ => pieces[rng.usize(..pieces.len())].to_vec(),
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn cut(rng: &mut Rng, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rng.usize(1..=rest.len().min(7)));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

fn bytes_written_to_the_descriptors_are_the_output() -> TestResult {
    let (_home, _daemon, mut client) = party();
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let bytes = [b"<", odd_bytes(&mut rng).as_slice(), b">"].concat();
        let pieces: Vec<String> = cut(&mut rng, &bytes)
            .iter()
            .map(|piece| hex(piece))
            .collect();
        let fd = rng.u8(1..=2);
        let run = client.run(&format!(
            "import os\nfor piece in {pieces:?}:\n    os.write({fd}, bytes.fromhex(piece))"
        ));
        let expected = shown(&String::from_utf8_lossy(&bytes));
        assert_eq!(
            run.structured["output"], expected,
            "seed {seed}, descriptor {fd}: {bytes:?}"
        );
    }
    Ok(())
}

fn printed_text_is_the_output_whatever_it_holds() -> TestResult {
    let (_home, _daemon, mut client) = party();
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let bytes = [b"<", odd_bytes(&mut rng).as_slice(), b">"].concat();
        let pieces: Vec<String> = cut(&mut rng, &bytes)
            .iter()
            .map(|piece| hex(piece))
            .collect();
        // What print cannot encode, and bytes that are no text, are written as escapes.
        let run = client.run(&format!(
            "import sys\n\
             whole = bytes.fromhex('{}')\n\
             for piece in {pieces:?}:\n    sys.stdout.buffer.write(bytes.fromhex(piece))\n\
             print()\n\
             half = whole.decode('utf-8', 'surrogateescape')\n\
             for at in range(0, len(half), 3):\n    print(half[at:at + 3], end='', file=[sys.stdout, sys.stderr][at % 2])\n\
             emit([whole.decode('utf-8', 'backslashreplace'), \
             half.encode('utf-8', 'backslashreplace').decode('utf-8')])",
            hex(&bytes)
        ));
        let texts = &run.structured["result"];
        let (Some(first), Some(second)) = (texts[0].as_str(), texts[1].as_str()) else {
            anyhow::bail!("seed {seed}: {}", run.text);
        };
        let expected = shown(&format!("{first}\n{second}"));
        assert_eq!(run.structured["output"], expected, "seed {seed}: {bytes:?}");
    }
    Ok(())
}
