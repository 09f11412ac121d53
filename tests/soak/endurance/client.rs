//! One client of a course: a real shim, programs without pause, and each answer looked at.

use fastrand::Rng;
use ptc_tests::{Client, Run};
use serde_json::Value;

use super::ledger::Ledger;
use super::{PATIENCE, Stage};

/// Servers whose `echo` is called.
const SERVERS: [&str; 5] = ["steady", "killed", "dies", "hangs", "floods"];
/// Programs after which a client leaves and another comes, on average.
const STAY: u32 = 60;

/// Works until the course is over.
pub(super) fn work(stage: &Stage<'_>, number: usize, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut count = 0_u64;
    stage.ledger.client(true);
    while !stage.control.is_over() {
        stage.ledger.count("clients");
        let mut client = stage.home.client();
        let mut ids = Vec::new();
        while !stage.control.is_over() && rng.u32(..STAY) > 0 {
            stage.control.pass();
            count += 1;
            let nonce = format!("nonce-{number}-{count}-{:08x}", rng.u32(..));
            let program = Program::choose(&mut rng);
            let id = client.start_run(&program.text(&nonce, stage.mark, &mut rng));
            let answer = client.answer_within(&id, PATIENCE);
            judge(stage.ledger, program, &nonce, answer);
            ids.push(id);
        }
        leave(stage.ledger, client, &ids);
    }
    stage.ledger.client(false);
}

/// Ends a client in order; what it still says is an answer too many.
fn leave(ledger: &Ledger, mut client: Client, ids: &[Value]) {
    for id in ids {
        if client.has_answer(id) {
            ledger.finding(format!("a second answer to {id}"));
        }
    }
    client.close_stdin();
    while let Some(line) = client.line(PATIENCE) {
        if line.contains("\"result\"") || line.contains("\"error\"") {
            ledger.finding(format!("an answer to nothing: {line:.300}"));
        }
    }
    let status = client.wait(PATIENCE);
    if !status.success() {
        ledger.finding(format!("a shim ended with {status}"));
    }
}

/// What a program does between its first line and its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// Nothing.
    Plain,
    /// One call.
    Call,
    /// Calls of every server at once.
    Gather,
    /// A call with a large result.
    Big,
    /// A call that takes a while.
    Slow,
    /// It raises.
    Raise,
}

impl Program {
    fn choose(rng: &mut Rng) -> Self {
        match rng.u8(..16) {
            0..3 => Self::Plain,
            3..9 => Self::Call,
            9..12 => Self::Gather,
            12 => Self::Big,
            13..15 => Self::Slow,
            _ => Self::Raise,
        }
    }

    fn text(self, nonce: &str, mark: &str, rng: &mut Rng) -> String {
        let server = SERVERS[rng.usize(..SERVERS.len())];
        let body = match self {
            Self::Plain => String::new(),
            Self::Call => format!("await one(lambda: mcp__{server}__echo(nonce=n))\n"),
            Self::Gather => {
                let calls =
                    SERVERS.map(|server| format!("one(lambda: mcp__{server}__echo(nonce=n))"));
                format!("await asyncio.gather({})\n", calls.join(", "))
            }
            Self::Big => format!(
                "size = {}\nawait one(lambda: mcp__steady__big(bytes=size), len, size)\n",
                rng.u32(1000..2_000_000)
            ),
            Self::Slow => format!(
                "await one(lambda: mcp__steady__sleep(ms={}), str, 'slept')\n\
                 await one(lambda: mcp__{server}__echo(nonce=n))\n",
                rng.u32(50..400)
            ),
            Self::Raise => "raise ValueError(n)\n".to_owned(),
        };
        // The file tells in which folder it ran, should one be left.
        format!(
            "import asyncio\n\
             n = '{nonce}'\n\
             print('begin', n)\n\
             open('{mark}', 'w').write(n)\n\
             async def one(call, look=lambda got: got['nonce'], want=n):\n\
             \x20   try:\n\
             \x20       got = look(await call())\n\
             \x20       print('same' if got == want else f'FOREIGN {{got!r}}')\n\
             \x20   except ToolError as e:\n\
             \x20       print('failed', e.kind)\n\
             \x20   except NameError as e:\n\
             \x20       print('failed', 'no such name')\n\
             {body}\
             print('end', n)\n"
        )
    }
}

