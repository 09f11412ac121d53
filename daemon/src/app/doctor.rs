//! Checks, one after the other, what a daemon of these places needs, for `ptcctl doctor`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ptc_protocol::doctor::{Check, Checks};
use ptc_protocol::paths::{ConfigChoice, Places};
use ptc_protocol::run::Confinement;
use ptc_protocol::status::{SCHEMA, ServerState};
use ptc_protocol::{BUILD, PROTOCOL};
use tokio::sync::Semaphore;

use super::{Inner, lock, reload};
use crate::config::expand::{ExpandError, Expanded, Variables};
use crate::config::mask::Masker;
use crate::config::{
    self, Config, ConfigFaults, EngineName, ExecutionConfig, SandboxChoice, ServerConfig, Transport,
};
use crate::downstream::{self, Entry};
use crate::sandbox::{self, Finding, SandboxConfig};

/// Each examination starts interpreters and workers, so there is one at a time.
static ONE: Semaphore = Semaphore::const_new(1);
/// What is to be done with a faulty file.
const MEND: &str = "mend the file, then `ptcctl reload`";

/// What one server is doing, where it is known, and more about it.
type States = BTreeMap<String, (ServerState, Option<String>)>;

/// Whose needs are checked.
struct Patient<'a> {
    places: &'a Places,
    config: Arc<Config>,
    /// The file as it is now: what is said of it, or its faults.
    file: Result<String, Vec<String>>,
    variables: &'a Variables,
    masker: &'a Masker,
    /// Of servers, where a daemon runs.
    states: Option<States>,
}

/// Checks what a daemon of these places would need in this environment, or `server` alone.
///
/// # Errors
/// The system has no random bits for hiding secrets.
pub async fn examine(
    places: &Places,
    environment: BTreeMap<String, String>,
    server: Option<String>,
) -> anyhow::Result<Checks> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    let masker = Masker::with_key(key, &environment);
    let variables = Variables::new(environment);
    let loaded = config::load_choice(&places.config);
    let path = places.config.path().display().to_string();
    let patient = Patient {
        places,
        file: file(&path, loaded.as_ref().map_err(ConfigFaults::lines)),
        config: Arc::new(loaded.unwrap_or_default()),
        variables: &variables,
        masker: &masker,
        states: None,
    };
    Ok(patient.checks(server.as_deref()).await)
}

impl Inner {
    /// Checks what this daemon needs, or `server` alone.
    pub(super) async fn examine(&self, server: Option<String>) -> Checks {
        let loaded = config::load_choice(&self.places.config);
        let path = self.places.config.path().display().to_string();
        let servers = self.downstream.servers().into_iter();
        let patient = Patient {
            places: &self.places,
            file: file(&path, loaded.as_ref().map_err(ConfigFaults::lines)),
            config: Arc::clone(&lock(&self.loaded).config),
            variables: &self.variables,
            masker: &self.masker,
            states: Some(
                servers
                    .map(|server| (server.name, (server.state.state, server.state.detail)))
                    .collect(),
            ),
        };
        patient.checks(server.as_deref()).await
    }
}

fn file(path: &str, loaded: Result<&Config, Vec<String>>) -> Result<String, Vec<String>> {
    loaded.map(|config| reload::sound(path, config))
}

