//! What a worker says on its channel, and when.

use serde_json::{Value, json};

use crate::party::{Limits, Party};

fn start(program: &str) -> Party {
    let mut party = Party::start(Limits::default());
    party.run(program);
    party
}

fn text_of(last: Option<(char, Value)>) -> String {
    let (kind, done) = last.unwrap();
    assert_eq!(kind, 'D', "{done}");
    done["error"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The program's end, which is to be a good one, and its output.
fn well(mut party: Party) -> String {
    let (_, last) = party.follow();
    let (kind, done) = last.unwrap();
    assert_eq!((kind, &done["ok"]), ('D', &json!(true)), "{done}");
    party.end().output
}

#[test]
fn several_calls_are_in_flight_and_may_be_answered_in_any_order() {
    let mut party = start(
        "import asyncio\nasync def one(i):\n    return await mcp__m__echo(text=i)\n\
         print(await asyncio.gather(*[one(i) for i in range(20)]))",
    );
    let mut calls: Vec<(Value, Value)> = (0..20)
        .map(|_| {
            let (kind, body) = party.read().unwrap();
            assert_eq!(kind, 'C');
            (body["id"].clone(), body["arguments"]["text"].clone())
        })
        .collect();
    calls.reverse();
    for (id, value) in calls {
        party.answer(&id, &value);
    }
    assert_eq!(well(party), format!("{:?}\n", (0..20).collect::<Vec<_>>()));
}

#[test]
fn a_task_goes_on_as_soon_as_its_own_answer_is_there() {
    let mut party = start(
        "import asyncio\nasync def two(i):\n    await mcp__m__echo(text=i)\n    return await mcp__m__echo(text=-i)\n\
         print(await asyncio.gather(two(1), two(2)))",
    );
    let (_, first) = party.read().unwrap();
    let (_, second) = party.read().unwrap();
    party.answer(&second["id"], &json!(2));
    let (_, third) = party.read().unwrap();
    assert_eq!(third["arguments"], json!({"text": -2}));
    party.answer(&third["id"], &json!(-2));
    party.answer(&first["id"], &json!(1));
    assert_eq!(well(party), "[-1, -2]\n");
}

#[test]
fn sleeps_of_several_tasks_pass_at_once_and_calls_go_on_meanwhile() {
    let party = start(
        "import asyncio, time\nasync def wait():\n    await asyncio.sleep(3600)\n\
         async def work():\n    for i in range(3):\n        print(await mcp__m__echo(text=i))\n    exit()\n\
         await asyncio.gather(wait(), wait(), work())",
    );
    assert_eq!(well(party), "0\n1\n2\n");
}

#[test]
fn a_call_that_is_never_awaited_begins_and_is_named_at_the_end() {
    let mut party = start(
        "mcp__m__echo(text=1)\nx = mcp__m__echo(text=2)\nawait mcp__m__echo(text=3)\nprint('over')",
    );
    let ids: Vec<Value> = (0..3)
        .map(|_| party.read().unwrap().1["id"].clone())
        .collect();
    party.answer(&ids[2], &json!(3));
    let (kind, done) = party.read().unwrap();
    assert_eq!(kind, 'D');
    assert_eq!(done["unawaited"], json!(["mcp__m__echo"]));
    assert_eq!((&done["ok"], &done["eager"]), (&json!(true), &json!(true)));
    assert_eq!(party.end().output, "over\n");
}

#[test]
fn an_error_of_a_tool_is_caught_by_its_name_and_tells_all_it_knows() {
    let party = start(
        "async def go():\n    try:\n        await mcp__m__fail()\n    except ToolError as e:\n        return str(e), tool_error(e)\n\
         print(await go())\ntry:\n    await mcp__m__fail()\nexcept Exception as e:\n    print(isinstance(e, ToolError))",
    );
    assert_eq!(
        well(party),
        "('valve closed', {'kind': 'tool_failed', 'message': 'valve closed', 'tool': 'mcp__m__fail', 'server': 'm', \
         'retryable': False, 'data': {'a': 1}})\nTrue\n"
    );
}

#[test]
fn what_the_program_itself_raises_keeps_its_own_class() {
    let mut party = start("raise OSError('disk')");
    assert!(text_of(party.follow().1).starts_with("OSError: disk\n"));
    let mut party = start("\n\nawait mcp__m__fail()");
    let text = text_of(party.follow().1);
    assert_eq!(
        text,
        "ToolError: valve closed\nTraceback (most recent call last):\n  File \"<program>\", line 3, in <module>\n    await mcp__m__fail()"
    );
}

#[test]
fn a_gap_is_told_before_any_call_is_made() {
    let gaps = [
        (
            "await mcp__m__echo(text=1)\nimport pandas",
            "the module pandas",
            2,
        ),
        (
            "await mcp__m__echo(text=1)\ndef f():\n    yield 1",
            "yield (a generator)",
            3,
        ),
        (
            "await mcp__m__echo(text=1)\nclass A(B):\n    pass",
            "a class with bases",
            2,
        ),
        (
            "import asyncio\nawait mcp__m__echo(text=1)\nasyncio.create_task(x())",
            "asyncio.create_task",
            3,
        ),
        ("await mcp__m__echo(text=1)\nprint(globals())", "globals", 2),
        (
            "await mcp__m__echo(text=1)\nclass A:\n    def __bool__(self): return False",
            "the method __bool__",
            3,
        ),
    ];
    for (program, construct, line) in gaps {
        let mut party = start(program);
        let (heard, last) = party.follow();
        assert_eq!(heard, []);
        let text = text_of(last);
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with(&format!(
                "NotImplementedError: {construct} is not in the engine monty: "
            )),
            "{text}"
        );
        assert!(first.ends_with("engine: cpython"), "{text}");
        assert!(text.contains(&format!("line {line}\n")), "{text}");
    }
}

#[test]
fn a_program_may_use_the_names_of_what_is_missing_for_itself() {
    let party = start(
        "class Box:\n    def __init__(self): self.kind = 'box'\n    def get(self, k): return k\n    def append(self, x): return x\n\
         def callable(x): return True\ndef format(x): return x\nopen = 3\nb = Box()\n\
         print(b.get(1), b.append(2), callable(1), format(2), open, b.kind)",
    );
    assert_eq!(well(party), "1 2 True 2 3 box\n");
}

#[test]
fn emitted_values_are_json_and_the_limit_is_told() {
    let mut party = start("emit([1, 'é', 2 ** 80])\nemit('x' * 70000)");
    let (heard, last) = party.follow();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].0, 'E');
    assert_eq!(
        heard[0].1.to_string(),
        "{\"value\":[1,\"é\",1208925819614629174706176]}"
    );
    assert!(text_of(last).starts_with(
        "ValueError: emit: the value is 70002 bytes of JSON, over the limit of 65536 bytes"
    ));
}

