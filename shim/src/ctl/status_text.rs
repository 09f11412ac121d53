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
    let forked = if pool.forked { ", forked" } else { "" };
    let engines: String = programs.engines.iter().map(engine).collect();
    format!(
        "{python}; {sandbox}; pool {} warm of {}{forked}; {} busy of {}{queued}{engines}",
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
#[path = "tests/status_text.rs"]
mod tests;
