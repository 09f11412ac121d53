//! What the daemon tells of itself: figures, metrics, log lines, health.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Trial;
use ptc_protocol::route;
use ptc_protocol::status::{Level, ServerState};
use ptc_tests::process::needs_proc;
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, eventually, http};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        the_daemon_tells_what_its_processes_take,
        the_metrics_are_what_happened,
        the_metrics_have_no_label_of_a_programs_choice,
        each_log_line_of_a_run_has_its_id,
        one_statement_of_health_is_shown_by_every_face,
        the_memory_of_large_results_is_given_back,
    ]
}

/// One line of the text format: the series and its value.
type Samples = BTreeMap<String, f64>;

/// Reads the text format 0.0.4 as strictly as its description is.
fn samples(text: &str) -> anyhow::Result<Samples> {
    let mut types = BTreeMap::new();
    let mut found = Samples::new();
    anyhow::ensure!(text.ends_with('\n'), "the last line has no end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (word, name) = (words.next(), words.next().unwrap_or_default());
            let rest = words.next().unwrap_or_default();
            match word {
                Some("HELP") => anyhow::ensure!(!rest.is_empty(), "no help: {line}"),
                Some("TYPE") => {
                    let known = ["counter", "gauge", "histogram"].contains(&rest);
                    anyhow::ensure!(known, "no such type: {line}");
                    let before = types.insert(name.to_owned(), rest.to_owned());
                    anyhow::ensure!(before.is_none(), "typed twice: {line}");
                }
                _ => anyhow::bail!("no such comment: {line}"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let name = line.get(..end).unwrap_or_default();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        anyhow::ensure!(is_name(name), "no name: {line}");
        let mut rest = line.get(end..).unwrap_or_default();
        if let Some(mut labels) = rest.strip_prefix('{') {
            loop {
                let (label, after) = labels
                    .split_once("=\"")
                    .ok_or_else(|| anyhow::anyhow!("no label: {line}"))?;
                anyhow::ensure!(is_name(label), "no label's name: {line}");
                let close = closing_quote(after).ok_or_else(|| anyhow::anyhow!("open: {line}"))?;
                let after = after.get(close + 1..).unwrap_or_default();
                if let Some(after) = after.strip_prefix('}') {
                    rest = after;
                    break;
                }
                labels = after
                    .strip_prefix(',')
                    .ok_or_else(|| anyhow::anyhow!("labels run together: {line}"))?;
            }
        }
        let value: f64 = rest
            .strip_prefix(' ')
            .ok_or_else(|| anyhow::anyhow!("no value: {line}"))?
            .parse()?;
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|end| name.strip_suffix(end))
            .find(|family| types.get(*family).is_some_and(|kind| kind == "histogram"))
            .unwrap_or(name);
        anyhow::ensure!(types.contains_key(family), "no type before: {line}");
        let series = line.strip_suffix(rest).unwrap_or(line).to_owned();
        anyhow::ensure!(found.insert(series, value).is_none(), "twice: {line}");
    }
    Ok(found)
}

/// Where a label's value ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| match c {
        _ if escaped => {
            escaped = false;
            None
        }
        '\\' => {
            escaped = true;
            None
        }
        '"' => Some(at),
        _ => None,
    })
}

fn metrics(daemon: &Daemon) -> anyhow::Result<Samples> {
    let answer = http::ask(daemon.socket(), "GET", route::METRICS)?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let head = answer.head.to_ascii_lowercase();
    assert!(
        head.contains("content-type: text/plain; version=0.0.4\r\n"),
        "{head}"
    );
    samples(&answer.body)
}

/// The value of a series; a counter that nothing has raised may not be there.
fn value(samples: &Samples, series: &str) -> f64 {
    samples.get(series).copied().unwrap_or_default()
}

#[track_caller]
fn same(samples: &Samples, series: &str, want: f64) {
    let found = value(samples, series);
    assert!(
        (found - want).abs() < 0.5,
        "{series} is {found}, not {want}: {samples:?}"
    );
}

