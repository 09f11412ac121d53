//! The text as a scraper reads it.

use std::collections::BTreeMap;

use ptc_protocol::status::{ServerState, Status};

use super::*;

/// A status with two servers, as JSON writes it.
fn status() -> Status {
    let server = |name: &str, state: &str, restarts: u64| {
        serde_json::json!({
            "name": name, "state": state, "via": "stdio", "calls": 7, "failed_calls": 1,
            "restarts": restarts, "junk_lines": 0,
        })
    };
    serde_json::from_value(serde_json::json!({
        "schema": 1, "build": "0.1.0", "pid": 7, "uptime_seconds": 61, "draining": false,
        "socket": "/s", "state_dir": "/d",
        "health": {"level": "ok", "state": "ok", "summary": "2 of 2"},
        "config": {"path": null, "read_seconds_ago": 1, "changed_on_disk": false},
        "programs": {
            "confinement": "landlock", "python": null, "python_path": null,
            "pool": {"warm": 2, "max_warm": 8, "busy": 1, "max_runs": 16, "queued": 3},
        },
        "totals": {"runs": 2, "failed_runs": 1, "result_bytes": 5_000_000_000_u64, "output_bytes": 10},
        "processes": {
            "daemon": {"pid": 7, "open_fds": 41, "rss_bytes": 9000, "pss_bytes": 8000},
            "warden": {"pid": 8, "open_fds": null, "rss_bytes": 700, "pss_bytes": null},
        },
        "clients": [],
        "servers": [server("git", "ready", 2), server("odd \"name\"\n", "failed", 0)],
    }))
    .unwrap()
}

#[test]
fn the_text_is_this() {
    let metrics = Metrics::new().unwrap();
    metrics.run_ended(Ending::Finished, Some(Duration::from_millis(30)));
    metrics.run_ended(Ending::Refused, None);
    metrics.call_ended("git", None, Duration::from_millis(3));
    metrics.call_ended("git", Some(ToolErrorKind::Timeout), Duration::from_mins(1));
    metrics.call_ended("", Some(ToolErrorKind::UnknownTool), Duration::ZERO);
    let extra = Extra {
        workers_started: 5,
        workers_failed: 1,
        journal_bytes: 12_345,
        journal_failures: 0,
    };
    let text = metrics.text(&status(), &extra).unwrap();
    assert_eq!(text, include_str!("tests/metrics.txt"), "{text}");
}

#[test]
fn no_series_is_made_by_what_a_program_chose() {
    let metrics = Metrics::new().unwrap();
    let count = |metrics: &Metrics| {
        let text = metrics.text(&status(), &Extra::default()).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    metrics.call_ended("", Some(ToolErrorKind::UnknownTool), Duration::ZERO);
    let before = count(&metrics);
    for _ in 0..100 {
        metrics.call_ended("", Some(ToolErrorKind::UnknownTool), Duration::ZERO);
    }
    assert_eq!(count(&metrics), before);
}

#[test]
fn every_state_of_a_server_is_counted() {
    let mut status = status();
    let one = status.servers[0].clone();
    let mut wanted = BTreeMap::new();
    status.servers.clear();
    for (state, count) in [
        (ServerState::Connecting, 1),
        (ServerState::Ready, 2),
        (ServerState::Reconnecting, 3),
        (ServerState::Failed, 4),
        (ServerState::Disabled, 5),
    ] {
        wanted.insert(
            format!("ptcd_servers{{state=\"{}\"}}", state.as_str()),
            count,
        );
        for number in 0..count {
            let mut server = one.clone();
            server.state = state;
            server.name = format!("{}{number}", state.as_str());
            status.servers.push(server);
        }
    }
    let metrics = Metrics::new().unwrap();
    let text = metrics.text(&status, &Extra::default()).unwrap();
    for (series, count) in wanted {
        assert!(
            text.contains(&format!("{series} {count}\n")),
            "{series}: {text}"
        );
    }
}
