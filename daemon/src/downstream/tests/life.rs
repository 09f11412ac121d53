//! How servers start, change, are lost and end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ptc_protocol::status::ServerState;
use serde_json::json;

use super::super::testing::{eventually, options, server};
use super::super::*;
use super::{Bench, alive, structured_of, text_of};
use crate::config::{Era, Transport};

#[tokio::test]
async fn a_server_that_never_answers_initialize_is_named_and_keeps_nobody_waiting() {
    let bench = Bench::with(
        "def initialize(m): put(b'usage: x [hunter22]\\n')\nprint('loading hunter22', file=sys.stderr, flush=True)",
        |config| {
            config.start_timeout = Duration::from_millis(1500);
        },
    );
    assert_eq!(bench.state().state, ServerState::Connecting);
    bench.detail("starting: loading <KEY>").await;
    let detail = bench.detail("did not answer initialize within 1.5 s").await;
    assert!(detail.contains("stderr: loading <KEY>"), "{detail}");
    assert!(detail.contains("its stdout: usage: x [<KEY>]"), "{detail}");
    assert!(detail.contains("try 2 in"), "{detail}");
    assert_eq!(bench.state().state, ServerState::Reconnecting);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn an_exit_at_the_start_shows_code_and_stderr() {
    let bench =
        Bench::new("print('no module needed_thing', file=sys.stderr, flush=True); os._exit(3)");
    let detail = bench.detail("exit code 3").await;
    assert!(detail.contains("no module needed_thing"), "{detail}");
    let log = std::fs::read_to_string(bench.folder.path().join("s.log")).unwrap();
    assert!(log.contains("needed_thing"), "{log}");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn older_revisions_work_and_unknown_ones_are_refused_with_both_named() {
    let answers = |version: &str| {
        format!(
            "def initialize(m): reply(m, {{'protocolVersion': '{version}', 'capabilities': None}})"
        )
    };
    let bench = Bench::new(&answers("2024-11-05")).ready().await;
    bench.call("t").await.unwrap();
    bench.downstream.stop().await;
    let bench = Bench::new(&answers("1999-01-01"));
    let detail = bench.detail("1999-01-01").await;
    assert!(detail.contains("2025-11-25"), "{detail}");
    assert_eq!(bench.state().state, ServerState::Failed);
    let error = bench.call("t").await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Unavailable {
                transient: false,
                ..
            }
        ),
        "{error:?}"
    );
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_pinned_era_that_the_server_lacks_fails_for_good_and_names_the_remedy() {
    let refuse = |method: &str, code: i64| {
        format!(
            "
real = sys.stdin.buffer
class Door:
    class buffer:
        def readline():
            line = real.readline()
            m = json.loads(line) if line else {{}}
            if m.get('method') == '{method}':
                send({{'jsonrpc': '2.0', 'id': m['id'], 'error': {{'code': {code}, 'message': 'no such'}}}})
            return line
sys.stdin = Door
def initialize(m): pass"
        )
    };
    for (era, word, method, code) in [
        (Era::Modern, "modern", "server/discover", -32601),
        (Era::Legacy, "legacy", "initialize", -32022),
    ] {
        let bench = Bench::with(&refuse(method, code), |config| config.protocol = era);
        let detail = bench.detail(&format!("`protocol: {word}`")).await;
        assert!(
            detail.starts_with(&format!("it answered {method} with error {code}: no such")),
            "{detail}"
        );
        assert!(detail.contains("write `protocol: auto`"), "{detail}");
        assert_eq!(bench.state().state, ServerState::Failed);
        let error = bench.call("t").await.unwrap_err();
        assert!(
            matches!(
                error,
                CallError::Unavailable {
                    transient: false,
                    ..
                }
            ),
            "{error:?}"
        );
        bench.downstream.stop().await;
    }
}

#[tokio::test]
async fn a_death_during_a_call_fails_it_at_once_and_the_next_call_works() {
    let mode = r#"
def call(m):
    if not os.path.exists("died"):
        open("died", "w").close()
        print("out of hunter22", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    reply(m, text("back"))"#;
    let bench = Bench::new(mode).ready().await;
    let begun = Instant::now();
    let error = bench.call("t").await.unwrap_err();
    assert_eq!(
        error,
        CallError::ConnectionLost {
            server: "s".into(),
            how: "it was killed by signal 9".into(),
            stderr: Some("out of <KEY>".into()),
        }
    );
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(text_of(&bench.call("t").await.unwrap()), "back");
    assert_eq!(bench.count("tools/call").await, 2, "nothing is sent twice");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn ids_that_do_not_match_are_refused_with_a_text_about_them() {
    let mode = r#"
def reply(m, result):
    send({"jsonrpc": "2.0", "id": 0, "result": result})"#;
    let bench = Bench::new(mode);
    let detail = bench.detail("id 0, which no open request has").await;
    assert!(detail.contains("ids do not match"), "{detail}");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_flood_on_stderr_without_newlines_does_no_harm() {
    let bench = Bench::new(r#"os.write(2, b"\r 42% \xe2\x96\x88" * 400000)"#)
        .ready()
        .await;
    assert_eq!(text_of(&bench.call("t").await.unwrap()), "hello");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn the_end_of_the_process_counts_while_a_grandchild_holds_its_stdout() {
    let mode = r#"
p = subprocess.Popen(["sleep", "300"])
open("grandchild", "w").write(str(p.pid))
def call(m): os._exit(7)"#;
    let bench = Bench::new(mode).ready().await;
    let begun = Instant::now();
    let error = bench.call("t").await.unwrap_err();
    assert!(error.to_string().contains("exit code 7"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let pid = std::fs::read_to_string(bench.folder.path().join("grandchild")).unwrap();
    bench.downstream.stop().await;
    eventually(|| !alive(&pid)).await;
}

#[tokio::test]
async fn a_server_that_closes_its_stdout_is_lost_ended_and_started_again() {
    let mode = r#"
def call(m):
    if os.path.exists("old"):
        return reply(m, text("again"))
    open("old", "w").write(str(os.getpid()))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(1); out.close(); time.sleep(300)"#;
    let bench = Bench::new(mode).ready().await;
    let error = bench.call("t").await.unwrap_err();
    assert!(error.to_string().contains("closed its stdout"), "{error}");
    let old = std::fs::read_to_string(bench.folder.path().join("old")).unwrap();
    assert_eq!(text_of(&bench.call("t").await.unwrap()), "again");
    assert!(!alive(&old));
    bench.downstream.stop().await;
}

#[tokio::test]
async fn the_working_directory_is_the_configurations_or_the_entrys() {
    let bench = Bench::with("def call(m): reply(m, text(os.getcwd()))", |_| {})
        .ready()
        .await;
    let here = bench.folder.path().canonicalize().unwrap();
    assert_eq!(
        PathBuf::from(text_of(&bench.call("t").await.unwrap())),
        here
    );
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_server_gets_eight_variables_and_its_own_and_no_open_file() {
    let mode = r#"
def call(m):
    files = sorted(int(f) for f in os.listdir("/proc/self/fd"))
    reply(m, {"structuredContent": {"env": sorted(os.environ), "files": files}})"#;
    let bench = Bench::new(mode).ready().await;
    let answer = bench.call("t").await.unwrap();
    let structured = structured_of(&answer);
    let allowed = [
        "HOME", "LANG", "LC_CTYPE", "LOGNAME", "MODE", "PATH", "SHELL", "TERM", "TMPDIR", "USER",
    ];
    for name in structured["env"].as_array().unwrap() {
        assert!(allowed.contains(&name.as_str().unwrap()), "{name}");
    }
    // 3 is the server's own copy of its stdout, 4 the listing of the folder.
    assert_eq!(structured["files"], json!([0, 1, 2, 3, 4]));
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_storm_of_changes_gives_few_listings_and_the_last_state() {
    let mode = r#"
def call(m):
    for i in range(200):
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    TOOLS.append({"name": "new%d" % len(TOOLS)})
    reply(m, text("done"))"#;
    let bench = Bench::new(mode).ready().await;
    for known in [3, 4] {
        bench.call("t").await.unwrap();
        eventually(|| bench.downstream.servers()[0].tools.len() == known).await;
    }
    let listings = bench.count("tools/list").await;
    assert!((3..=7).contains(&listings), "{listings}");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn all_pages_are_read_and_a_cursor_that_repeats_ends_them() {
    let paged = r#"
def listing(m):
    at = int(m["params"].get("cursor") or 0)
    page = {"tools": [{"name": "n%d" % at}]}
    if at < 8: page["nextCursor"] = str(at + 1)
    reply(m, page)"#;
    let looped = r#"
def listing(m):
    counts["n"] = counts.get("n", 0) + 1
    reply(m, {"tools": [{"name": "n%d" % counts["n"]}], "nextCursor": "again"})"#;
    let empty = r#"def listing(m): reply(m, {"tools": TOOLS, "nextCursor": ""})"#;
    let null = r#"def listing(m): reply(m, {"tools": None})"#;
    for (mode, tools, listings) in [(paged, 9, 9), (looped, 2, 2), (empty, 2, 2), (null, 0, 1)] {
        let bench = Bench::new(mode).ready().await;
        assert_eq!(bench.state().tools, Some(tools), "{mode}");
        assert!(bench.state().notes.len() <= 1, "{:?}", bench.state().notes);
        assert_eq!(bench.count("tools/list").await, listings, "{mode}");
        bench.downstream.stop().await;
    }
}

#[tokio::test]
async fn a_list_that_never_comes_is_given_up_and_tried_again() {
    let bench = Bench::with("def listing(m): pass", |config| {
        config.start_timeout = Duration::from_secs(1);
    });
    bench.detail("tools/list came not within 1 s").await;
    bench.downstream.stop().await;
}

#[tokio::test]
async fn stopping_ends_servers_that_are_starting_or_stubborn_with_all_they_started() {
    let mode = r#"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
a = subprocess.Popen(["sleep", "300"])
b = subprocess.Popen(["sleep", "300"], start_new_session=True)
open("pids", "w").write("%d %d %d" % (os.getpid(), a.pid, b.pid))
os.rename("pids", "family")
def initialize(m): time.sleep(300)"#;
    let bench = Bench::new(mode);
    let file = bench.folder.path().join("family");
    eventually(|| file.exists()).await;
    let begun = Instant::now();
    bench.downstream.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    for pid in std::fs::read_to_string(file).unwrap().split(' ') {
        eventually(|| !alive(pid)).await;
    }
}

#[tokio::test]
async fn what_cannot_be_started_fails_with_its_cause_until_someone_acts() {
    let folder = tempfile::tempdir().unwrap();
    let mut missing = server("missing", "", folder.path());
    if let Transport::Stdio { command, .. } = &mut missing.transport {
        *command = "no-such-program-anywhere".to_owned();
    }
    let mut http = server("http", "", folder.path());
    http.transport = Transport::Http {
        url: "http://user:hunter22@127.0.0.1:1".into(),
        headers: BTreeMap::new(),
    };
    let mut variable = server("variable", "", folder.path());
    if let Transport::Stdio { env, .. } = &mut variable.transport {
        env.insert("MISSING".to_owned(), "${MISSING}".to_owned());
    }
    let mut disabled = server("disabled", "", folder.path());
    disabled.enabled = false;
    let downstream = Downstream::start(
        vec![missing, http, variable, disabled],
        options(folder.path()),
    )
    .unwrap();
    let states = || {
        downstream
            .servers()
            .into_iter()
            .map(|server| server.state.state)
            .collect::<Vec<_>>()
    };
    let failed = ServerState::Failed;
    eventually(|| states() == [failed, failed, failed, ServerState::Disabled]).await;
    let details: Vec<String> = downstream
        .servers()
        .into_iter()
        .filter_map(|server| server.state.detail)
        .collect();
    assert!(
        details[0].starts_with("`no-such-program-anywhere` is not in its PATH"),
        "{details:?}"
    );
    assert_eq!(
        details[1],
        "its url holds a user or a password: write `headers: {Authorization: ...}`"
    );
    assert_eq!(details[2], "environment variable MISSING is not set");
    downstream.stop().await;
}

#[tokio::test]
async fn a_reload_keeps_unchanged_sessions_and_replaces_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let one = server("one", "", folder.path());
    let two = server("two", "", folder.path());
    let downstream =
        Downstream::start(vec![one.clone(), two.clone()], options(folder.path())).unwrap();
    let ready = |count: usize| {
        let states = downstream.servers();
        states.len() == count && states.iter().all(|s| s.state.state == ServerState::Ready)
    };
    let pid = |name: &str| {
        let servers = downstream.servers();
        servers
            .into_iter()
            .find(|s| s.name == name)
            .unwrap()
            .state
            .pid
    };
    eventually(|| ready(2)).await;
    let (first, second) = (pid("one"), pid("two"));
    let changed = server("two", "x = 1", folder.path());
    downstream.reload(vec![changed, one]);
    eventually(|| ready(2) && pid("two") != second).await;
    assert_eq!(pid("one"), first);
    let names: Vec<String> = downstream.servers().into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["two", "one"]);
    assert_eq!(downstream.restart("three"), None);
    assert_eq!(downstream.restart("one"), Some(1));
    eventually(|| ready(2) && pid("one") != first).await;
    downstream.reload(Vec::new());
    assert!(downstream.servers().is_empty());
    downstream.stop().await;
}