impl Patient<'_> {
    async fn checks(&self, server: Option<&str>) -> Checks {
        let mut checks = Vec::new();
        if let Some(name) = server {
            checks.extend(self.file.is_err().then(|| self.file()));
            checks.push(self.named(name));
        } else {
            checks.push(self.file());
            checks.extend(self.state());
            checks.push(self.journal());
            // A closed semaphore is one that nobody closes.
            let _turn = ONE.acquire().await;
            let state = &self.places.state_dir;
            let config = reload::sandbox_config(&self.config.execution, self.variables, state);
            checks.push(python(&config).await);
            checks.extend(tiers(&config).await);
            checks.extend(monty(&self.config.execution));
            checks.extend(self.config.servers.iter().map(|server| self.server(server)));
        }
        for check in &mut checks {
            check.fact = self.masker.mask(&check.fact).into_owned();
        }
        Checks {
            schema: SCHEMA,
            build: BUILD.to_owned(),
            protocol: PROTOCOL,
            checks,
        }
    }

    fn file(&self) -> Check {
        const NAME: &str = "configuration";
        let path = self.places.config.path();
        match &self.file {
            Ok(_) if !path.exists() && matches!(self.places.config, ConfigChoice::Default(_)) => {
                let fact = format!(
                    "there is no file {}, so there are no servers",
                    path.display()
                );
                Check::note(NAME, fact, Some("write one: docs/configuration.md".into()))
            }
            Ok(sound) => Check::ok(NAME, sound),
            Err(faults) => Check::failed(NAME, faults.join("; "), MEND),
        }
    }

    /// What keeps ptcd from its state folder, if anything does.
    fn state(&self) -> Option<Check> {
        let folder = &self.places.state_dir;
        let error = writable(folder).err()?;
        Some(Check::failed(
            "state folder",
            format!("nothing can be written to {}: {error}", folder.display()),
            "make room there, or give the folder back to ptcd: without it ptcd does not start",
        ))
    }

    fn journal(&self) -> Check {
        const NAME: &str = "journal";
        let folder = match &self.config.journal.path {
            Some(path) => path.clone(),
            None => self.places.state_dir.join("journal"),
        };
        match writable(&folder) {
            Ok(fact) => Check::ok(NAME, fact),
            Err(error) => Check::failed(
                NAME,
                format!("nothing can be written to {}: {error}", folder.display()),
                "make it a folder of yours with free space, or name another in journal.path: without its journal ptcd \
                 does not start",
            ),
        }
    }

    fn named(&self, name: &str) -> Check {
        let servers = &self.config.servers;
        if let Some(server) = servers.iter().find(|server| server.name == name) {
            return self.server(server);
        }
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let fix = if names.is_empty() {
            "the configuration names none".to_owned()
        } else {
            format!("name one of {}", names.join(", "))
        };
        Check::failed(format!("server {name}"), "there is no such server", fix)
    }

    /// Whether one server can be started, and what it is doing.
    fn server(&self, server: &ServerConfig) -> Check {
        let name = format!("server {}", server.name);
        let state = self.states.as_ref().and_then(|all| all.get(&server.name));
        if !server.enabled && state.is_none_or(|(state, _)| *state == ServerState::Disabled) {
            return Check::ok(name, "disabled");
        }
        let about = match self.place(server) {
            Ok(about) => about,
            Err(mut check) => {
                check.name = name;
                return check;
            }
        };
        let log = self
            .places
            .state_dir
            .join(format!("servers/{}.log", server.name));
        match state {
            None => Check::ok(
                name,
                format!("{about}; ptcd is not running, so it was not asked"),
            ),
            Some((ServerState::Ready, _)) => Check::ok(name, format!("{about}; ready")),
            Some((ServerState::Disabled, _)) => Check::ok(name, format!("{about}; disabled")),
            Some((state, detail)) => {
                let detail = detail.as_deref().unwrap_or("no cause is known");
                let fact = format!("{about}; {}: {detail}", state.as_str());
                let fix = format!("`ptcctl servers {}` shows all of it", server.name);
                let fix = match server.transport {
                    Transport::Stdio { .. } => format!("{fix}; its stderr is in {}", log.display()),
                    _ => fix,
                };
                if *state == ServerState::Failed {
                    Check::failed(name, fact, fix)
                } else {
                    Check::note(name, fact, Some(fix))
                }
            }
        }
    }

    /// Where a server is: the program that its command means, found in the PATH the daemon gives it.
    fn place(&self, server: &ServerConfig) -> Result<String, Check> {
        let via = server.transport.name();
        match self.variables.expand(server, None, self.masker) {
            Ok(Expanded::Endpoint { .. }) => Ok(via.to_owned()),
            Ok(Expanded::Stdio {
                command,
                args,
                env,
                cwd,
            }) => self.found(Entry {
                command,
                args,
                env,
                cwd,
            }),
            Err(ExpandError::NoProject) => Ok(format!("{via}, for one project at a time")),
            Err(ExpandError::Missing { names, own, .. }) if own.is_empty() => {
                let about = self.place(&without_sent(server))?;
                let shown: Vec<String> = names.iter().map(|name| format!("${{{name}}}")).collect();
                let fact = format!("{about}; nobody has sent {} yet", shown.join(", "));
                let fix = format!(
                    "a client that has it in its environment sends it when it connects; \
                     `ptcctl env capture {}` takes it from your login shell",
                    names.join(" ")
                );
                Err(Check::note("", fact, Some(fix)))
            }
            Err(error) => Err(Check::failed(
                "",
                error.to_string(),
                "mend its entry in the configuration, or start ptcd with what is missing",
            )),
        }
    }

    fn found(&self, entry: Entry) -> Result<String, Check> {
        let command = entry.command.display().to_string();
        match downstream::locate(entry, &|name| self.variables.recorded(name)) {
            Ok(program) if program == Path::new(&command) => Ok(format!("stdio, {command}")),
            Ok(program) => Ok(format!("stdio, `{command}` is {}", program.display())),
            Err(missing) => Err(Check::failed("", missing.fact, missing.fix)),
        }
    }
}

