//! Times the parts of a call's way through the daemon, one by one: names, arguments, results, frames.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark ends at the first thing that is not as it should be"
)]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use ptcd::names::Names;
use ptcd::pool::frame::{Answer, ToWorker, read_frame};
use ptcd::registry::door::Tool;
use serde_json::json;

/// Bytes of a usual result, and of one near the largest that is let through.
const RESULTS: [usize; 2] = [100, 10_000_000];
/// More than any result here.
const LIMIT: usize = 32 << 20;

fn main() {
    divan::main();
}

/// The line of a server that answers with a text of `size` bytes.
fn line(size: usize) -> Vec<u8> {
    let result = json!({"content": [{"type": "text", "text": "x".repeat(size)}]});
    json!({"jsonrpc": "2.0", "id": 7, "result": result})
        .to_string()
        .into_bytes()
}

#[divan::bench(args = RESULTS)]
fn a_result_is_read(bencher: Bencher<'_, '_>, size: usize) {
    let (tool, line) = (Tool::new(None, None).unwrap(), line(size));
    bencher
        .counter(BytesCount::new(line.len()))
        .bench(|| tool.answer(black_box(&line), LIMIT).unwrap().unwrap());
}

/// What is no JSON is searched for the id of the call that it answers.
#[divan::bench(args = RESULTS)]
fn the_id_of_a_broken_result_is_found(bencher: Bencher<'_, '_>, size: usize) {
    let (tool, mut line) = (Tool::new(None, None).unwrap(), line(size));
    line.truncate(line.len() - 2);
    line.extend_from_slice(b", NaN}");
    bencher
        .counter(BytesCount::new(line.len()))
        .bench(|| tool.answer(black_box(&line), LIMIT));
}

/// With an output schema a result is parsed, and checked.
#[divan::bench(args = RESULTS)]
fn a_result_is_checked(bencher: Bencher<'_, '_>, size: usize) {
    let schema = json!({"type": "object", "properties": {"items": {"type": "array", "items": {"type": "integer"}}}});
    let tool = Tool::new(None, Some(schema)).unwrap();
    let items: Vec<usize> = (0..size / 8).map(|n| n + 1_000_000).collect();
    let result = json!({"content": [], "structuredContent": {"items": items}});
    let line = json!({"jsonrpc": "2.0", "id": 7, "result": result})
        .to_string()
        .into_bytes();
    bencher
        .counter(BytesCount::new(line.len()))
        .bench(|| tool.answer(black_box(&line), LIMIT).unwrap().unwrap());
}

#[divan::bench(args = RESULTS)]
fn a_frame_is_written(bencher: Bencher<'_, '_>, size: usize) {
    let value = json!("x".repeat(size)).to_string();
    let answer = ToWorker::Answer(Answer {
        id: 7,
        outcome: Ok(value.into()),
    });
    bencher
        .counter(BytesCount::new(size))
        .bench(|| black_box(&answer).encode().unwrap());
}

#[divan::bench(args = [100, 1_000_000])]
fn a_frame_is_read(bencher: Bencher<'_, '_>, size: usize) {
    let call = json!({"id": 1, "tool": "mcp__s__t", "arguments": {"text": "x".repeat(size)}});
    let body = format!("C{call}");
    let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    frame.extend_from_slice(body.as_bytes());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    bencher.counter(BytesCount::new(size)).bench(|| {
        let mut stream = black_box(&frame[..]);
        runtime.block_on(read_frame(&mut stream, LIMIT)).unwrap()
    });
}

#[divan::bench(args = [1, 100, 10_000])]
fn arguments_are_checked(bencher: Bencher<'_, '_>, items: usize) {
    let item = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "n": {"type": "integer", "minimum": 0}},
        "required": ["name"],
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": {"items": {"type": "array", "items": item}},
        "required": ["items"],
    });
    let tool = Tool::new(Some(schema), None).unwrap();
    let given: Vec<_> = (0..items)
        .map(|n| json!({"name": format!("item {n}"), "n": n}))
        .collect();
    let text = json!({"items": given}).to_string();
    bencher
        .counter(ItemsCount::new(items))
        .bench(|| tool.arguments(black_box(&text), true).unwrap());
}

/// Tools of a hundred servers, as they are first seen.
fn tools(count: usize) -> Vec<(String, String)> {
    (0..count)
        .map(|n| (format!("server-{}", n % 100), format!("read.thing-{n}")))
        .collect()
}

#[divan::bench(args = [100, 10_000])]
fn names_are_given(bencher: Bencher<'_, '_>, count: usize) {
    let tools = tools(count);
    let seen = || tools.iter().map(|(server, tool)| (&**server, &**tool));
    bencher.counter(ItemsCount::new(count)).bench(|| {
        let mut names = Names::default();
        assert!(names.assign(seen()));
        names
    });
}

#[divan::bench(args = [100, 10_000])]
fn names_are_looked_up(bencher: Bencher<'_, '_>, count: usize) {
    let tools = tools(count);
    let mut names = Names::default();
    names.assign(tools.iter().map(|(server, tool)| (&**server, &**tool)));
    bencher.counter(ItemsCount::new(count)).bench(|| {
        for (server, tool) in &tools {
            black_box(names.callable(server, tool)).unwrap();
        }
    });
}