fn the_daemon_tells_what_its_processes_take() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let figures = daemon.status().processes;
    assert_eq!(figures.daemon.pid, daemon.pid());
    let fds = figures.daemon.open_fds.unwrap_or_default();
    assert!((5..1000).contains(&fds), "{figures:?}");
    let (rss, pss) = (figures.daemon.rss_bytes, figures.daemon.pss_bytes);
    assert!(
        rss > Some(1024 * 1024) && pss > Some(512 * 1024) && pss <= rss,
        "{figures:?}"
    );
    if let Some(warden) = figures.warden {
        assert!(
            daemon
                .tree()
                .iter()
                .any(|process| process.pid == warden.pid)
        );
        assert!(warden.rss_bytes > Some(64 * 1024), "{figures:?}");
    }
    // Connections that stay open are descriptors of the daemon's.
    let held: Vec<_> = (0..40)
        .map(|_| std::os::unix::net::UnixStream::connect(daemon.socket()))
        .collect::<Result<_, _>>()?;
    until("forty connections are counted", PATIENCE, || {
        daemon.status().processes.daemon.open_fds >= Some(fds + 35)
    });
    drop(held);
    until("they are gone", PATIENCE, || {
        daemon.status().processes.daemon.open_fds <= Some(fds + 5)
    });
    Ok(())
}

/// Calls that end in three ways, and output of ten characters.
const VARIED: &str = "\
await mcp__m__add(a=1, b=2)
await mcp__m__big(bytes=5000)
for call in (mcp__m__fail(message='no'), mcp__m__add(a='x', b=2)):
    try:
        await call
    except ToolError:
        pass
print('123456789')
";

fn the_metrics_are_what_happened() -> TestResult {
    let plan = Plan::new()
        .server("m", &[])
        .server("odd-name", &["--exit-at-start", "3"]);
    let home = Home::new(&plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    daemon.wait_for("odd-name", ServerState::Reconnecting);
    let mut client = home.client();
    assert!(!client.run(VARIED).is_error);
    assert!(client.run("raise ValueError('x')").is_error);
    let samples = metrics(&daemon)?;
    same(&samples, "ptcd_runs_total{ending=\"finished\"}", 1.0);
    same(&samples, "ptcd_runs_total{ending=\"script_error\"}", 1.0);
    same(&samples, "ptcd_runs_total{ending=\"killed\"}", 0.0);
    same(&samples, "ptcd_run_duration_seconds_count", 2.0);
    same(
        &samples,
        "ptcd_run_duration_seconds_bucket{le=\"+Inf\"}",
        2.0,
    );
    same(&samples, "ptcd_calls_total{server=\"m\"}", 4.0);
    same(
        &samples,
        "ptcd_call_duration_seconds_count{server=\"m\"}",
        4.0,
    );
    for kind in ["tool_failed", "invalid_arguments"] {
        let series = format!("ptcd_call_failures_total{{kind=\"{kind}\",server=\"m\"}}");
        same(&samples, &series, 1.0);
    }
    same(&samples, "ptcd_clients", 1.0);
    same(&samples, "ptcd_servers{state=\"ready\"}", 1.0);
    same(&samples, "ptcd_server_ready{server=\"m\"}", 1.0);
    same(&samples, "ptcd_server_ready{server=\"odd-name\"}", 0.0);
    same(&samples, "ptcd_server_restarts_total{server=\"m\"}", 0.0);
    same(&samples, "ptcd_journal_failures_total", 0.0);
    for (series, least) in [
        ("ptcd_result_bytes_total", 5000.0),
        ("ptcd_output_bytes_total", 9.0),
        ("ptcd_journal_bytes", 500.0),
        ("ptcd_workers_started_total", 2.0),
    ] {
        assert!(value(&samples, series) >= least, "{series}: {samples:?}");
    }
    // A server that is killed comes back, which is counted.
    let pid = daemon.server("m").pid.unwrap_or_default();
    if let Some(process) = ptc_tests::process::Process::of(pid) {
        process.kill();
        until("a new connection is counted", PATIENCE, || {
            metrics(&daemon).is_ok_and(|samples| {
                value(&samples, "ptcd_server_restarts_total{server=\"m\"}") >= 1.0
            })
        });
        assert!(daemon.server("m").restarts >= 1);
    }
    drop(client);
    until("the client is gone", PATIENCE, || {
        metrics(&daemon).is_ok_and(|samples| value(&samples, "ptcd_clients") < 0.5)
    });
    Ok(())
}

fn the_metrics_have_no_label_of_a_programs_choice() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.shim_with(&["--client", "zebrafinch"]);
    client.initialize("2025-11-25");
    client.run("await mcp__m__add(a=1, b=2)");
    client.run("await mcp__zebrafinch__tool()");
    client.run("raise ValueError('zebrafinch')");
    let before: BTreeSet<String> = metrics(&daemon)?.into_keys().collect();
    for number in 0..5 {
        let run = client.run(&format!(
            "await mcp__zebrafinch{number}__tool(zebrafinch=1)"
        ));
        assert!(run.is_error);
    }
    let after: BTreeSet<String> = metrics(&daemon)?.into_keys().collect();
    assert_eq!(before, after);
    let named = after.iter().any(|series| series.contains("zebrafinch"));
    assert!(!named, "{after:?}");
    Ok(())
}

