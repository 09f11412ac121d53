//! What the state machine does, step by step.

use super::*;
use crate::link::{IDLE_SEARCH, OPENER_PATIENCE, RETRY, STEADY};
use ptc_protocol::run::SentCall;
use serde_json::Value;

const EOF_WAIT: Duration = Duration::from_secs(5);
const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A handshake that is said again to another daemon.
const SAID_AGAIN: [&str; 2] = [
    "> \"ptc-mcp-replay-1\" \"initialize\"",
    "> \"notifications/initialized\"",
];

/// A machine with a clock that only moves when told.
struct Bench {
    resume: Resume,
    start: Instant,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            resume: Resume::new(EOF_WAIT),
            start: now,
            now,
        }
    }

    /// Connected, and everything that happens at the start done.
    fn up() -> Self {
        let mut bench = Self::new();
        bench.connected();
        bench.did();
        bench
    }

    /// Connected, with a legacy session open.
    fn open() -> Self {
        let mut bench = Self::up();
        bench.client(INITIALIZE);
        bench.daemon(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        bench.client(INITIALIZED);
        bench.did();
        bench
    }

    fn client(&mut self, line: &str) {
        self.resume.client_line(line.as_bytes(), self.now);
    }

    fn daemon(&mut self, line: &str) {
        self.resume.daemon_line(line.as_bytes().to_vec(), self.now);
    }

    /// Lets the clock run to the next deadline, which must be `ms` after the start.
    fn until(&mut self, ms: u64) {
        let deadline = self.resume.next_deadline().expect("a deadline");
        assert_eq!(deadline - self.start, Duration::from_millis(ms));
        self.now = deadline;
        self.resume.tick(self.now);
    }

    fn connected(&mut self) {
        self.resume.connected(self.now);
    }

    fn lost(&mut self) {
        self.resume.lost("it closed the connection", self.now);
    }

    /// The answer about a call that a lost daemon had: what it made, or nothing known.
    fn told(&mut self, id: &str, calls: Option<&[(&str, Option<bool>)]>) {
        let call = |(tool, ok): &(&str, _)| SentCall {
            tool: (*tool).to_owned(),
            server: "s".to_owned(),
            ok: *ok,
        };
        let calls = calls.map(|calls| RequestCalls {
            calls: calls.iter().map(call).collect(),
            ..RequestCalls::default()
        });
        let id = Id::from_json(id).unwrap();
        self.resume.told(&id, calls.as_ref(), self.now);
    }

    fn failed(&mut self) {
        self.resume.dial_failed("nothing listens on S", self.now);
    }

    /// What was decided since the last time, a line each.
    fn did(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.resume.next_action())
            .map(|action| match action {
                Action::ToClient(line) => format!("< {}", short(&line)),
                Action::ToDaemon(line) => format!("> {}", short(&line)),
                Action::Dial { launch } => format!("dial {launch}"),
                Action::Ask(id) => format!("ask {id}"),
                Action::HangUp => "hang up".to_owned(),
                Action::Note(text) => format!("note {text}"),
                Action::Finish => "finish".to_owned(),
            })
            .collect()
    }
}

/// A line that goes to the daemon as it is.
fn to_daemon(line: &str) -> Action {
    Action::ToDaemon(line.into())
}

fn request(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

fn modern(id: &str, method: &str) -> String {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{meta}}}}}"#)
}

fn said() -> Said {
    Said {
        build: "b".to_owned(),
        config: "c".to_owned(),
        instructions: "Do.".to_owned(),
        ttl_ms: 60_000,
        tools: serde_json::json!([{"name": "kept"}]),
    }
}