/// A server without the texts that clients send values for.
fn without_sent(server: &ServerConfig) -> ServerConfig {
    let mut server = server.clone();
    match &mut server.transport {
        Transport::Stdio { env: texts, .. }
        | Transport::Http { headers: texts, .. }
        | Transport::Sse { headers: texts, .. } => texts.retain(|_, text| !text.contains("${")),
    }
    server
}

/// Says that a folder takes files, or will when it is made, by making one.
fn writable(folder: &Path) -> io::Result<String> {
    let mut there = PathBuf::from(folder);
    while there.symlink_metadata().is_err() && there.pop() {}
    // That one may write there says nothing of a file system that is full.
    let bits = getrandom::u64().map_err(io::Error::other)?;
    let probe = there.join(format!("doctor-{bits:016x}"));
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).open(&probe)?;
    let written = io::Write::write_all(&mut file, b"x").and_then(|()| file.sync_all());
    std::fs::remove_file(&probe)?;
    written?;
    let how = if there == folder {
        "can be written"
    } else {
        "is not there yet and can be made"
    };
    Ok(format!("{} {how}", folder.display()))
}

/// The interpreter that programs run in.
async fn python(config: &SandboxConfig) -> Check {
    const NAME: &str = "python";
    if config.choice == SandboxChoice::Container {
        return Check::ok(NAME, "that of the image: see the tier container");
    }
    match sandbox::find_python(config).await {
        Ok(found) => {
            let fact = format!("{} is CPython {}", found.python.display(), found.version);
            let notes = found.notes.join("; ");
            match (found.compiled, notes.is_empty()) {
                (true, true) => Check::ok(NAME, format!("{fact}, its standard library compiled")),
                (true, false) => Check::note(NAME, format!("{fact}; {notes}"), None),
                (false, _) => {
                    let fix = format!("run '{} -m compileall' on it", found.python.display());
                    Check::note(NAME, format!("{fact}; {notes}"), Some(fix))
                }
            }
        }
        Err(refusal) => {
            let (fact, fix) = told(&refusal.message);
            Check::failed(NAME, fact, fix)
        }
    }
}

/// The program of the other engine's workers, where the configuration offers it.
fn monty(execution: &ExecutionConfig) -> Option<Check> {
    const NAME: &str = "engine monty";
    if !execution.engines.offers(EngineName::Monty) {
        return None;
    }
    Some(match super::monty::program(execution) {
        Ok(program) => Check::ok(NAME, format!("its worker is {}", program.display())),
        Err(reason) => {
            let (fact, fix) = told(&reason);
            Check::failed(NAME, fact, fix)
        }
    })
}

/// A line a tier, each tried by a real worker, then one for what programs run in.
async fn tiers(config: &SandboxConfig) -> Vec<Check> {
    let findings = sandbox::try_tiers(config).await;
    let wanted = config.choice;
    let proved = findings
        .iter()
        .find(|finding| finding.outcome.is_ok() && suits(wanted, finding.tier));
    let proved = proved.map(|finding| finding.tier);
    let mut checks: Vec<Check> = findings
        .iter()
        .map(|finding| tier(finding, wanted, proved))
        .collect();
    checks.push(match (wanted, proved) {
        (SandboxChoice::None, _) => Check::note(
            "sandbox",
            "programs run UNCONFINED (execution.sandbox: none): they can read your files and use the network",
            Some("write 'sandbox: auto' under execution".to_owned()),
        ),
        (_, Some(tier)) => Check::ok(
            "sandbox",
            format!("programs run in the tier {} (execution.sandbox: {})", tier.as_str(), wanted.as_str()),
        ),
        (_, None) => Check::failed(
            "sandbox",
            format!("programs are refused: no tier that execution.sandbox ({}) allows can be had", wanted.as_str()),
            "do what the lines above say of a tier",
        ),
    });
    checks
}