fn each_log_line_of_a_run_has_its_id() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("PTC_LOG", "warn,ptcd=debug");
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let runs: Vec<String> = (0..2)
        .map(|_| {
            let run = client.run("await mcp__m__add(a=1, b=2)");
            run.structured["run"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    let lines = || -> Vec<Value> {
        std::fs::read_to_string(home.daemon_log())
            .unwrap_or_default()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    };
    let session = &daemon.status().clients[0].session;
    for run in &runs {
        let line = eventually("the end of a run is in the log", PATIENCE, || {
            lines().into_iter().find(|line| {
                let message = line["message"] == "a program has ended";
                message && line.to_string().contains(run)
            })
        });
        let spans = &line["spans"];
        assert_eq!(spans[0]["name"], "session", "{line}");
        assert_eq!(spans[0]["session"], json!(session), "{line}");
        assert_eq!(
            (&spans[1]["name"], &spans[1]["run"]),
            (&json!("run"), &json!(run))
        );
    }
    let ready = lines()
        .into_iter()
        .find(|line| line["message"] == "server is ready");
    let ready = ready.unwrap_or_default();
    assert_eq!(ready["spans"][0]["server"], "m", "{ready}");
    Ok(())
}

fn one_statement_of_health_is_shown_by_every_face() -> TestResult {
    let gone = "/nowhere/at/all/server";
    let plan = Plan::new()
        .server("fine", &[])
        .entry(json!({"name": "lost", "transport": "stdio", "command": gone}));
    let home = Home::new(&plan);
    let daemon = home.daemon();
    daemon.wait_for("fine", ServerState::Ready);
    let server = daemon.wait_for("lost", ServerState::Failed);
    let health = &server.health;
    assert_eq!(
        (health.level, health.state.as_str()),
        (Level::Blocked, "failed")
    );
    let cause = health.detail.clone().unwrap_or_default();
    assert!(cause.contains(gone), "{health:?}");
    assert_eq!(server.detail.as_deref(), Some(cause.as_str()));
    let action = health.action.clone().unwrap_or_default();
    assert!(action.contains("ptcctl servers restart lost"), "{health:?}");
    assert_eq!(daemon.server("fine").health.level, Level::Ok);
    // The whole daemon's is that of its worst part.
    let whole = daemon.status().health;
    assert_eq!(
        (whole.level, whole.state.as_str()),
        (Level::Blocked, "server_failed")
    );
    assert_eq!(whole.detail, Some(format!("lost: {cause}")));
    assert_eq!(whole.action, Some(action));
    let answer = http::ask(daemon.socket(), "GET", route::HEALTH)?;
    assert_eq!(serde_json::from_str::<Value>(&answer.body)?, json!(whole));
    // What clients and programs are told has the same cause.
    let mut client = home.client();
    let listed = client.call("list_callable_tools", &json!({}));
    let told = listed.structured["unavailable"]["lost"]
        .as_str()
        .unwrap_or_default();
    assert!(
        told.starts_with("failed: ") && told.ends_with(&cause),
        "{told}"
    );
    let run = client.run("print((await server_status())['lost']['error'])");
    assert_eq!(run.printed(), told);
    let (_, text, _) = home.ctl(&["status"]);
    assert!(text.contains("failed") && text.contains(gone), "{text}");
    Ok(())
}

fn the_memory_of_large_results_is_given_back() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let held = || {
        daemon
            .status()
            .processes
            .daemon
            .rss_bytes
            .unwrap_or_default()
    };
    let mut clients: Vec<_> = (0..3).map(|_| home.client()).collect();
    for client in &mut clients {
        client.run("await mcp__m__big(bytes=1000)");
    }
    let before = held();
    for _ in 0..4 {
        let program = "print(len(await mcp__m__big(bytes=8_000_000)))";
        let runs: Vec<_> = clients
            .iter_mut()
            .map(|client| client.start_run(program))
            .collect();
        for (client, run) in clients.iter_mut().zip(runs) {
            assert_eq!(client.finish_run(&run).printed(), "8000000");
        }
    }
    // Kept by the allocator, it is 40 MB and more.
    until("memory is what it was", PATIENCE, || {
        held() < before + 16 * 1024 * 1024
    });
    Ok(())
}
