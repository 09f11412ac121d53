//! What `ptcctl status` prints, to the letter.

use super::*;
use ptc_protocol::status::{
    ConfigStatus, Health, JournalStatus, PoolStatus, Processes, ProgramsStatus, SCHEMA, Totals,
};

fn client(name: &str) -> ClientStatus {
    ClientStatus {
        name: name.to_owned(),
        session: "0a1b2c3d4e5f".to_owned(),
        pid: 4400,
        other_build: None,
        runs: 0,
    }
}

fn server(name: &str, state: ServerState, via: &str) -> ServerStatus {
    ServerStatus {
        name: name.to_owned(),
        state,
        via: via.to_owned(),
        protocol: None,
        tools: None,
        calls: 0,
        failed_calls: 0,
        p50_ms: None,
        last_call_ms_ago: None,
        pid: None,
        detail: None,
        restarts: 0,
        health: Health::default(),
        junk_lines: 0,
        notes: Vec::new(),
    }
}

fn four_servers() -> Vec<ServerStatus> {
    let github = ServerStatus {
        tools: Some(38),
        calls: 212,
        failed_calls: 1,
        p50_ms: Some(180),
        last_call_ms_ago: Some(4200),
        ..server("github", ServerState::Ready, "http")
    };
    let financial = ServerStatus {
        tools: Some(12),
        calls: 96,
        p50_ms: Some(42),
        last_call_ms_ago: Some(61_000),
        pid: Some(4391),
        ..server("financial-data", ServerState::Ready, "stdio")
    };
    let jira = ServerStatus {
        calls: 14,
        failed_calls: 3,
        p50_ms: Some(410),
        last_call_ms_ago: Some(360_000),
        detail: Some("reset; try 4 in 8s".to_owned()),
        ..server("jira", ServerState::Reconnecting, "http")
    };
    let ast_grep = ServerStatus {
        calls: 3,
        failed_calls: 1,
        last_call_ms_ago: Some(7_200_000),
        detail: Some("`uvx` not in its PATH".to_owned()),
        ..server("ast-grep", ServerState::Failed, "stdio")
    };
    vec![github, financial, jira, ast_grep]
}

fn example() -> Status {
    Status {
        schema: SCHEMA,
        build: "0.4.0".to_owned(),
        pid: 4312,
        uptime_seconds: 11_520,
        draining: false,
        socket: "/run/user/7/ptcd/ptcd.sock".to_owned(),
        state_dir: "/home/u/.local/state/ptc/default".to_owned(),
        health: Health {
            level: Level::Blocked,
            state: "degraded".to_owned(),
            summary: "2 of 4 servers are ready".to_owned(),
            detail: None,
            action: Some("ptcctl status".to_owned()),
        },
        config: ConfigStatus {
            path: Some("/home/u/.config/ptc/config.yaml".to_owned()),
            read_seconds_ago: 840,
            faults: Vec::new(),
            changed_on_disk: false,
            missing_variables: Vec::new(),
        },
        policy: None,
        programs: ProgramsStatus {
            confinement: Some(Confinement::Full),
            refusal: None,
            notes: Vec::new(),
            python: Some("3.12.4".to_owned()),
            python_path: Some("/usr/bin/python3.12".to_owned()),
            pool: PoolStatus {
                warm: 3,
                max_warm: 8,
                busy: 1,
                max_runs: 16,
                queued: 0,
                forked: true,
            },
            engines: Vec::new(),
        },
        journal: JournalStatus::default(),
        totals: Totals::default(),
        today: Totals {
            runs: 41,
            failed_runs: 2,
            result_bytes: 1_950_000,
            output_bytes: 40_000,
            kept_out_bytes: 1_910_000,
        },
        processes: Processes::default(),
        clients: vec![client("claude-code"), client("cursor")],
        servers: four_servers(),
    }
}

fn view(width: usize) -> View {
    View {
        width,
        color: false,
        verbose: false,
        home: Some("/home/u".to_owned()),
        config: Some("/home/u/.config/ptc/config.yaml".to_owned()),
        one: false,
        doctor: true,
    }
}

/// The lines above and below the table where none has to be wrapped.
const ABOVE: &str = "\
ptcd 0.4.0  up 3h12m, pid 4312, 2 clients (claude-code, cursor)
config      ~/.config/ptc/config.yaml, reloaded 14m ago
programs    python 3.12.4; full sandbox; pool 3 warm of 8, forked; 1 busy of 16
today       41 runs, 2 failed; 1.9 MB of tool results kept out of the context
";
const BELOW: &str = "
2 of 4 ready: programs see 50 tools, calls to the others raise ToolError.
next: ptcctl doctor ast-grep";

fn shows(width: usize, want: &str) {
    let text = full(&example(), &view(width));
    assert_eq!(text, want.trim_start_matches('\n'), "\n{text}");
}

/// The same of the table alone, between [`ABOVE`] and [`BELOW`].
fn shows_table(width: usize, table: &str) {
    shows(width, &format!("{ABOVE}{table}{BELOW}"));
}