/// Looks at an answer, and counts it.
fn judge(ledger: &Ledger, program: Program, nonce: &str, mut answer: Value) {
    ledger.count("requests, each answered once");
    let whole = answer.to_string();
    if let Some(other) = foreign(&whole, nonce) {
        ledger.finding(format!("{nonce} was answered with {other}: {whole:.600}"));
    }
    if answer.get("error").is_some() {
        return ledger.finding(format!(
            "{nonce}: an error in place of a result: {whole:.600}"
        ));
    }
    let run = Run::of(answer["result"].take());
    if run.text.contains("FOREIGN") {
        ledger.finding(format!("{nonce}: another value: {whole:.600}"));
    }
    for line in run.text.lines() {
        if let Some(kind) = line.strip_prefix("failed ") {
            ledger.count(format!("calls failed: {kind}"));
        } else if line == "same" {
            ledger.count("calls answered with their own value");
        }
    }
    if !run.is_error {
        let ends = format!("end {nonce}");
        if program == Program::Raise || run.without_trace().lines().last() != Some(&*ends) {
            ledger.finding(format!("{nonce}: no such success: {whole:.600}"));
        }
        let id = run.structured["run"].as_str().unwrap_or_default();
        return ledger.finished(id, nonce);
    }
    if run.text.starts_with("daemon restarted during this run") {
        return ledger.count("programs lost with their daemon");
    }
    if run.text.contains("ptcctl doctor") {
        return ledger.count("programs that found no daemon in time");
    }
    let ending = run.structured["ending"].as_str().unwrap_or_default();
    let raised = program == Program::Raise && run.text.contains(&format!("ValueError: {nonce}"));
    match ending {
        "script_error" if raised => ledger.count("programs that raised, as they should"),
        // The daemon said so while it ended, or every place was taken.
        "refused" => ledger.count("programs refused"),
        _ => ledger.finding(format!("{nonce} as {program:?}: {whole:.1000}")),
    }
}

/// A nonce in the text that is not this one.
fn foreign<'a>(text: &'a str, own: &str) -> Option<&'a str> {
    text.match_indices("nonce-").find_map(|(at, _)| {
        let rest = text.get(at..)?;
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .unwrap_or(rest.len());
        let found = rest.get(..end)?;
        // A text that was cut may hold the beginning of one.
        (!own.starts_with(found) && found.len() > "nonce-".len()).then_some(found)
    })
}

/// The judge must tell right from wrong.
pub(crate) fn a_wrong_answer_is_caught() {
    let finished = |nonce: &str, run: &str| {
        serde_json::json!({"id": 1, "result": {
            "content": [{"type": "text", "text": format!("[Script executed successfully]\nbegin {nonce}\nend {nonce}")}],
            "structuredContent": {"run": run, "ending": "finished"}, "isError": false,
        }})
    };
    let (own, other) = ("nonce-1-2-0000abcd", "nonce-3-2-0000abcd");
    let judged = |answers: &[Value]| {
        let ledger = Ledger::default();
        for answer in answers {
            judge(&ledger, Program::Plain, own, answer.clone());
        }
        ledger.findings()
    };
    assert_eq!(judged(&[finished(own, "r1"), finished(own, "r2")]), None);
    let cut = serde_json::json!({"id": 1, "result": {"isError": true,
        "content": [{"type": "text", "text": "daemon restarted during this run; nonce-1-"}]}});
    assert_eq!(judged(&[cut]), None);
    for (wrong, words) in [
        (vec![finished(other, "r1")], "was answered with nonce-3"),
        (
            vec![finished(own, "r1"), finished(own, "r1")],
            "run r1 answered",
        ),
        (
            vec![serde_json::json!({"id": 1, "error": {"code": 1, "message": "x"}})],
            "in place of a result",
        ),
    ] {
        let findings = judged(&wrong).unwrap_or_default();
        assert!(findings.contains(words), "{findings}");
    }
    let raised = Ledger::default();
    judge(&raised, Program::Raise, own, finished(own, "r1"));
    assert!(raised.is_bad());
}