#[test]
fn output_stands_in_the_order_written_and_streams_can_be_told_apart() {
    let program = "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c', end='')\nawait mcp__m__echo(text=1)\nprint('d')";
    assert_eq!(well(start(program)), "a\nb\ncd\n");
    let mut party = Party::start(Limits::default());
    party.run_with(program, &json!({"apart": true}));
    let (heard, _) = party.follow();
    let said: Vec<String> = heard
        .iter()
        .filter(|(kind, _)| *kind == 'O')
        .map(|(_, body)| {
            format!(
                "{}:{}",
                body["stream"].as_str().unwrap(),
                body["text"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(said, ["stdout:a\n", "stderr:b\n", "stdout:c", "stdout:d\n"]);
    assert_eq!(party.end().output, "");
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let draw = |seed: Option<u64>| {
        let mut party = Party::start(Limits::default());
        let more = seed.map_or_else(|| json!({}), |seed| json!({"seed": seed}));
        party.run_with(
            "import random\nprint(random.random(), random.getrandbits(64))",
            &more,
        );
        well(party)
    };
    assert_eq!(draw(Some(7)), draw(Some(7)));
    assert_ne!(draw(Some(7)), draw(Some(8)));
    assert_ne!(draw(None), draw(None));
}

#[test]
fn a_program_that_computes_says_where_it_is_when_it_is_stopped() {
    for program in [
        "def spin():\n    n = 0\n    while True:\n        n += 1\nprint('on')\nspin()",
        "def spin():\n    n = 0\n    while True:\n        try:\n            n += 1\n        except BaseException:\n            pass\nprint('on')\nspin()",
    ] {
        let mut party = start(program);
        party.send('X', &json!({"reason": "timeout"}));
        let (_, last) = party.follow();
        let (kind, body) = last.unwrap();
        assert_eq!(kind, 'W');
        let line = body["lines"][0]["line"].as_u64().unwrap();
        assert!((3..=8).contains(&line), "{body}");
        assert_eq!(body["lines"][0]["function"], "spin");
        party.hang_up();
        assert_eq!(party.end().output, "on\n");
    }
}

#[test]
fn a_program_that_waits_says_where_it_waits_when_it_is_stopped() {
    let waits = [
        (
            "async def ask():\n    return await mcp__m__echo(text=1)\nawait ask()",
            2,
            "ask",
        ),
        (
            "import asyncio\nasync def main():\n    await asyncio.gather(mcp__m__echo(text=1), mcp__m__echo(text=2))\nawait main()",
            3,
            "main",
        ),
        ("import asyncio\n\nawait asyncio.sleep(3600)", 3, "<module>"),
        ("import time\ntime.sleep(3600)", 2, "<module>"),
    ];
    for (program, line, function) in waits {
        let mut party = start(program);
        party.send('X', &json!({"reason": "timeout"}));
        let place = loop {
            match party.read().unwrap() {
                ('C', _) => {}
                other => break other,
            }
        };
        assert_eq!(
            place,
            (
                'W',
                json!({"lines": [{"line": line, "function": function}]})
            ),
            "{program}"
        );
    }
}

#[test]
fn large_arguments_and_results_pass_while_both_sides_write() {
    let mut party = start(
        "import asyncio\nx = 'a' * 3000000\nr = await asyncio.gather(*[mcp__m__echo(text=x) for _ in range(8)])\n\
         print(len(r), sum(len(one) for one in r))",
    );
    // Answers go out before all calls have come in: neither side may wait for the other for ever.
    let (heard, last) = party.follow();
    assert_eq!(heard.len(), 8);
    assert_eq!(last.unwrap().1["ok"], true);
    assert_eq!(party.end().output, "8 24000000\n");
}

#[test]
fn an_answer_to_nothing_and_one_given_twice_change_nothing() {
    let mut party = start("print(await mcp__m__echo(text=1))\nprint(await mcp__m__echo(text=2))");
    let (_, first) = party.read().unwrap();
    party.answer(&json!(999), &json!("nobody asked"));
    party.answer(&first["id"], &json!("one"));
    party.answer(&first["id"], &json!("again"));
    let (_, second) = party.read().unwrap();
    party.answer(&second["id"], &json!("two"));
    assert_eq!(well(party), "one\ntwo\n");
}