/// What [`Bench::did`] shows of a failed call's answer.
fn failure(id: &str, text: &str) -> String {
    format!(r#"< {id} {{"content":[{{"type":"text","text":"{text}"}}],"isError":true}}"#)
}

/// Id, method, error and result, whichever are there.
fn short(line: &[u8]) -> String {
    let value: Value = serde_json::from_slice(line).unwrap();
    assert_eq!(value["jsonrpc"], "2.0");
    let error = &value["error"];
    let parts = [
        &value["id"],
        &value["method"],
        &value["result"],
        &error["code"],
        &error["message"],
    ];
    let parts = parts.iter().filter(|part| !part.is_null());
    parts.map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_pass_unchanged_while_the_daemon_is_there() {
    let mut bench = Bench::new();
    assert_eq!(bench.did(), ["dial true"]);
    bench.connected();
    bench.client(INITIALIZE);
    assert_eq!(bench.resume.next_action(), Some(to_daemon(INITIALIZE)));
    let answer = r#"{"jsonrpc":"2.0", "id":0 ,"result":{"x":1e400}}"#;
    bench.daemon(answer);
    assert_eq!(
        bench.resume.next_action(),
        Some(Action::ToClient(answer.into()))
    );
    bench.client(INITIALIZED);
    bench.client("  \r");
    bench.client(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    let sent = [
        "> \"notifications/initialized\"",
        "> \"notifications/roots/list_changed\"",
    ];
    assert_eq!(bench.did(), sent);
    assert_eq!(bench.resume.next_deadline(), None);
}

#[test]
fn notifications_before_the_opener_are_swallowed() {
    let mut bench = Bench::up();
    bench.client(INITIALIZED);
    bench.client(&request("1", "ping"));
    bench.client(&request("2", "server/discover"));
    bench.client(r#"{"jsonrpc":"2.0","method":"notifications/other"}"#);
    assert_eq!(bench.did(), ["> 1 \"ping\"", "> 2 \"server/discover\""]);
    bench.client(&request("3", "tools/list"));
    bench.client(r#"{"jsonrpc":"2.0","method":"notifications/other"}"#);
    assert_eq!(
        bench.did(),
        ["> 3 \"tools/list\"", "> \"notifications/other\""]
    );
}

#[test]
fn a_mark_before_the_text_is_no_part_of_a_line() {
    let mut bench = Bench::up();
    bench.client(&format!("\u{feff}{INITIALIZE}\r"));
    assert_eq!(bench.resume.next_action(), Some(to_daemon(INITIALIZE)));
    bench.client("\u{feff}\r");
    bench.client(&format!(" \u{feff} {INITIALIZED}"));
    assert_eq!(bench.did(), ["> \"notifications/initialized\""]);
}

#[test]
fn what_is_no_message_is_answered_and_the_stream_goes_on() {
    let mut bench = Bench::up();
    for line in ["nonsense", "[]", r#"{"jsonrpc":"2.0","id":4}"#] {
        bench.client(line);
    }
    let answers = bench.did();
    assert_eq!(answers.len(), 3);
    assert!(answers[0].starts_with("< -32700"), "{answers:?}");
    assert!(answers[1].starts_with("< -32600 \"batches"), "{answers:?}");
    assert!(answers[2].starts_with("< 4 -32600"), "{answers:?}");
    bench.client(&request("5", "tools/list"));
    assert_eq!(bench.did(), ["> 5 \"tools/list\""]);
}

#[test]
fn an_id_that_is_still_open_is_refused_and_not_forwarded() {
    let mut bench = Bench::open();
    bench.client(&request("1", "tools/call"));
    bench.client(&request("\"1\"", "tools/call"));
    bench.client(&request("1", "tools/list"));
    let did = bench.did();
    assert_eq!(did[..2], ["> 1 \"tools/call\"", "> \"1\" \"tools/call\""]);
    assert_eq!(
        did[2..],
        ["< 1 -32600 \"a request with the id 1 is still open\""]
    );
    bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    bench.client(&request("1", "tools/list"));
    assert_eq!(bench.did(), ["< 1 {}", "> 1 \"tools/list\""]);
}

#[test]
fn only_a_cancel_of_an_open_request_reaches_the_daemon() {
    let mut bench = Bench::open();
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    bench.client(&request("7", "tools/call"));
    bench.did();
    for id in ["\"7\"", "8", "null", "{}"] {
        bench.client(&cancel(id));
    }
    bench.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":null}"#);
    assert_eq!(bench.did(), [""; 0]);
    bench.client(&cancel("7"));
    assert_eq!(bench.did(), ["> \"notifications/cancelled\""]);
    bench.daemon(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(bench.did(), [""; 0], "nobody waits for it any more");
}

#[test]
fn a_lost_daemon_is_replaced_and_the_handshake_said_again() {
    let mut bench = Bench::open();
    for (id, method) in [
        ("1", "tools/call"),
        ("2", "resources/list"),
        ("3", "ping"),
        ("4", "tools/list"),
    ] {
        bench.client(&request(id, method));
    }
    bench.did();
    bench.lost();
    let want = [
        "< 2 -31001 \"daemon restarted during this request; nothing was repeated\"",
        "< 3 {}",
    ];
    assert_eq!(bench.did(), want);
    bench.until(50);
    assert_eq!(bench.did(), ["dial true"]);
    bench.connected();
    let want = [
        "> \"ptc-mcp-replay-1\" \"initialize\"",
        "> \"notifications/initialized\"",
        "> 4 \"tools/list\"",
        "ask 1",
    ];
    assert_eq!(bench.did(), want);
    bench.told("1", Some(&[]));
    let text = "daemon restarted during this run; no tool call was made; nothing was repeated";
    assert_eq!(bench.did(), [failure("1", text)]);
    bench.daemon(r#"{"jsonrpc":"2.0","id":"ptc-mcp-replay-1","result":{}}"#);
    bench.daemon(r#"{"jsonrpc":"2.0","id":4,"result":{"tools":[]}}"#);
    assert_eq!(bench.did(), ["< 4 {\"tools\":[]}"]);
    bench.client(&request("0", "tools/list"));
    assert_eq!(bench.did(), ["> 0 \"tools/list\""]);
}

#[test]
fn calls_a_lost_daemon_had_are_asked_about_one_by_one_and_never_sent_again() {
    let mut bench = Bench::open();
    bench.client(&request("1", "tools/call"));
    bench.client(&request("\"1\"", "tools/call"));
    bench.lost();
    bench.client(&request("1", "tools/call"));
    bench.did();
    bench.connected();
    assert_eq!(bench.did()[2..], ["ask 1"]);
    bench.told("\"1\"", Some(&[]));
    assert_eq!(bench.did(), [""; 0], "it was not asked about yet");
    let calls = [
        ("mcp__a__b", Some(true)),
        ("mcp__a__b", Some(true)),
        ("mcp__a__b", Some(false)),
        ("mcp__c__d", None),
    ];
    bench.told("1", Some(&calls));
    let text = "daemon restarted during this run; tool calls already made: mcp__a__b (2 times, ok), \
                    mcp__a__b (failed), mcp__c__d (unknown whether it took effect); nothing was repeated";
    let want = [failure("1", text), "ask \"1\"".to_owned()];
    assert_eq!(bench.did(), want);
    bench.told("\"1\"", None);
    let text = "daemon restarted during this run; nothing was repeated";
    assert_eq!(bench.did(), [failure("\"1\"", text)]);
    bench.client(&request("1", "tools/call"));
    assert_eq!(bench.did(), ["> 1 \"tools/call\""]);
}

#[test]
fn an_owed_answer_does_not_wait_for_ever() {
    let mut bench = Bench::open();
    for id in ["1", "2", "3"] {
        bench.client(&request(id, "tools/call"));
    }
    bench.lost();
    bench.until(50);
    bench.failed();
    bench.did();
    bench
        .client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    bench.now = bench.start + Duration::from_secs(19);
    bench.connected();
    assert_eq!(bench.did()[2..], ["ask 1"]);
    let text = "daemon restarted during this run; nothing was repeated";
    bench.until(20_000);
    assert_eq!(bench.did(), [failure("2", text)]);
    bench.until(39_000);
    assert_eq!(bench.did(), [failure("1", text)]);
    bench.told("1", Some(&[]));
    assert_eq!(bench.did(), [""; 0]);
    assert_eq!(bench.resume.next_deadline(), None);
}

#[test]
fn a_second_loss_leaves_what_is_owed_to_the_next_daemon() {
    let mut bench = Bench::open();
    bench.client(&request("1", "tools/call"));
    bench.client(&request("2", "tools/call"));
    bench.lost();
    bench.connected();
    bench.lost();
    bench.did();
    bench.told("1", Some(&[("mcp__a__b", None)]));
    let text = "daemon restarted during this run; tool calls already made: \
                    mcp__a__b (unknown whether it took effect); nothing was repeated";
    assert_eq!(bench.did(), [failure("1", text)]);
    bench.until(100);
    assert_eq!(bench.did(), ["dial true"]);
    bench.connected();
    assert_eq!(bench.did()[2..], ["ask 2"]);
}

#[test]
fn a_daemon_that_refuses_is_not_asked() {
    let mut bench = Bench::open();
    bench.client(&request("1", "tools/call"));
    bench.lost();
    bench.did();
    bench.resume.refused("no");
    let text = "daemon restarted during this run; nothing was repeated";
    assert_eq!(bench.did()[1..], [failure("1", text)]);
}

#[test]
fn the_pauses_grow_and_the_idle_search_ends() {
    let mut bench = Bench::open();
    bench.lost();
    let mut at = 0;
    for pause in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
        at += pause;
        bench.until(at);
        assert_eq!(
            bench.did(),
            ["dial false"],
            "nobody waits, so it is not started"
        );
        bench.failed();
    }
    bench.now = bench.start + IDLE_SEARCH;
    bench.resume.tick(bench.now);
    bench.failed();
    assert_eq!(bench.did(), ["dial false"]);
    assert_eq!(bench.resume.next_deadline(), None, "no timers while idle");
    bench.client(&request("9", "tools/call"));
    assert_eq!(bench.did(), ["dial true"]);
}

#[test]
fn a_request_ends_a_pause_made_for_nobody() {
    let mut bench = Bench::open();
    bench.lost();
    bench.client(&request("9", "tools/call"));
    assert_eq!(bench.did(), ["dial true"]);
    bench.failed();
    bench.client(&request("10", "tools/call"));
    assert_eq!(
        bench.did(),
        [""; 0],
        "this pause follows a start that failed"
    );
    bench.until(100);
    assert_eq!(bench.did(), ["dial true"]);
}

#[test]
fn a_flapping_daemon_does_not_make_the_pauses_short() {
    let mut bench = Bench::open();
    bench.lost();
    bench.until(50);
    bench.connected();
    bench.lost();
    bench.until(150);
    bench.connected();
    bench.now += STEADY;
    bench.lost();
    bench.until(5200);
}

#[test]
fn while_the_daemon_is_down_the_openers_get_the_core_and_pings_an_answer() {
    let mut bench = Bench::new();
    bench.client(&request("9", "ping"));
    bench.client(INITIALIZE);
    bench.client(INITIALIZED);
    bench.client(&modern("\"d\"", "server/discover"));
    bench.client(&request("\"e\"", "server/discover"));
    bench.client(&modern("\"f\"", "server/discover").replace("2026-07-28", "2031-01-01"));
    bench.did();
    bench.failed();
    bench.until(50);
    bench.failed();
    assert_eq!(bench.did(), ["dial true"]);
    bench.now = bench.start + Duration::from_millis(1500);
    bench.resume.tick(bench.now);
    let mut did = bench.did();
    did.retain(|line| line != "dial true");
    let core = r#"{"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":false,"listChanged":false},"tools":{"listChanged":false}},"serverInfo":{"name":"ptcd","version":""#;
    assert!(did[0].starts_with(&format!("< 0 {core}")), "{did:?}");
    assert!(
        did[1].contains(r#""supportedVersions":["2026-07-28"]"#),
        "{did:?}"
    );
    assert!(did[2].starts_with("< \"e\" -32602"), "{did:?}");
    assert!(did[3].starts_with("< \"f\" -32022"), "{did:?}");
    bench.connected();
    assert_eq!(bench.did(), SAID_AGAIN);
}

#[test]
fn an_opener_waits_longer_for_a_daemon_that_is_connected() {
    let mut bench = Bench::new();
    bench.client(INITIALIZE);
    bench.did();
    assert_eq!(
        bench.resume.next_deadline(),
        Some(bench.start + OPENER_PATIENCE)
    );
    bench.now += Duration::from_secs(1);
    bench.connected();
    assert_eq!(bench.did(), ["> 0 \"initialize\""]);
    bench.until(10_000);
    assert!(bench.did()[0].starts_with("< 0 {\"protocolVersion\""));
    bench.daemon(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    assert_eq!(bench.did(), [""; 0], "the client has had its answer");
}

#[test]
fn a_daemon_that_is_stopped_is_answered_for_and_its_late_answers_are_dropped() {
    let mut bench = Bench::open();
    bench.resume.remember(Some(said()));
    bench.client(&request("1", "tools/call"));
    bench.client(&request("2", "ping"));
    bench.client(&request("3", "tools/list"));
    bench.did();
    bench.until(2000);
    assert_eq!(
        bench.did(),
        ["< 2 {}", "< 3 {\"tools\":[{\"name\":\"kept\"}]}"]
    );
    assert_eq!(bench.resume.next_deadline(), None, "no timer for the call");
    bench.client(&request("2", "ping"));
    let did = bench.did();
    assert!(did[0].contains("the id 2 is still open"), "{did:?}");
    bench.daemon(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    bench.daemon(r#"{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}"#);
    bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(bench.did(), ["< 1 {}"], "each had one answer");
    bench.client(&request("2", "ping"));
    bench.daemon(r#"{"jsonrpc":"2.0","id":2,"result":{"own":1}}"#);
    assert_eq!(bench.did(), ["> 2 \"ping\"", "< 2 {\"own\":1}"]);
}

#[test]
fn a_daemon_that_answers_nothing_for_very_long_is_asked_no_more() {
    let mut bench = Bench::open();
    for id in 10..MAX_OPEN + 10 {
        bench.client(&request(&id.to_string(), "ping"));
        bench.now += ANSWER_PATIENCE;
        bench.resume.tick(bench.now);
        assert_eq!(
            bench.did(),
            [format!("> {id} \"ping\""), format!("< {id} {{}}")]
        );
    }
    bench.client(&request("1", "ping"));
    assert_eq!(bench.did(), ["< 1 {}"], "at once");
    bench.daemon(r#"{"jsonrpc":"2.0","id":10,"result":{}}"#);
    bench.client(&request("1", "ping"));
    assert_eq!(bench.did(), ["> 1 \"ping\""]);
}

#[test]
fn an_unknown_version_is_answered_with_the_newest() {
    let mut bench = Bench::new();
    bench.did();
    bench.client(&INITIALIZE.replace("2025-06-18", "2099-01-01"));
    bench.until(1500);
    assert!(bench.did()[0].contains(r#""protocolVersion":"2025-11-25""#));
}

#[test]
fn what_waited_in_vain_is_told_the_reason_and_the_shim_stays() {
    let mut bench = Bench::new();
    bench.client(&request("1", "tools/call"));
    bench.client(&request("2", "tools/list"));
    bench.did();
    bench.failed();
    bench.now = bench.start + HOLD;
    bench.resume.tick(bench.now);
    let reason = "ptcd cannot be reached: nothing listens on S. Nothing ran. `ptcctl doctor` says what is wrong.";
    let call = format!(r#"< 1 {{"content":[{{"type":"text","text":"{reason}"}}],"isError":true}}"#);
    let list = format!("< 2 -31001 \"{reason}\"");
    assert_eq!(bench.did(), ["dial true".to_owned(), call, list]);
    bench.connected();
    bench.client(&request("3", "tools/list"));
    assert_eq!(bench.did(), ["> 3 \"tools/list\""]);
}

#[test]
fn a_daemon_that_cannot_start_is_answered_for_at_once_and_tried_again_later() {
    let mut bench = Bench::new();
    bench.client(INITIALIZE);
    bench.client(&request("1", "tools/call"));
    bench.did();
    bench.resume.blocked("ptcd cannot start: no key", bench.now);
    let did = bench.did();
    assert!(did[0].starts_with("< 0 {\"protocolVersion\""), "{did:?}");
    let text = "ptcd cannot start: no key. Nothing ran. Mend that (`ptcctl doctor` says more) and \
                    call again: ptcd is then started anew.";
    assert_eq!(did[1..], [failure("1", text)]);
    assert_eq!(bench.resume.next_deadline(), None, "no timers while idle");
    bench.now += RETRY / 2;
    bench.client(&request("2", "tools/call"));
    assert_eq!(bench.did(), ["dial false"], "someone may have started it");
    bench.failed();
    assert_eq!(bench.did(), [failure("2", text)]);
    bench.now += RETRY;
    bench.client(&request("3", "tools/list"));
    assert_eq!(bench.did(), ["dial true"]);
    bench.resume.blocked("ptcd cannot start: no key", bench.now);
    assert!(bench.did()[0].starts_with("< 3 {\"tools\":[{\"name\":\"execute_program\""));
    bench.client(&request("4", "tools/list"));
    bench.connected();
    let did = bench.did();
    assert_eq!(did[0], "dial false");
    assert_eq!(did.last().unwrap(), "> 4 \"tools/list\"");
}

#[test]
fn what_a_try_waits_for_is_the_reason_that_is_told() {
    let mut bench = Bench::new();
    bench.client(&request("1", "tools/list"));
    bench.did();
    bench.resume.waiting("an older ptcd is still ending");
    bench.until(20_000);
    let reason = "ptcd cannot be reached: an older ptcd is still ending. Nothing ran. \
                      `ptcctl doctor` says what is wrong.";
    assert_eq!(bench.did(), [format!("< 1 -31001 \"{reason}\"")]);
}

#[test]
fn a_refusal_answers_what_waits_and_the_next_request_asks_again() {
    let mut bench = Bench::new();
    bench.client(INITIALIZE);
    bench.client(&request("1", "tools/call"));
    bench.did();
    bench.resume.refused("another configuration");
    let text = "-31001 \"ptcd refused this client: another configuration\"";
    let want = [
        "note the daemon refused this client: another configuration".to_owned(),
        format!("< 0 {text}"),
        format!("< 1 {text}"),
    ];
    assert_eq!(bench.did(), want);
    assert_eq!(bench.resume.next_deadline(), None);
    bench.client(&request("2", "tools/call"));
    assert_eq!(bench.did(), ["dial true"]);
}

#[test]
fn after_the_end_of_input_what_was_read_is_answered() {
    let mut bench = Bench::new();
    bench.client(INITIALIZE);
    bench.client(&request("1", "tools/call"));
    bench.resume.eof(bench.now);
    bench.now += Duration::from_secs(8);
    bench.connected();
    let did = bench.did();
    assert_eq!(
        did,
        ["dial true", "> 0 \"initialize\"", "> 1 \"tools/call\""]
    );
    bench.daemon(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(bench.did(), ["< 0 {}", "< 1 {}", "finish"]);
}

#[test]
fn the_wait_after_the_end_of_input_starts_with_the_daemon_and_has_an_end() {
    let mut bench = Bench::new();
    bench.client(&request("1", "tools/call"));
    bench.resume.eof(bench.now);
    bench.now += Duration::from_secs(3);
    bench.connected();
    bench.did();
    bench.until(8000);
    let want = ["< 1 -31000 \"cancelled: stdin ended\"", "finish"];
    assert_eq!(bench.did(), want);
    assert_eq!(bench.resume.next_deadline(), None);
}

#[test]
fn with_nothing_open_the_end_of_input_is_the_end() {
    let mut bench = Bench::open();
    bench.client(&request("5", "subscriptions/listen"));
    bench.did();
    bench.resume.eof(bench.now);
    assert_eq!(
        bench.did(),
        ["< 5 -31000 \"cancelled: stdin ended\"", "finish"]
    );
}

#[test]
fn a_daemon_lost_after_the_end_of_input_is_answered_for_within_the_wait() {
    let lost_at_the_end = || {
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.resume.eof(bench.now);
        bench.lost();
        bench.did();
        bench
    };
    let mut bench = lost_at_the_end();
    bench.connected();
    bench.told("1", Some(&[]));
    let text = "daemon restarted during this run; no tool call was made; nothing was repeated";
    assert_eq!(bench.did()[3..], [failure("1", text), "finish".to_owned()]);
    let mut bench = lost_at_the_end();
    bench.until(50);
    bench.until(5000);
    let text = "daemon restarted during this run; nothing was repeated";
    let want = [
        "dial true".to_owned(),
        failure("1", text),
        "finish".to_owned(),
    ];
    assert_eq!(bench.did(), want);
}

#[test]
fn questions_of_the_daemon_are_answered_to_the_one_that_asked() {
    let mut bench = Bench::open();
    bench.daemon(&request("5", "roots/list"));
    bench.daemon(&request("6", "elicitation/create"));
    bench.client(r#"{"jsonrpc":"2.0","id":5,"result":{"roots":[]}}"#);
    bench.client(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);
    let want = [
        "< 5 \"roots/list\"",
        "< 6 \"elicitation/create\"",
        "> 5 {\"roots\":[]}",
    ];
    assert_eq!(bench.did(), want);
    bench.lost();
    assert_eq!(bench.did(), ["< \"notifications/cancelled\""]);
    bench.connected();
    bench.did();
    bench.client(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    assert_eq!(bench.did(), [""; 0]);
}

#[test]
fn a_subscription_is_made_again_and_acknowledged_once() {
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":5}}}"#;
    let mut bench = Bench::up();
    bench.client(&request("5", "subscriptions/listen"));
    bench.daemon(ack);
    let want = [
        "> 5 \"subscriptions/listen\"",
        "< \"notifications/subscriptions/acknowledged\"",
    ];
    assert_eq!(bench.did(), want);
    bench.lost();
    bench.until(50);
    assert_eq!(bench.did(), ["dial false"]);
    bench.connected();
    bench.daemon(ack);
    assert_eq!(bench.did(), ["> 5 \"subscriptions/listen\""]);
    assert_eq!(bench.resume.next_deadline(), None);
}

#[test]
fn a_modern_client_is_resumed_by_its_subscriptions_alone() {
    let mut bench = Bench::up();
    bench.client(&modern("5", "subscriptions/listen"));
    bench.client(&modern("6", "tools/call"));
    bench.client(&modern("7", "resources/list"));
    bench.daemon(r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":5}}}"#);
    bench.did();
    bench.lost();
    let lost = "daemon restarted during this request; nothing was repeated";
    assert_eq!(bench.did(), [format!("< 7 -31001 \"{lost}\"")]);
    bench.connected();
    assert_eq!(bench.did(), ["> 5 \"subscriptions/listen\"", "ask 6"]);
    bench.told("6", Some(&[]));
    let text = "daemon restarted during this run; no tool call was made; nothing was repeated";
    let whole = failure("6", text).replace(
        r#""isError":true}"#,
        r#""isError":true,"resultType":"complete"}"#,
    );
    assert_eq!(bench.did(), [whole]);
}

#[test]
fn a_subscription_that_its_daemon_ends_waits_for_the_next_one() {
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#;
    let mut bench = Bench::up();
    bench.client(&modern("\"s\"", "subscriptions/listen"));
    bench.client(&modern("\"t\"", "subscriptions/listen"));
    bench.daemon(ack);
    bench.did();
    bench.daemon(r#"{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete"}}"#);
    assert_eq!(bench.did(), [""; 0], "the client knows nothing of daemons");
    let refusal = r#"{"jsonrpc":"2.0","id":"t","error":{"code":-32601,"message":"no"}}"#;
    bench.daemon(refusal);
    assert_eq!(bench.did(), ["< \"t\" -32601 \"no\""]);
    bench.lost();
    bench.connected();
    bench.daemon(ack);
    assert_eq!(bench.did(), ["> \"s\" \"subscriptions/listen\""]);
    bench.client(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}"#,
    );
    assert_eq!(bench.did(), ["> \"notifications/cancelled\""]);
    bench.lost();
    bench.connected();
    assert_eq!(bench.did(), [""; 0]);
}

#[test]
fn a_daemon_that_wants_to_be_connected_to_anew_is_as_soon_as_it_owes_nothing() {
    let renew = r#"{"jsonrpc":"2.0","method":"notifications/ptc/renew"}"#;
    let mut bench = Bench::open();
    bench.client(&request("1", "tools/call"));
    bench.daemon(renew);
    bench.client(&request("2", "subscriptions/listen"));
    bench.client(&request("3", "tools/call"));
    bench.did();
    bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(bench.did(), ["< 1 {}"], "it still has a call");
    bench.daemon(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    assert_eq!(bench.did(), ["< 3 {}", "hang up", "dial false"]);
    bench.client(&request("4", "tools/call"));
    assert_eq!(bench.did(), [""; 0], "held meanwhile");
    bench.connected();
    let again = bench.did();
    assert_eq!(again.last().unwrap(), "> 4 \"tools/call\"", "{again:?}");
    assert!(
        again.contains(&"> 2 \"subscriptions/listen\"".to_owned()),
        "{again:?}"
    );
    bench.daemon(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#);
    assert_eq!(bench.did(), ["< 4 {}"], "once is enough");
    // A client that waits for nothing is not waited for.
    bench.daemon(renew);
    assert_eq!(bench.did(), ["hang up", "dial false"]);
    bench.failed();
    assert!(bench.resume.next_deadline().is_some(), "it is tried again");
}

#[test]
fn a_list_is_answered_at_once_from_what_the_daemon_last_said() {
    let mut bench = Bench::new();
    bench.resume.remember(Some(said()));
    bench.client(INITIALIZE);
    bench.client(&request("1", "tools/list"));
    bench.client(&modern("2", "tools/list"));
    let kept = |id| format!("< {id} {{\"tools\":[{{\"name\":\"kept\"}}]}}");
    let want = ["dial true".to_owned(), kept(1), kept(2)];
    assert_eq!(bench.did(), want, "the session has a handshake");
    bench.until(1500);
    let did = bench.did();
    assert!(did[0].contains(r#""instructions":"Do.""#), "{did:?}");
    let mut bench = Bench::new();
    bench.resume.remember(Some(said()));
    bench.client(&modern("2", "tools/list"));
    let did = bench.did();
    assert!(
        did[1].starts_with("< 2 {\"resultType\":\"complete\""),
        "{did:?}"
    );
    for part in [
        "\"ttlMs\":60000",
        "\"cacheScope\":\"private\"",
        "serverInfo",
        "kept",
    ] {
        assert!(did[1].contains(part), "{did:?}");
    }
}

#[test]
fn a_list_nobody_knows_waits_a_moment_for_the_daemon() {
    let mut bench = Bench::new();
    bench.client(INITIALIZE);
    bench.client(&request("1", "tools/list"));
    bench.did();
    bench.until(1500);
    let did = bench.did();
    assert!(
        did[1].starts_with("< 1 {\"tools\":[{\"name\":\"execute_program\""),
        "{did:?}"
    );
    bench.client(&request("2", "tools/list"));
    bench.now += Duration::from_millis(500);
    bench.connected();
    assert_eq!(bench.did()[1..], ["> 2 \"tools/list\""]);
    bench.client(&request("3", "tools/list"));
    bench.resume.remember(Some(said()));
    bench.lost();
    assert_eq!(
        bench.did()[1..],
        ["2", "3"].map(|id| format!("< {id} {{\"tools\":[{{\"name\":\"kept\"}}]}}"))
    );
}

#[test]
fn a_list_without_an_opener_is_the_daemons_to_refuse() {
    let mut bench = Bench::new();
    bench.resume.remember(Some(said()));
    bench.client(&request("1", "tools/list"));
    bench.client(&modern("2", "tools/list").replace("2026-07-28", "2031-01-01"));
    bench.did();
    bench.connected();
    assert_eq!(bench.did(), ["> 1 \"tools/list\"", "> 2 \"tools/list\""]);
}

#[test]
fn a_modern_clients_ping_is_the_daemons_to_refuse() {
    let mut bench = Bench::new();
    bench.client(&modern("1", "ping"));
    bench.client(&request("2", "ping"));
    bench.client(&modern("3", "tools/call"));
    bench.client(&request("4", "ping"));
    assert_eq!(bench.did(), ["dial true", "< 2 {}"]);
    bench.connected();
    let want = ["> 1 \"ping\"", "> 3 \"tools/call\"", "> 4 \"ping\""];
    assert_eq!(bench.did(), want);
}

#[test]
fn a_second_handshake_that_is_refused_leaves_the_first() {
    let mut bench = Bench::open();
    bench.client(&INITIALIZE.replace("\"id\":0", "\"id\":1"));
    bench.daemon(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#);
    bench.lost();
    bench.did();
    bench.connected();
    assert_eq!(bench.did(), SAID_AGAIN);
}

#[test]
fn what_is_too_long_settles_its_own_request_only() {
    let excerpt = |text: &str| Excerpt {
        head: text.into(),
        tail: Vec::new(),
        length: 99,
    };
    let mut bench = Bench::open();
    bench.client(&request("1", "tools/call"));
    bench.did();
    for head in [
        r#"{"id":7,"method":"a"#,
        r#"{"id":1,"method":"a"#,
        r#"{"id":8,"result":"a"#,
    ] {
        bench.resume.client_too_long(&excerpt(head), 10);
    }
    let text = "\"a message of 99 bytes is over the limit of 10 bytes and was skipped\"";
    let want = ["7 ", "", ""].map(|id| format!("< {id}-32600 {text}"));
    assert_eq!(bench.did(), want);
    let now = bench.now;
    bench
        .resume
        .daemon_too_long(&excerpt(r#"{"id":1,"result":"#), 10, now);
    let want = format!(r#"< 1 {{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#);
    assert_eq!(bench.did(), [want]);
    bench.resume.daemon_too_long(&excerpt("{"), 10, now);
    assert_eq!(bench.did(), ["hang up"]);
    bench.until(50);
}

#[test]
fn what_is_open_and_held_is_bounded() {
    let mut bench = Bench::new();
    bench.did();
    let long = request("0", &"x".repeat(MAX_HELD_BYTES / 2));
    bench.client(&long);
    bench.client(&long.replacen(":0", ":1", 1));
    assert_eq!(
        bench.did(),
        ["< 1 -31002 \"too many requests are open; wait for answers first\""]
    );
    for n in 1..=MAX_OPEN {
        bench.client(&request(&n.to_string(), "tools/list"));
    }
    assert_eq!(bench.did().len(), 1);
}

#[test]
fn a_refused_handshake_is_not_said_again() {
    let mut bench = Bench::up();
    bench.client(INITIALIZE);
    bench.daemon(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}"#);
    bench.lost();
    bench.did();
    bench.connected();
    assert_eq!(bench.did(), [""; 0]);
}
