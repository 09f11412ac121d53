//! Writes the daemon's status for a person to read.

use ptc_protocol::run::Confinement;
use ptc_protocol::status::{
    ClientStatus, EngineStatus, Level, PolicyStatus, ServerState, ServerStatus, Status,
};

use super::server_text::{causes, whole};
use super::table::{Column, Lean, lay_out};
use super::words::{ago, bytes, count, duration, plain, shorten, span, wrap};

/// From this width on no column is dropped.
const WIDE: usize = 100;
/// Below this width each server has one short line.
const NARROW: usize = 60;
/// Most clients named in the first line.
const MAX_NAMED: usize = 8;

/// How the status is shown.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent facts about what is wanted"
)]
pub(super) struct View {
    /// Characters a line.
    pub(super) width: usize,
    /// Whether states are coloured.
    pub(super) color: bool,
    /// Whether notes are shown too.
    pub(super) verbose: bool,
    /// The home directory, to be written as `~`.
    pub(super) home: Option<String>,
    /// The configuration file that was looked for, where it is the daemon's.
    pub(super) config: Option<String>,
    /// Whether only one server was asked for.
    pub(super) one: bool,
    /// Whether the verb `doctor` looks at one server.
    pub(super) doctor: bool,
}

/// The whole status.
pub(super) fn full(status: &Status, view: &View) -> String {
    if view.one {
        let servers = status.servers.iter();
        let texts: Vec<String> = servers.map(|server| whole(server, status, view)).collect();
        return texts.join("\n\n");
    }
    let mut lines = head(status, view);
    if !status.servers.is_empty() {
        lines.push(String::new());
        lines.extend(all_servers(status, view));
    }
    lines.push(String::new());
    for line in foot(status, view) {
        if view.width < WIDE {
            lines.extend(wrap(&line, view.width));
        } else {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// The servers and why some are not ready; nothing where none is configured.
pub(super) fn all_servers(status: &Status, view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    if view.width < NARROW {
        let all = status.servers.iter().map(short);
        lines.extend(all.map(|line| shorten(&line, view.width)));
    } else if !status.servers.is_empty() {
        let table = servers(&status.servers, view);
        let causes = causes(&status.servers, &table, view);
        lines.extend(table);
        if !causes.is_empty() {
            lines.push(String::new());
            lines.extend(causes);
        }
    }
    if view.verbose {
        let notes = status.servers.iter().flat_map(|server| {
            let notes = server.notes.iter();
            notes.map(|note| format!("{}: {}", plain(&server.name), plain(note)))
        });
        lines.extend(notes);
    }
    lines
}

/// One short line a server.
pub(super) fn short_lines(servers: &[ServerStatus]) -> String {
    servers.iter().map(short).collect::<Vec<_>>().join("\n")
}

fn head(status: &Status, view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    let mut put = |label: &str, text: &str| lines.extend(fitted(label, text, view));
    let draining = if status.draining { ", draining" } else { "" };
    let up = span(status.uptime_seconds);
    let clients = clients(&status.clients);
    put(
        &format!("ptcd {}", status.build),
        &format!("up {up}, pid {}, {clients}{draining}", status.pid),
    );
    put("config", &config(status, view));
    let config = &status.config;
    for fault in &config.faults {
        put("", &format!("not in force: {}", plain(fault)));
    }
    if !config.missing_variables.is_empty() {
        let names = config.missing_variables.join(", ");
        put("", &format!("no value yet for {names}"));
    }
    if let Some(policy) = &status.policy {
        put("policy", &self::policy(policy, view));
    }
    put("programs", &programs(status));
    for note in &status.programs.notes {
        put("", &plain(note));
    }
    let today = &status.today;
    put(
        "today",
        &format!(
            "{}, {} failed; {} of tool results kept out of the context",
            count(today.runs, "run"),
            today.failed_runs,
            bytes(today.kept_out_bytes)
        ),
    );
    lines
}

/// A labelled text; on a narrow terminal on as many lines as it takes.
fn fitted(label: &str, text: &str, view: &View) -> Vec<String> {
    if view.width >= WIDE {
        return vec![labelled(label, text)];
    }
    let indent = labelled(label, "x").chars().count() - 1;
    let wrapped = wrap(text, view.width.saturating_sub(indent));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let lines = labels.zip(&wrapped);
    lines.map(|(label, line)| labelled(label, line)).collect()
}

pub(super) fn labelled(label: &str, text: &str) -> String {
    let text = text.trim_end();
    if label.chars().count() < 11 {
        format!("{label:<12}{text}")
    } else {
        format!("{label} {text}")
    }
}

fn clients(clients: &[ClientStatus]) -> String {
    if clients.is_empty() {
        return "no clients".to_owned();
    }
    let name = |client: &ClientStatus| match &client.other_build {
        Some(build) => format!("{} of build {}", plain(&client.name), plain(build)),
        None => plain(&client.name),
    };
    let mut names: Vec<String> = clients.iter().take(MAX_NAMED).map(name).collect();
    if clients.len() > MAX_NAMED {
        names.push("…".to_owned());
    }
    format!(
        "{} ({})",
        count(clients.len() as u64, "client"),
        names.join(", ")
    )
}

fn config(status: &Status, view: &View) -> String {
    let config = &status.config;
    let Some(path) = &config.path else {
        let place = view.config.as_deref().map_or_else(String::new, |path| {
            format!(" (there is no file {})", homely(path, view))
        });
        return format!("none{place}, so there are no servers");
    };
    let path = homely(path, view);
    // The first reading is a moment after the start.
    let first = config.read_seconds_ago + 5 >= status.uptime_seconds;
    let word = if first { "read" } else { "reloaded" };
    let changed = if config.changed_on_disk {
        "; changed on disk since (ptcctl reload)"
    } else {
        ""
    };
    format!("{path}, {word} {}{changed}", ago(config.read_seconds_ago))
}

/// The Cedar policies in force.
fn policy(policy: &PolicyStatus, view: &View) -> String {
    let policies = match policy.policies {
        0 => "no policy, so every call is denied".to_owned(),
        1 => "1 policy".to_owned(),
        more => format!("{more} policies"),
    };
    let warnings = match policy.warnings.len() as u64 {
        0 => String::new(),
        more => format!("; {} (ptcctl policy check)", count(more, "warning")),
    };
    format!(
        "{}, {policies}{warnings}, set {}",
        homely(&policy.path, view),
        plain(&policy.rules)
    )
}

/// A path with `~` in place of the home directory.
pub(super) fn homely(path: &str, view: &View) -> String {
    let home = view.home.as_deref().filter(|home| home.len() > 1);
    let inside = home
        .and_then(|home| path.strip_prefix(home))
        .filter(|rest| rest.starts_with('/'));
    inside.map_or_else(|| plain(path), |rest| plain(&format!("~{rest}")))
}

fn programs(status: &Status) -> String {
    let programs = &status.programs;
    if let Some(reason) = refused(status) {
        return format!("refused: {}", plain(reason));
    }
    let python = programs
        .python
        .as_deref()
        .map_or("no python".to_owned(), |version| {
            format!("python {}", plain(version))
        });
    let sandbox = match programs.confinement {
        Some(Confinement::None) => "NO sandbox".to_owned(),
        Some(tier) => format!("{} sandbox", tier.as_str()),
        None => "no sandbox yet".to_owned(),
    };
    let pool = &programs.pool;
    let queued = if pool.queued > 0 {
        format!("; {} waiting", pool.queued)
    } else {
        String::new()
    };
    let engines: String = programs.engines.iter().map(engine).collect();
    format!(
        "{python}; {sandbox}; pool {} warm of {}; {} busy of {}{queued}{engines}",
        pool.warm, pool.max_warm, pool.busy, pool.max_runs
    )
}

/// Why no program runs: for want of a sandbox, or of a record of what it does.
fn refused(status: &Status) -> Option<&str> {
    let refusal = status.programs.refusal.as_deref();
    refusal.or(status.journal.fault.as_deref())
}

/// An engine beside CPython, behind the rest of its line.
fn engine(engine: &EngineStatus) -> String {
    let name = plain(&engine.name);
    let default = if engine.default { ", the default" } else { "" };
    match (&engine.unavailable, &engine.version) {
        (Some(reason), _) => format!("; engine {name} unavailable{default}: {}", plain(reason)),
        (None, Some(version)) => format!("; engine {}{default}", plain(version)),
        (None, None) => format!("; engine {name}{default}"),
    }
}

fn servers(servers: &[ServerStatus], view: &View) -> Vec<String> {
    let column = |title, lean, least, drop, cell: &dyn Fn(&ServerStatus) -> String| Column {
        title,
        lean,
        least,
        drop,
        cells: servers.iter().map(cell).collect(),
    };
    let none = || "–".to_owned();
    let left = Lean::Left;
    let right = Lean::Right;
    let columns = vec![
        column(" ", left, 1, None, &|server| {
            glyph(server.state).0.to_owned()
        }),
        column("SERVER", left, 0, None, &|server| plain(&server.name)),
        column("STATE", left, 0, None, &|server| {
            server.state.as_str().to_owned()
        }),
        column("VIA", left, 5, Some(2), &|server| plain(&server.via)),
        column("TOOLS", right, 5, None, &|server| {
            server.tools.map_or_else(none, |tools| tools.to_string())
        }),
        column("CALLS", right, 5, None, &|server| server.calls.to_string()),
        column("FAIL", right, 4, Some(0), &|server| {
            server.failed_calls.to_string()
        }),
        column("P50", right, 5, Some(1), &|server| {
            server.p50_ms.map_or_else(none, duration)
        }),
        column(" LAST", right, 7, Some(3), &|server| {
            server
                .last_call_ms_ago
                .map_or_else(none, |ms| ago(ms / 1000))
        }),
        column("DETAIL", left, 0, None, &detail),
    ];
    let mut lines = lay_out(columns, view.width, view.width >= WIDE);
    if view.color {
        for (line, server) in lines.iter_mut().skip(1).zip(servers) {
            let (glyph, color) = glyph(server.state);
            *line = line.replacen(glyph, &format!("\u{1b}[{color}m{glyph}\u{1b}[0m"), 1);
        }
    }
    lines
}

/// The mark of a state, and its colour.
fn glyph(state: ServerState) -> (&'static str, u8) {
    match state {
        ServerState::Ready => ("●", 32),
        ServerState::Connecting | ServerState::Reconnecting => ("◌", 33),
        ServerState::Failed => ("✗", 31),
        ServerState::Disabled => ("○", 2),
    }
}

fn detail(server: &ServerStatus) -> String {
    match (&server.detail, server.pid) {
        (Some(detail), _) => plain(detail),
        (None, Some(pid)) => format!("pid {pid}"),
        (None, None) => String::new(),
    }
}

fn short(server: &ServerStatus) -> String {
    let name = plain(&server.name);
    let state = server.state.as_str();
    match (server.state, server.tools, &server.detail) {
        (ServerState::Ready, Some(tools), _) => {
            format!("{name} {state}, {}", counted(tools))
        }
        (_, _, Some(detail)) => format!("{name} {state}: {}", plain(detail)),
        (_, _, None) => format!("{name} {state}"),
    }
}

fn foot(status: &Status, view: &View) -> Vec<String> {
    let ready = status
        .servers
        .iter()
        .filter(|server| server.state == ServerState::Ready);
    let ready: Vec<&ServerStatus> = ready.collect();
    let enabled = status
        .servers
        .iter()
        .filter(|server| server.state != ServerState::Disabled);
    let enabled = enabled.count();
    let tools: usize = ready.iter().filter_map(|server| server.tools).sum();
    let others = if ready.len() < enabled {
        ", calls to the others raise ToolError"
    } else {
        ""
    };
    let counted = format!(
        "{} of {enabled} ready: programs see {}{others}.",
        ready.len(),
        counted(tools)
    );
    let mut lines = vec![counted];
    if status.health.level != Level::Ok {
        // Where servers are all that is wrong, the count says it already; faults of the
        // configuration and a refusal stand above.
        if ready.len() == enabled && status.config.faults.is_empty() {
            lines.push(summary(status));
        }
        lines.extend(action(status, view).map(|next| format!("next: {next}")));
    }
    lines
}

/// `1 tool`, `2 tools`.
pub(super) fn counted(tools: usize) -> String {
    count(tools as u64, "tool")
}

fn summary(status: &Status) -> String {
    let health = &status.health;
    let told = refused(status).is_some();
    let detail = health.detail.as_ref().filter(|_| !told);
    let cause = detail.map_or_else(String::new, |detail| format!(": {}", plain(detail)));
    format!("{}{cause}", plain(&health.summary))
}

/// What to do now: never what was just done, and never what is said above already.
fn action(status: &Status, view: &View) -> Option<String> {
    let faults = status.config.faults.len() as u64;
    if faults > 0 {
        let faults = count(faults, "fault");
        return Some(format!("mend the file ({faults}), then `ptcctl reload`"));
    }
    if status.programs.refusal.is_some() {
        return Some("do what `programs` says above, then `ptcctl restart`".to_owned());
    }
    if status.journal.fault.is_some() {
        return status.health.action.as_deref().map(plain);
    }
    server_action(&status.servers, view)
}

/// What to do about these servers.
pub(super) fn server_action(servers: &[ServerStatus], view: &View) -> Option<String> {
    let mut failed = servers
        .iter()
        .filter(|server| server.state == ServerState::Failed);
    let first = failed.clone().next()?;
    let lacks_variable = failed.any(|server| {
        let cause = server.detail.as_deref();
        cause.is_some_and(|cause| cause.contains("environment variable"))
    });
    let text = "mend the cause, then `ptcctl reload`";
    Some(if lacks_variable {
        format!("{text}; a variable of `env` or `headers` may also come from a client that has it")
    } else if view.doctor && !view.one {
        format!("ptcctl doctor {}", plain(&first.name))
    } else {
        text.to_owned()
    })
}

#[cfg(test)]
mod tests {
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

    fn shows(width: usize, want: &str) {
        let text = full(&example(), &view(width));
        assert_eq!(text, want.trim_start_matches('\n'), "\n{text}");
    }

    #[test]
    fn at_120_columns_everything_is_there() {
        shows(
            120,
            r"
ptcd 0.4.0  up 3h12m, pid 4312, 2 clients (claude-code, cursor)
config      ~/.config/ptc/config.yaml, reloaded 14m ago
programs    python 3.12.4; full sandbox; pool 3 warm of 8; 1 busy of 16
today       41 runs, 2 failed; 1.9 MB of tool results kept out of the context

   SERVER          STATE         VIA    TOOLS  CALLS  FAIL    P50   LAST    DETAIL
●  github          ready         http      38    212     1  180ms   4s ago
●  financial-data  ready         stdio     12     96     0   42ms   1m ago  pid 4391
◌  jira            reconnecting  http       –     14     3  410ms   6m ago  reset; try 4 in 8s
✗  ast-grep        failed        stdio      –      3     1      –   2h ago  `uvx` not in its PATH

2 of 4 ready: programs see 50 tools, calls to the others raise ToolError.
next: ptcctl doctor ast-grep",
        );
    }

    #[test]
    fn at_90_columns_the_failures_and_the_median_go() {
        shows(
            90,
            r"
ptcd 0.4.0  up 3h12m, pid 4312, 2 clients (claude-code, cursor)
config      ~/.config/ptc/config.yaml, reloaded 14m ago
programs    python 3.12.4; full sandbox; pool 3 warm of 8; 1 busy of 16
today       41 runs, 2 failed; 1.9 MB of tool results kept out of the context

   SERVER          STATE         VIA    TOOLS  CALLS   LAST    DETAIL
●  github          ready         http      38    212   4s ago
●  financial-data  ready         stdio     12     96   1m ago  pid 4391
◌  jira            reconnecting  http       –     14   6m ago  reset; try 4 in 8s
✗  ast-grep        failed        stdio      –      3   2h ago  `uvx` not in its PATH

2 of 4 ready: programs see 50 tools, calls to the others raise ToolError.
next: ptcctl doctor ast-grep",
        );
    }

    #[test]
    fn at_80_columns_the_way_goes_too() {
        shows(
            80,
            r"
ptcd 0.4.0  up 3h12m, pid 4312, 2 clients (claude-code, cursor)
config      ~/.config/ptc/config.yaml, reloaded 14m ago
programs    python 3.12.4; full sandbox; pool 3 warm of 8; 1 busy of 16
today       41 runs, 2 failed; 1.9 MB of tool results kept out of the context

   SERVER          STATE         TOOLS  CALLS   LAST    DETAIL
●  github          ready            38    212   4s ago
●  financial-data  ready            12     96   1m ago  pid 4391
◌  jira            reconnecting      –     14   6m ago  reset; try 4 in 8s
✗  ast-grep        failed            –      3   2h ago  `uvx` not in its PATH

2 of 4 ready: programs see 50 tools, calls to the others raise ToolError.
next: ptcctl doctor ast-grep",
        );
    }

    #[test]
    fn at_70_columns_the_last_call_goes_too_and_lines_are_wrapped() {
        shows(
            70,
            r"
ptcd 0.4.0  up 3h12m, pid 4312, 2 clients (claude-code, cursor)
config      ~/.config/ptc/config.yaml, reloaded 14m ago
programs    python 3.12.4; full sandbox; pool 3 warm of 8; 1 busy of
            16
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
            pool 3 warm of 8; 1 busy of
            16
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
        let golden = include_str!("../../tests/golden/status.json");
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
}