#[test]
fn at_120_columns_everything_is_there() {
    shows_table(
        120,
        r"
   SERVER          STATE         VIA    TOOLS  CALLS  FAIL    P50   LAST    DETAIL
●  github          ready         http      38    212     1  180ms   4s ago
●  financial-data  ready         stdio     12     96     0   42ms   1m ago  pid 4391
◌  jira            reconnecting  http       –     14     3  410ms   6m ago  reset; try 4 in 8s
✗  ast-grep        failed        stdio      –      3     1      –   2h ago  `uvx` not in its PATH
",
    );
}

#[test]
fn at_90_columns_the_failures_and_the_median_go() {
    shows_table(
        90,
        r"
   SERVER          STATE         VIA    TOOLS  CALLS   LAST    DETAIL
●  github          ready         http      38    212   4s ago
●  financial-data  ready         stdio     12     96   1m ago  pid 4391
◌  jira            reconnecting  http       –     14   6m ago  reset; try 4 in 8s
✗  ast-grep        failed        stdio      –      3   2h ago  `uvx` not in its PATH
",
    );
}

#[test]
fn at_80_columns_the_way_goes_too() {
    shows_table(
        80,
        r"
   SERVER          STATE         TOOLS  CALLS   LAST    DETAIL
●  github          ready            38    212   4s ago
●  financial-data  ready            12     96   1m ago  pid 4391
◌  jira            reconnecting      –     14   6m ago  reset; try 4 in 8s
✗  ast-grep        failed            –      3   2h ago  `uvx` not in its PATH
",
    );
}

#[test]
fn at_70_columns_the_last_call_goes_too_and_lines_are_wrapped() {
    shows(
        70,
        r"
ptcd 0.4.0  up 3h12m, pid 4312, 2 clients (claude-code, cursor)
config      ~/.config/ptc/config.yaml, reloaded 14m ago
programs    python 3.12.4; full sandbox; pool 3 warm of 8, forked; 1
            busy of 16
today       41 runs, 2 failed; 1.9 MB of tool results kept out of the
            context

   SERVER          STATE         TOOLS  CALLS  DETAIL
●  github          ready            38    212
●  financial-data  ready            12     96  pid 4391
◌  jira            reconnecting      –     14  reset; try 4 in 8s
✗  ast-grep        failed            –      3  `uvx` not in its PATH

2 of 4 ready: programs see 50 tools, calls to the others raise
ToolError.
next: ptcctl doctor ast-grep",
    );
}

#[test]
fn at_40_columns_each_server_has_a_short_line() {
    shows(
        40,
        r"
ptcd 0.4.0  up 3h12m, pid 4312, 2
            clients (claude-code,
            cursor)
config      ~/.config/ptc/config.yaml,
            reloaded 14m ago
programs    python 3.12.4; full sandbox;
            pool 3 warm of 8, forked; 1
            busy of 16
today       41 runs, 2 failed; 1.9 MB of
            tool results kept out of the
            context

github ready, 38 tools
financial-data ready, 12 tools
jira reconnecting: reset; try 4 in 8s
ast-grep failed: `uvx` not in its PATH

2 of 4 ready: programs see 50 tools,
calls to the others raise ToolError.
next: ptcctl doctor ast-grep",
    );
}

#[test]
fn plain_is_one_short_line_a_server_at_any_width() {
    let want = "github ready, 38 tools
financial-data ready, 12 tools
jira reconnecting: reset; try 4 in 8s
ast-grep failed: `uvx` not in its PATH";
    assert_eq!(short_lines(&example().servers), want);
}

#[test]
fn in_json_every_field_has_its_name() {
    let mut status = example();
    status.servers.truncate(1);
    let made = serde_json::to_value(&status).unwrap();
    let golden = include_str!("../../../tests/golden/status.json");
    holds(&made, &serde_json::from_str(golden).unwrap(), "status");
}

/// Whether all of `golden` stands in `made`; objects may have more, which readers pass over.
fn holds(made: &serde_json::Value, golden: &serde_json::Value, place: &str) {
    match (made, golden) {
        (serde_json::Value::Object(made), serde_json::Value::Object(golden)) => {
            for (name, value) in golden {
                holds(&made[name], value, &format!("{place}.{name}"));
            }
        }
        (serde_json::Value::Array(made), serde_json::Value::Array(golden)) => {
            assert_eq!(made.len(), golden.len(), "{place}");
            for (at, (made, golden)) in made.iter().zip(golden).enumerate() {
                holds(made, golden, &format!("{place}[{at}]"));
            }
        }
        (made, golden) => assert_eq!(made, golden, "{place}"),
    }
}

#[test]
fn where_no_verb_looks_at_a_server_the_way_to_mend_it_is_said() {
    let other = View {
        doctor: false,
        ..view(120)
    };
    let text = full(&example(), &other);
    assert!(
        text.ends_with("\nnext: mend the cause, then `ptcctl reload`"),
        "{text}"
    );
}

