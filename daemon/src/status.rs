//! The daemon's state as one value, from snapshots of all rooms.

use std::path::PathBuf;
use std::time::Duration;

use ptc_protocol::BUILD;
use ptc_protocol::run::Confinement;
use ptc_protocol::status::{
    ClientStatus, ConfigStatus, EngineStatus, Health, JournalStatus, Level, PolicyStatus,
    PoolStatus, Processes, ProgramsStatus, SCHEMA, ServerState, ServerStatus, Status, Totals,
};

use crate::config::Config;
use crate::sandbox::{Ready, Refusal};

/// What the rooms say of themselves.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Since the start.
    pub uptime: Duration,
    /// Whether the daemon is ending.
    pub draining: bool,
    /// The socket's path.
    pub socket: String,
    /// The state folder.
    pub state_dir: String,
    /// The configuration file.
    pub config_path: PathBuf,
    /// The configuration in force.
    pub config: &'a Config,
    /// Since it was read.
    pub read_ago: Duration,
    /// Faults of the file as it was read last.
    pub faults: Vec<String>,
    /// Whether the file has changed since.
    pub changed_on_disk: bool,
    /// Variables no one has sent.
    pub missing_variables: Vec<String>,
    /// The Cedar policies in force.
    pub policy: Option<PolicyStatus>,
    /// Whether programs can be confined.
    pub sandbox: Result<Ready, Refusal>,
    /// Warm workers, and the most kept.
    pub warm: (usize, usize),
    /// Whether workers are forked now.
    pub forked: bool,
    /// Why no worker could be warmed.
    pub pool_fault: Option<String>,
    /// Why the journal cannot be written.
    pub journal_fault: Option<String>,
    /// Engines beside CPython.
    pub engines: Vec<EngineStatus>,
    /// Programs running and waiting.
    pub runs: (usize, usize),
    /// Counts since the start.
    pub totals: Totals,
    /// Counts since midnight.
    pub today: Totals,
    /// What the daemon's processes take of the machine.
    pub processes: Processes,
    /// Connected clients.
    pub clients: Vec<ClientStatus>,
    /// Downstream servers.
    pub servers: Vec<ServerStatus>,
    /// What the registry wants known.
    pub notes: Vec<String>,
}

/// The status that follows from the snapshots.
pub fn compute(snapshot: Snapshot<'_>) -> Status {
    let health = health(&snapshot);
    let present = snapshot.config_path.exists();
    let (busy, queued) = snapshot.runs;
    let (warm, max_warm) = snapshot.warm;
    let pool = PoolStatus {
        warm,
        max_warm,
        busy,
        max_runs: snapshot.config.execution.max_runs,
        queued,
        forked: snapshot.forked,
    };
    let mut programs = match snapshot.sandbox {
        Ok(ready) => ProgramsStatus {
            confinement: Some(ready.confinement),
            refusal: None,
            notes: ready.notes,
            python: Some(ready.version),
            python_path: Some(ready.python.display().to_string()),
            pool,
            engines: snapshot.engines,
        },
        Err(refusal) => ProgramsStatus {
            confinement: None,
            refusal: Some(refusal.message),
            notes: Vec::new(),
            python: None,
            python_path: None,
            pool,
            engines: snapshot.engines,
        },
    };
    programs.notes.extend(snapshot.pool_fault);
    programs.notes.extend(snapshot.notes);
    Status {
        schema: SCHEMA,
        build: BUILD.to_owned(),
        pid: std::process::id(),
        uptime_seconds: snapshot.uptime.as_secs(),
        draining: snapshot.draining,
        socket: snapshot.socket,
        state_dir: snapshot.state_dir,
        health,
        config: ConfigStatus {
            path: present.then(|| snapshot.config_path.display().to_string()),
            read_seconds_ago: snapshot.read_ago.as_secs(),
            faults: snapshot.faults,
            changed_on_disk: snapshot.changed_on_disk,
            missing_variables: snapshot.missing_variables,
        },
        policy: snapshot.policy,
        programs,
        journal: JournalStatus {
            fault: snapshot.journal_fault,
        },
        totals: snapshot.totals,
        today: snapshot.today,
        processes: snapshot.processes,
        clients: snapshot.clients,
        servers: snapshot.servers,
    }
}