/// Whether a choice may come to a tier.
fn suits(choice: SandboxChoice, tier: Confinement) -> bool {
    match choice {
        SandboxChoice::Auto => tier != Confinement::Container && tier != Confinement::None,
        SandboxChoice::Native => matches!(tier, Confinement::Full | Confinement::Seatbelt),
        other => other.as_str() == tier.as_str(),
    }
}

fn tier(finding: &Finding, wanted: SandboxChoice, proved: Option<Confinement>) -> Check {
    let name = format!("tier {}", finding.tier.as_str());
    match &finding.outcome {
        Ok(_) => {
            let attempts = sandbox::attempts().join(", ");
            let gaps = sandbox::gaps(finding.tier);
            let gaps = gaps.map_or_else(String::new, |gaps| format!("; {gaps}"));
            Check::ok(
                name,
                format!("a test program could do none of these: {attempts}{gaps}"),
            )
        }
        Err(refusal) => {
            let (fact, fix) = told(&refusal.message);
            if suits(wanted, finding.tier) && proved.is_none() {
                Check::failed(name, fact, fix)
            } else {
                Check::note(name, fact, Some(fix))
            }
        }
    }
}

/// A refusal's cause, and what to do.
fn told(message: &str) -> (String, String) {
    let (fact, fix) = message
        .split_once("; ")
        .unwrap_or((message, "do what this says"));
    (fact.to_owned(), fix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_tried_by_writing_and_nothing_is_left_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path();
        assert!(writable(there).unwrap().ends_with("can be written"));
        assert_eq!(std::fs::read_dir(there).unwrap().count(), 0);
        let deep = there.join("a/b");
        assert!(writable(&deep).unwrap().ends_with("can be made"));
        assert!(!there.join("a").exists());
        let file = there.join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(writable(&file).is_err());
    }

    #[test]
    fn a_choice_comes_to_no_weaker_tier_than_it_says() {
        use Confinement::{Container, Full, Landlock, None, Seatbelt};
        for (choice, tiers) in [
            (SandboxChoice::Auto, &[Full, Landlock, Seatbelt][..]),
            (SandboxChoice::Native, &[Full, Seatbelt]),
            (SandboxChoice::Full, &[Full]),
            (SandboxChoice::Landlock, &[Landlock]),
            (SandboxChoice::Container, &[Container]),
            (SandboxChoice::None, &[None]),
        ] {
            let all = [Full, Landlock, Seatbelt, Container, None];
            let suit: Vec<Confinement> = all.into_iter().filter(|t| suits(choice, *t)).collect();
            assert_eq!(suit, tiers, "{choice:?}");
        }
    }

    #[test]
    fn a_tier_that_is_not_needed_is_no_failure() {
        let finding = Finding {
            tier: Confinement::Full,
            outcome: Err(sandbox::Refusal {
                message: "no namespaces; allow them".to_owned(),
            }),
        };
        let with = tier(&finding, SandboxChoice::Auto, Some(Confinement::Landlock));
        let fix = Some("allow them".to_owned());
        assert_eq!(with, Check::note("tier full", "no namespaces", fix));
        let without = tier(&finding, SandboxChoice::Auto, None);
        assert_eq!(
            without,
            Check::failed("tier full", "no namespaces", "allow them")
        );
    }

    #[test]
    fn the_other_engine_has_a_line_where_it_is_offered() {
        let mut execution = Config::default().execution;
        assert!(monty(&execution).is_none());
        execution.engines.offered.push(EngineName::Monty);
        execution.engines.monty_worker = Some("/not/here".into());
        let check = monty(&execution).unwrap();
        assert_eq!(check.verdict, ptc_protocol::doctor::Verdict::Failed);
        assert!(check.fact.contains("/not/here"), "{}", check.fact);
        execution.step_budget = Some(5000);
        let check = monty(&execution).unwrap();
        assert!(check.fact.contains("step_budget"), "{}", check.fact);
    }
}