#[test]
fn a_long_cause_is_whole_below_the_table_and_bounded() {
    let mut status = example();
    let cause = "it ended with exit code 1 before it answered; its last words: no such file or directory: /home/u/notes";
    status.servers[3].detail = Some(cause.to_owned());
    let text = full(&status, &view(100));
    let want = "ast-grep:
    it ended with exit code 1 before it answered; its last words: no such file or directory:
    /home/u/notes

2 of 4 ready";
    assert!(text.contains(want), "{text}");
    let row = text
        .lines()
        .find(|line| line.contains("✗  ast-grep"))
        .unwrap();
    assert_eq!(row.chars().count(), 100);
    assert!(row.ends_with('…'), "{row}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    status.servers[3].detail = Some("ö".repeat(1000));
    let text = full(&status, &view(100));
    assert_eq!(text.matches('ö').count() - in_row(&text), 399);
}

/// How many of the cause's letters stand in the table.
fn in_row(text: &str) -> usize {
    let row = text
        .lines()
        .find(|line| line.contains("✗  ast-grep"))
        .unwrap();
    row.matches('ö').count()
}

#[test]
fn one_server_is_shown_whole() {
    let mut status = example();
    status.servers.retain(|server| server.name == "ast-grep");
    status.servers[0].detail = Some(format!("a long cause {}", "y ".repeat(50)));
    status.servers[0].notes = vec!["two tools collide".to_owned()];
    status.servers[0].junk_lines = 1;
    let view = View {
        one: true,
        ..view(80)
    };
    let want = format!(
        "ast-grep    failed, stdio
detail      a long cause {}
            {}
calls       3, 1 failed; the last 2h ago
stdout      1 line of no protocol, passed over
note        two tools collide
log         a file of its name in ~/.local/state/ptc/default/servers
next: mend the cause, then `ptcctl reload`",
        "y ".repeat(28).trim_end(),
        "y ".repeat(22).trim_end(),
    );
    let text = full(&status, &view);
    assert_eq!(text, want, "\n{text}");
}

#[test]
fn colour_is_only_on_the_marks() {
    let colored = View {
        color: true,
        ..view(120)
    };
    let text = full(&example(), &colored);
    assert!(text.contains("\u{1b}[31m✗\u{1b}[0m  ast-grep"), "{text}");
    assert_eq!(text.matches('\u{1b}').count(), 8);
}

#[test]
fn what_is_out_of_order_is_said() {
    let mut status = example();
    status.draining = true;
    status.clients.clear();
    status.servers.truncate(2);
    status.config.faults = vec!["config.yaml:3:1: unknown key `a`".to_owned()];
    status.config.changed_on_disk = true;
    status.config.missing_variables = vec!["TOKEN".to_owned()];
    status.programs.refusal = Some("no user namespaces: allow them".to_owned());
    status.health.summary = "programs are refused".to_owned();
    status.health.detail = Some("no user namespaces".to_owned());
    status.health.action = None;
    let text = full(&status, &view(120));
    let lines: Vec<&str> = text.lines().collect();
    let head = [
        "ptcd 0.4.0  up 3h12m, pid 4312, no clients, draining",
        "config      ~/.config/ptc/config.yaml, reloaded 14m ago; changed on disk since (ptcctl reload)",
        "            not in force: config.yaml:3:1: unknown key `a`",
        "            no value yet for TOKEN",
        "programs    refused: no user namespaces: allow them",
    ];
    assert_eq!(lines[..5], head);
    assert_eq!(
        foot(&text),
        [
            "2 of 2 ready: programs see 50 tools.",
            "next: mend the file (1 fault), then `ptcctl reload`",
        ]
    );
    status.config.faults.clear();
    let text = full(&status, &view(120));
    assert_eq!(
        foot(&text),
        [
            "programs are refused",
            "next: do what `programs` says above, then `ptcctl restart`",
        ]
    );
}

#[test]
fn a_journal_that_cannot_be_written_is_said_with_what_to_do() {
    let mut status = example();
    status.servers.truncate(2);
    status.journal.fault = Some("cannot write to the journal at /j: No space left".to_owned());
    status.health.summary = "programs are refused: they cannot be recorded".to_owned();
    status.health.detail.clone_from(&status.journal.fault);
    status.health.action = Some("make room for the journal".to_owned());
    let text = full(&status, &view(120));
    let programs = "\nprograms    refused: cannot write to the journal at /j: No space left\n";
    assert!(text.contains(programs), "{text}");
    assert_eq!(
        foot(&text),
        [
            "programs are refused: they cannot be recorded",
            "next: make room for the journal",
        ]
    );
}

/// The last two lines.
fn foot(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len() - 2..].to_vec()
}

#[test]
fn without_a_configuration_there_is_no_table() {
    let mut status = example();
    status.servers.clear();
    status.config.path = None;
    status.health.level = Level::Ok;
    let text = full(&status, &view(120));
    assert!(text.contains(
        "config      none (there is no file ~/.config/ptc/config.yaml), so there are no servers\n"
    ));
    assert!(
        text.ends_with("\n\n0 of 0 ready: programs see 0 tools."),
        "{text}"
    );
}