/// The worst that is true of the daemon, in one statement.
fn health(snapshot: &Snapshot<'_>) -> Health {
    if let Some(trouble) = own_trouble(snapshot) {
        return trouble;
    }
    let total = snapshot.servers.len();
    let of = |state| move |server: &&ServerStatus| server.state == state;
    let ready = snapshot.servers.iter().filter(of(ServerState::Ready));
    let summary = format!("{} of {total} servers ready", ready.count());
    // The first of those that are worst; `max_by_key` gives the last, so it looks from the end.
    let worst = snapshot.servers.iter().rev();
    let worst = worst.max_by_key(|server| server.health.level);
    if let Some(server) = worst.filter(|server| server.health.level != Level::Ok) {
        return of_server(server, summary);
    }
    let unconfined =
        matches!(&snapshot.sandbox, Ok(ready) if ready.confinement == Confinement::None);
    let detail = unconfined.then(|| "programs run UNCONFINED (execution.sandbox: none)".to_owned());
    say(Level::Ok, "ok", summary, detail, None)
}

/// The daemon's health where a server's is the worst of it.
fn of_server(server: &ServerStatus, summary: String) -> Health {
    let health = &server.health;
    let state = match health.level {
        Level::Blocked => "server_failed",
        Level::Ok | Level::Transient => "server_waiting",
    };
    let detail = health.detail.as_ref();
    let detail = detail.map(|detail| format!("{}: {detail}", server.name));
    say(
        health.level,
        state,
        summary,
        detail,
        health.action.as_deref(),
    )
}

/// What is wrong with the daemon itself.
fn own_trouble(snapshot: &Snapshot<'_>) -> Option<Health> {
    if !snapshot.faults.is_empty() {
        let summary = format!(
            "the configuration file has {} faults",
            snapshot.faults.len()
        );
        let detail = Some(snapshot.faults.join("\n"));
        let action = "mend the file, then `ptcctl reload`";
        return Some(say(
            Level::Blocked,
            "bad_config",
            summary,
            detail,
            Some(action),
        ));
    }
    if let Err(refusal) = &snapshot.sandbox {
        let detail = Some(refusal.message.clone());
        let summary = "programs are refused".to_owned();
        return Some(say(
            Level::Blocked,
            "no_sandbox",
            summary,
            detail,
            Some("do what the reason says, then `ptcctl restart`"),
        ));
    }
    if let Some(fault) = &snapshot.journal_fault {
        return Some(say(
            Level::Blocked,
            "no_journal",
            "programs are refused: they cannot be recorded".to_owned(),
            Some(fault.clone()),
            Some(
                "make room for the journal, or give its folder back to ptcd; nothing has to be started anew",
            ),
        ));
    }
    let ending = "the daemon is ending".to_owned();
    snapshot
        .draining
        .then(|| say(Level::Transient, "draining", ending, None, None))
}

fn say(
    level: Level,
    state: &str,
    summary: String,
    detail: Option<String>,
    action: Option<&str>,
) -> Health {
    Health {
        level,
        state: state.to_owned(),
        summary,
        detail,
        action: action.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(config: &Config) -> Snapshot<'_> {
        Snapshot {
            uptime: Duration::from_secs(5),
            draining: false,
            socket: "/s".to_owned(),
            state_dir: "/d".to_owned(),
            config_path: "/nowhere/config.yaml".into(),
            config,
            read_ago: Duration::ZERO,
            faults: Vec::new(),
            changed_on_disk: false,
            missing_variables: Vec::new(),
            policy: None,
            sandbox: Err(Refusal {
                message: "no Landlock".to_owned(),
            }),
            warm: (0, 8),
            forked: true,
            pool_fault: None,
            journal_fault: None,
            engines: Vec::new(),
            runs: (1, 0),
            totals: Totals::default(),
            today: Totals::default(),
            processes: Processes::default(),
            clients: Vec::new(),
            servers: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_refusing_sandbox_blocks_and_a_bad_file_comes_first() {
        let config = Config::default();
        let status = compute(snapshot(&config));
        assert_eq!(
            (status.health.level, status.health.state.as_str()),
            (Level::Blocked, "no_sandbox")
        );
        assert_eq!(status.programs.refusal.as_deref(), Some("no Landlock"));
        assert_eq!(status.config.path, None);
        let faulty = Snapshot {
            faults: vec!["f:1:1: x".to_owned()],
            ..snapshot(&config)
        };
        assert_eq!(compute(faulty).health.state, "bad_config");
        let full = Snapshot {
            sandbox: Ok(Ready {
                confinement: Confinement::Full,
                python: "/p".into(),
                version: "3.12.4".to_owned(),
                notes: Vec::new(),
            }),
            journal_fault: Some("cannot write to the journal at /j: No space left".to_owned()),
            draining: true,
            ..snapshot(&config)
        };
        let status = compute(full);
        assert_eq!(
            (status.health.level, status.health.state.as_str()),
            (Level::Blocked, "no_journal")
        );
        assert!(status.health.action.is_some());
        assert_eq!(status.health.detail, status.journal.fault);
    }
}
