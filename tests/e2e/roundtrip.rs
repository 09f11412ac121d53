//! Every form of value through every Python this machine has: emitted, printed, and as the result of a tool.

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::pythons::{self, Python};
use ptc_tests::reference::{self, Json};
use ptc_tests::suite::{skip, trial};
use ptc_tests::{Home, PATIENCE, Plan, TestResult};
use serde_json::{Value, json};

/// One JSON text for every form a value has, the odd ones among them.
const SHAPES: [&str; 34] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "9007199254740993",
    "-9223372036854775809",
    "1267650600228229401496703205376",
    "0.0",
    "-0.0",
    "1.0",
    "0.1",
    "-2.5e-09",
    "1e+22",
    "1.7976931348623157e+308",
    "5e-324",
    "\"\"",
    "\"text\"",
    "\"42\"",
    "\"null\"",
    "\"{}\"",
    r#""\"\\\n\r\t\b\f\u0000\u001b""#,
    "\"grüße €\"",
    "\"😀\u{10ffff}\"",
    "\"\u{2028}\u{202e}\u{feff}\u{7f}\"",
    "[]",
    "{}",
    "[null,[],{},\"\",0]",
    "[[[[[[1]]]]]]",
    r#"{"":{"":[]}," ":1,"a b":2,"ä":3,"😀":4}"#,
    r#"{"result":1}"#,
    r#"{"_notes":["own"],"data":2}"#,
    r#"{"z":1,"a":{"y":2,"b":3}}"#,
    r#"{"$serde_json::private::Number":"1","__class__":null}"#,
];

/// Prints a line for each shape: whether the tool gave it, and how Python writes it.
const PROGRAM: &str = r#"
import json, sys
values = []
for text in SHAPES:
    value = json.loads(text)
    values.append(value)
    got = await mcp__m__raw_result(json='{"content": [], "structuredContent": {"result": %s}}' % text)
    sent = await mcp__m__echo(value=value)
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    right = repr(got) == repr(value) and sent == 'arguments: {"value":%s}' % written
    print(right, json.dumps(value))
print("%d.%d" % sys.version_info[:2])
emit(values)
"#;

pub(super) fn tests() -> Vec<Trial> {
    let under = |name: &str, minors: std::ops::RangeInclusive<u32>| {
        trial("roundtrip", name, move || {
            let found: Vec<Python> = pythons::found()
                .into_iter()
                .filter(|python| minors.contains(&python.minor))
                .collect();
            if found.is_empty() {
                return skip(format!("no CPython 3.{} was found", minors.start()));
            }
            found.iter().try_for_each(check)
        })
    };
    vec![
        under("every_value_survives_python_3_11", 11..=11),
        under("every_value_survives_python_3_12", 12..=12),
        under("every_value_survives_python_3_13", 13..=13),
        under("every_value_survives_a_later_python", 14..=99),
    ]
}

fn check(python: &Python) -> TestResult {
    let (path, _copy) = python.within_reach()?;
    let path = path.display().to_string();
    let plan = Plan::new()
        .server("m", &["--verbatim"])
        .set("execution.python", path.as_str());
    let home = Home::new(&plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let shapes = Value::from(json!(SHAPES.as_slice()).to_string());
    let code = format!("import json\nSHAPES = json.loads({shapes})\n{PROGRAM}");
    let params = json!({"name": "execute_program", "arguments": {"code": code}});
    client.request("tools/call", &params);
    // Read by the plain reader, which takes no key for a number.
    let line = client.line(PATIENCE * 2).unwrap_or_default();
    let answer = reference::read(&line).map(|read| read.value);
    let form = answer
        .as_ref()
        .and_then(|answer| answer.get("result")?.get("structuredContent"));
    let (Some(Json::Text(output)), Some(Json::List(emitted))) = (
        form.and_then(|form| form.get("output")),
        form.and_then(|form| form.get("result")),
    ) else {
        anyhow::bail!("{path}: {line}");
    };
    let mut lines: Vec<&str> = output.lines().collect();
    let version = format!("3.{}", python.minor);
    assert_eq!(lines.pop(), Some(version.as_str()), "{path}");
    assert_eq!(
        (lines.len(), emitted.len()),
        (SHAPES.len(), SHAPES.len()),
        "{path}"
    );
    for ((shape, line), emitted) in SHAPES.iter().zip(lines).zip(emitted) {
        let written = line.strip_prefix("True ").and_then(reference::read);
        let expected = reference::read(shape).map(|read| read.value);
        assert_eq!(written.map(|read| read.value), expected, "{path}: {line}");
        assert_eq!(Some(emitted), expected.as_ref(), "{path}: {shape}");
    }
    Ok(())
}
