//! Ways to doctor a record by hand, each with what a replay must say of it.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{PROGRAM, Record};

/// A way to doctor a record, and what a replay must say beside `super::CHANGED`.
pub(super) type Doctoring = (&'static str, fn(&mut Record), &'static [&'static str]);

/// Of calls and their results.
pub(super) const CALLS: [Doctoring; 19] = [
    (
        "another argument",
        |record| record.call(4)["arguments"] = json!("{\"a\":77,\"b\":2}"),
        &["call 4 is mcp__m__add({\"a\":1,\"b\":2}) and was mcp__m__add({\"a\":77,\"b\":2})"],
    ),
    (
        "an argument less",
        |record| record.call(5)["arguments"] = json!("{\"b\":3}"),
        &["call 5 is mcp__m__add({\"a\":3,\"b\":3}) and was mcp__m__add({\"b\":3})"],
    ),
    (
        "an argument more",
        |record| record.call(3)["arguments"] = json!("{\"a\":0,\"b\":1,\"c\":1}"),
        &["call 3 is mcp__m__add({\"a\":0,\"b\":1}) and was "],
    ),
    (
        "arguments left out",
        |record| record.call(3)["arguments"] = Value::Null,
        &["call 3 of the record, mcp__m__add(...), is not the one that was recorded"],
    ),
    (
        "another tool",
        |record| record.call(5)["tool"] = json!("mcp__m__echo"),
        &["call 5 is mcp__m__add({\"a\":3,\"b\":3}) and was mcp__m__echo({\"a\":3,\"b\":3})"],
    ),
    (
        "another server",
        |record| record.call(4)["server"] = json!("n"),
        &["call 4 of the record, "],
    ),
    (
        "another result",
        |record| record.call(3)["result"] = json!("{\"sum\":7}"),
        &[
            "the recorded result of call 3, ",
            "call 4 is mcp__m__add({\"a\":7,\"b\":2}) and was ",
        ],
    ),
    (
        "a result of another type",
        |record| record.call(4)["result"] = json!("[]"),
        &["the recorded result of call 4, ", "and now as script_error"],
    ),
    (
        "a result with a masked secret in it",
        |record| record.call(5)["result"] = json!("{\"sum\":\"<TOKEN:0a1b2c3d>\"}"),
        &["the recorded result of call 5, "],
    ),
    (
        "the result of another call, with its hash",
        |record| {
            let other = record.call(3).clone();
            let call = record.call(5);
            call["result"] = other["result"].clone();
            call["result_hash"] = other["result_hash"].clone();
        },
        &["call 5 of the record, ", "line 3 of the output was "],
    ),
    (
        "a failure for a result",
        |record| {
            let call = record.call(4);
            call["ok"] = json!(false);
            call["kind"] = json!("tool_failed");
            call["error"] = json!("made up");
        },
        &[
            "call 4 of the record, mcp__m__add",
            "call 5 of the record, mcp__m__add({\"a\":3,\"b\":3}), was not made",
        ],
    ),
    (
        "a result for a failure",
        |record| {
            let call = record.call(6);
            call["ok"] = json!(true);
            call["result"] = json!("1");
        },
        &["the recorded result of call 6, "],
    ),
    (
        "another kind of failure",
        |record| record.call(6)["kind"] = json!("timeout"),
        &[
            "call 6 of the record, ",
            "line 2 of the output was `tool_failed False ",
        ],
    ),
    (
        "other words of a failure",
        |record| record.call(6)["error"] = json!("yes"),
        &["call 6 of the record, ", "line 2 of the output was "],
    ),
    (
        "a failure that may pass",
        |record| record.call(6)["retryable"] = json!(true),
        &["call 6 of the record, ", "line 2 of the output was "],
    ),
    (
        "data beside a failure",
        |record| record.call(6)["data"] = json!("{\"more\":1}"),
        &["call 6 of the record, "],
    ),
    (
        "a call that was never sent",
        |record| {
            record.call(3)["sent_ms"] = Value::Null;
        },
        &["call 3 of the record, "],
    ),
    (
        "a call less",
        |record| record.parts.retain(|part| part["call"]["call"] != 4),
        &["call 4 is mcp__m__add({\"a\":1,\"b\":2}); the record has 5 calls"],
    ),
    (
        "a call more",
        |record| {
            let mut call = record.call(6).clone();
            call["call"] = json!(7);
            record.parts.push(json!({ "call": call }));
        },
        &["call 7 of the record, ", ", was not made"],
    ),
];

/// Of everything else in the file of parts.
pub(super) const PARTS: [Doctoring; 11] = [
    (
        "two calls that changed places",
        |record| {
            record.call(4)["call"] = json!(99);
            record.call(5)["call"] = json!(4);
            record.call(99)["call"] = json!(5);
        },
        &[
            "call 4 of the record, ",
            "call 5 of the record, ",
            "call 4 is mcp__m__add({\"a\":1,\"b\":2}) and was ",
        ],
    ),
    (
        "answers in another order",
        |record| {
            let order = record.part("answered").as_array_mut().expect("numbers");
            let place = |call: u64| order.iter().position(|at| at == call).expect("its place");
            let (one, two) = (place(1), place(2));
            order.swap(one, two);
        },
        &["line 1 of the output was "],
    ),
    (
        "another program",
        |record| *record.part("program") = json!(PROGRAM.replace("t = 0", "t = 10")),
        &["call 3 is mcp__m__add({\"a\":10,\"b\":1}) and was mcp__m__add({\"a\":0,\"b\":1})"],
    ),
    (
        "a program that does the same",
        |record| *record.part("program") = json!(format!("{PROGRAM}# by somebody else\n")),
        &[],
    ),
    (
        "another output",
        |record| {
            let output = &mut record.part("output")["output"];
            *output = json!(output.as_str().unwrap_or_default().replace("\n6 ", "\n66 "));
        },
        &["line 3 of the output was `66 "],
    ),
    (
        "another emitted value",
        |record| *record.part("result") = json!("{\"t\":66}"),
        &["the result was `{\"t\":66}`, and is `{\"t\":6}`"],
    ),
    (
        "another seed of random",
        |record| {
            let seed = &mut record.part("context")["seed"];
            *seed = json!(seed.as_u64().unwrap_or_default() ^ 1);
        },
        &["line 3 of the output was "],
    ),
    (
        "a tool less",
        |record| {
            let tools = record.part("context")["tools"]
                .as_object_mut()
                .expect("tools");
            tools.remove("mcp__m__sleep");
        },
        &[
            "call 1 of the record, mcp__m__sleep({\"ms\":30}), was not made",
            "and now as script_error",
        ],
    ),
    (
        "another answer of a helper",
        |record| {
            let answer = &mut record.part("query")["answer"];
            let text = answer.as_str().unwrap_or_default();
            *answer = json!(text.replace("mcp__m__add", "mcp__m__odd"));
        },
        &["line 3 of the output was "],
    ),
    (
        "a helper that was not asked",
        |record| record.parts.retain(|part| part.get("query").is_none()),
        &["the record has no answer of inspect_tool("],
    ),
    (
        "a file that ends early",
        |record| {
            record.parts.pop();
        },
        &["the result was `none`, and is `{\"t\":6}`"],
    ),
];

/// Of the head, which holds what is known of the run.
pub(super) const HEADS: [Doctoring; 9] = [
    (
        "a limit of calls",
        |record| record.facts()["limits"]["max_tool_calls"] = json!(3),
        &["call 4 of the record, ", ", was not made"],
    ),
    (
        "a number of calls",
        |record| record.head["record"]["calls"] = json!(5),
        &["5 calls were made, and 6 are now"],
    ),
    (
        "an ending",
        |record| record.head["record"]["ending"] = json!("script_error"),
        &["it ended as script_error, and now as finished"],
    ),
    (
        "an error",
        |record| record.head["record"]["error"] = json!("made up"),
        &["the error was `made up`, and is `none`"],
    ),
    (
        "a stronger tier",
        |record| record.head["record"]["confinement"] = json!("container"),
        &[],
    ),
    (
        "a replay that was not",
        |record| {
            let hash = record.facts()["output_sha256"].clone();
            record.facts()["replayed"] = json!({"time_ms": 1, "output_sha256": hash});
        },
        &[],
    ),
    (
        "less memory than was counted",
        |record| record.usage["usage"]["peak_memory_bytes"] = json!(1),
        &[],
    ),
    (
        "no seal",
        |record| {
            record.head.as_object_mut().expect("a head").remove("seal");
        },
        &[],
    ),
    (
        "a changed output with hashes that fit",
        |record| {
            let output = &mut record.part("output")["output"];
            let text = output.as_str().unwrap_or_default().replace("\n6 ", "\n66 ");
            *output = json!(text);
            let hash = |text: &str| ptc_protocol::hex(&Sha256::digest(text.as_bytes()));
            record.facts()["output_sha256"] = json!(hash(&text));
            let parts = record.lines();
            record.head["sealed"] = json!({"bytes": parts.len(), "sha256": hash(&parts)});
        },
        &["line 3 of the output was `66 "],
    ),
];
