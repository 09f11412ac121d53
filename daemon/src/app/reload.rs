//! What follows from a configuration, at the start and after each reload.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ptc_protocol::status::Done;

use super::answers::RegistryAnswers;
use super::turns::take_turns;
use super::{Inner, Loaded, Workshop, checks, lock, modified};
use crate::config::expand::Variables;
use crate::config::{self, Config, ConfigFaults, EngineName, ExecutionConfig};
use crate::engine::Parts;
use crate::policy::risk::Keys;
use crate::policy::{Gate, Policy, PolicyError};
use crate::registry::Registry;
use crate::sandbox::{Limits, Ready, SandboxConfig};
use crate::session::Face;

/// What a reload says that forgot the values of variables.
const FORGOTTEN: &str = "the values of variables that clients sent are forgotten: each client is asked again at \
     its next connection, so start the client that has the new ones anew; until then servers that need one are failed";

/// The first version of Python that can count steps.
const COUNTS_STEPS: (u32, u32) = (3, 12);

/// A file without faults, and what is made of it before anything is changed.
#[derive(Debug)]
struct Fresh {
    config: Arc<Config>,
    policy: Policy,
}

/// Why a file is not put in force.
#[derive(Debug)]
pub(super) enum Faults {
    /// The configuration has faults.
    Config(ConfigFaults),
    /// The policies that it names have.
    Policy(PolicyError),
}

impl Faults {
    /// One text each.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Config(faults) => faults.lines(),
            Self::Policy(PolicyError::Cedar { faults }) => faults.clone(),
            Self::Policy(error) => vec![error.to_string()],
        }
    }

    /// All of them as programs are told.
    pub(super) fn told(&self) -> String {
        let faults = match self {
            Self::Config(faults) => faults.to_string(),
            Self::Policy(_) => self.lines().join("\n"),
        };
        let what = match self {
            Self::Config(_) => "the configuration cannot be used; mend it",
            Self::Policy(_) => "the policies of the configuration cannot be used; mend them",
        };
        format!("{what} and run `ptcctl reload`:\n{faults}")
    }
}

/// A configuration with the policies that it names; `keys` gives those of endpoints that judge.
pub(super) fn with_policy(
    config: Result<Config, ConfigFaults>,
    keys: &Keys<'_>,
) -> Result<(Config, Policy), Faults> {
    let config = config.map_err(Faults::Config)?;
    let policy = Policy::load(&config, keys).map_err(Faults::Policy)?;
    Ok((config, policy))
}

/// What came of reading the file.
#[derive(Debug)]
struct Read {
    fresh: Result<Fresh, Faults>,
    modified: Option<SystemTime>,
}

impl Inner {
    /// Reads the configuration again, after whatever reload is under way; with `forget_sent` the values that shims
    /// sent are forgotten as well, unless the file has faults. It goes on when its future is dropped.
    pub(super) fn reload_all(
        &self,
        forget_sent: bool,
    ) -> impl Future<Output = Done> + Send + use<> {
        let asked = self.turns.ask(forget_sent);
        if asked.first
            && let Some(inner) = self.me.upgrade()
        {
            tokio::spawn(take_turns(inner));
        }
        asked.answer()
    }

    /// One reload. A file with faults changes nothing but `status`.
    pub(super) async fn reload_now(self: Arc<Self>, forget_sent: bool) -> Done {
        let inner = Arc::clone(&self);
        // A large file takes a while, which others must not wait for.
        let read = tokio::task::spawn_blocking(move || inner.read());
        let Ok(Read { fresh, modified }) = read.await else {
            return failed(vec![
                "the file could not be read; the log has the reason".to_owned(),
            ]);
        };
        let Fresh { config, policy } = match fresh {
            Ok(fresh) => fresh,
            Err(faults) => return self.keep(faults.lines(), faults.told(), modified),
        };
        let (before, workshop) = self.in_force();
        let before = before.config;
        let anew = needs_new_workshop(&before.execution, &config.execution)
            || checks::limits(&before) != checks::limits(&config)
            || workshop.sandbox.state().is_err();
        let mut opened = None;
        if anew {
            opened = tokio::select! {
                opened = Workshop::open(&config, &self.variables, &self.places.state_dir) => Some(Box::new(opened)),
                () = self.stop.cancelled() => return ending(),
            };
        }
        drop(workshop);
        let loaded = Loaded {
            config: Arc::clone(&config),
            fault: None,
            faults: Vec::new(),
            read_at: Instant::now(),
            modified,
        };
        if let Err(unused) = self.put_in_force(loaded, policy, opened, forget_sent) {
            if let Some(unused) = unused.map(|unused| *unused) {
                unused.pool.stop();
                unused.sandbox.stop().await;
                checks::stop(unused.checks).await;
                unused.monty.stop().await;
            }
            return ending();
        }
        self.ask_clients_again();
        let said = tokio::task::spawn_blocking({
            let inner = Arc::clone(&self);
            move || inner.write_said()
        });
        // Shims that find no daemon do without it where it fails.
        let _ = said.await;
        let mut messages = self.what_is_in_force(&config);
        if forget_sent {
            messages.push(FORGOTTEN.to_owned());
        }
        if before.journal != config.journal {
            messages.push("journal: the change takes effect after `ptcctl restart`".to_owned());
        }
        Done { ok: true, messages }
    }

    /// Reads the file. Blocking.
    fn read(&self) -> Read {
        let config = config::load_choice(&self.places.config);
        let policies = config
            .as_ref()
            .ok()
            .and_then(|config| config.policy.cedar.clone());
        // Before the policies are read, so that a change during it is shown as one.
        let modified = modified(&self.places, policies.as_deref());
        if let Ok(config) = &config {
            config::expand::register_headers(config, &self.masker);
        }
        let fresh = with_policy(config, &self.keys()).map(|(config, policy)| Fresh {
            config: Arc::new(config),
            policy,
        });
        Read { fresh, modified }
    }

    /// Gives the keys of endpoints that judge.
    pub(super) fn keys(&self) -> impl Fn(&str) -> Result<String, String> + '_ {
        |text| self.variables.expand_own(text, &self.masker)
    }

    /// Notes the faults of a file; the configuration in force stays.
    fn keep(&self, mut faults: Vec<String>, told: String, modified: Option<SystemTime>) -> Done {
        let mut loaded = lock(&self.loaded);
        loaded.faults.clone_from(&faults);
        loaded.modified = modified;
        if loaded.fault.is_some() {
            loaded.fault = Some(told);
            self.apply(&loaded, &lock(&self.workshop), None);
            faults.push("no configuration is in force".to_owned());
        } else {
            let servers = configured(loaded.config.servers.len());
            let seconds = loaded.read_at.elapsed().as_secs();
            faults.push(format!(
                "the configuration in force stays, as it was read {seconds} s ago: {servers}"
            ));
        }
        failed(faults)
    }

    /// Puts a configuration and all that follows from it in force, as one: nobody sees a part of it. Gives the new
    /// workshop back where the daemon ends, which has taken the one in force with it.
    fn put_in_force(
        &self,
        fresh: Loaded,
        policy: Policy,
        opened: Option<Box<Workshop>>,
        forget_sent: bool,
    ) -> Result<(), Option<Box<Workshop>>> {
        let mut loaded = lock(&self.loaded);
        if self.stop.is_cancelled() {
            return Err(opened);
        }
        if forget_sent {
            self.variables.forget_sent();
        }
        *loaded = fresh;
        let mut workshop = lock(&self.workshop);
        let old = opened.map(|opened| std::mem::replace(&mut *workshop, *opened));
        self.apply(&loaded, &workshop, Some(policy));
        drop(workshop);
        let config = &loaded.config;
        self.downstream
            .set_max_result_bytes(config.execution.max_tool_result_bytes);
        self.downstream.set_idle(config.daemon.idle_server);
        self.downstream.reload(self.servers_of(config));
        self.variables.judged_anew();
        drop(loaded);
        if let Some(old) = old {
            self.retired.take(old);
        }
        Ok(())
    }

    /// Hands out what follows from a configuration; without a `policy` tools stay as they are.
    fn apply(&self, loaded: &Loaded, workshop: &Workshop, policy: Option<Policy>) {
        let gate = self.engine.parts().gate.clone();
        if let Some(policy) = policy {
            self.registry
                .reload(policy.clone(), loaded.config.execution.check_arguments);
            gate.replace(policy);
        }
        self.engine
            .replace(parts(loaded, workshop, &self.registry, gate));
        self.face.send_replace(Arc::new(face(loaded, workshop)));
    }

    /// What a reload tells of the configuration that it put in force.
    fn what_is_in_force(&self, config: &Config) -> Vec<String> {
        let path = self.places.config.path();
        let what = if path.exists() {
            format!("{} is in force", path.display())
        } else {
            "there is no configuration file, so the defaults are in force".to_owned()
        };
        let servers = configured(config.servers.len());
        let (_, Workshop { sandbox, .. }) = self.in_force();
        match sandbox.state() {
            Ok(ready) => vec![format!(
                "{what}: {servers}; programs run in tier {}",
                ready.confinement.as_str()
            )],
            Err(refusal) => vec![
                format!("{what}: {servers}"),
                format!("programs are refused: {}", refusal.message),
            ],
        }
    }
}

fn failed(messages: Vec<String>) -> Done {
    Done {
        ok: false,
        messages,
    }
}

fn ending() -> Done {
    failed(vec![
        "the daemon is ending: the configuration was not changed".to_owned(),
    ])
}

/// What a sandbox is made from.
pub(super) fn sandbox_config(
    execution: &ExecutionConfig,
    variables: &Variables,
    state: &Path,
) -> SandboxConfig {
    SandboxConfig {
        choice: execution.sandbox,
        start: execution.pool.start,
        python: execution.python.clone(),
        search_path: variables.recorded("PATH").unwrap_or_default().into(),
        limits: Limits {
            memory_bytes: execution.memory_bytes,
            scratch_bytes: execution.scratch_bytes,
            max_threads: execution.max_threads,
            cpu_seconds: execution.timeout.as_secs().saturating_add(1),
        },
        boot: crate::pool::runtime::boot_source(),
        warden_program: None,
        container: execution.container.clone(),
        state_folder: Some(state.to_owned()),
    }
}

/// What is said of a file without faults.
pub(super) fn sound(path: &str, config: &Config) -> String {
    let off = config.servers.iter().filter(|server| !server.enabled);
    let off = match off.count() {
        0 => String::new(),
        count => format!(", {count} of them disabled"),
    };
    format!(
        "{path}: no faults; {}{off}",
        configured(config.servers.len())
    )
}

fn configured(servers: usize) -> String {
    let plural = if servers == 1 { "" } else { "s" };
    format!("{servers} server{plural} configured")
}

/// Whether warm workers of one configuration are of no use to another.
fn needs_new_workshop(before: &ExecutionConfig, after: &ExecutionConfig) -> bool {
    let key = |execution: &ExecutionConfig| {
        (
            execution.sandbox,
            execution.python.clone(),
            execution.memory_bytes,
            execution.scratch_bytes,
            execution.max_threads,
            execution.timeout,
            execution.pool,
            execution.max_output_bytes,
            execution.container.clone(),
            execution.engines.clone(),
            // It decides whether that engine can be had.
            execution.engines.offers(EngineName::Monty) && execution.step_budget.is_some(),
        )
    };
    key(before) != key(after)
}

pub(super) fn parts(
    loaded: &Loaded,
    workshop: &Workshop,
    registry: &Registry,
    gate: Gate,
) -> Parts {
    Parts {
        limits: loaded.config.execution.clone(),
        pool: workshop.pool.clone(),
        engine: EngineName::Cpython,
        second: workshop.monty.second.clone(),
        target: Arc::new(registry.clone()),
        answers: Arc::new(RegistryAnswers(registry.clone())),
        gate,
        approval: loaded.config.policy.approval,
        checks: workshop.checks.as_ref().map(|shop| shop.checks.clone()),
        fault: fault(loaded, workshop),
    }
}

/// Why every program is refused: the file's faults, or a wish that the interpreter cannot meet.
fn fault(loaded: &Loaded, workshop: &Workshop) -> Option<String> {
    let unmet = || {
        uncounted(
            &loaded.config.execution,
            workshop.sandbox.state().ok().as_ref(),
        )
    };
    loaded.fault.clone().or_else(unmet)
}

/// Why steps cannot be counted, where they are to be.
pub(super) fn uncounted(execution: &ExecutionConfig, ready: Option<&Ready>) -> Option<String> {
    execution.step_budget?;
    let ready = ready?;
    let mut parts = ready
        .version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next()?, parts.next()?);
    (version < COUNTS_STEPS).then(|| {
        format!(
            "execution.step_budget: only CPython 3.12 and later can count steps, and programs run with {} ({}); name \
             another in execution.python, or leave step_budget out",
            ready.version,
            ready.python.display()
        )
    })
}

/// `3.11` of `3.11.2`.
fn minor(version: &str) -> String {
    let parts: Vec<&str> = version.split('.').take(2).collect();
    parts.join(".")
}

pub(super) fn face(loaded: &Loaded, workshop: &Workshop) -> Face {
    let config = &loaded.config;
    let ready = workshop.sandbox.state().ok();
    Face {
        expose: config.tools.expose.clone(),
        structured: config.execution.structured_content,
        trace: config.execution.trace,
        submit: config.submit.clone(),
        max_output_bytes: config.execution.max_output_bytes,
        purposes: config
            .servers
            .iter()
            .filter(|server| server.enabled)
            .map(|server| (server.name.clone(), server.purpose.clone()))
            .collect(),
        python: ready.as_ref().map(|ready| minor(&ready.version)),
        engines: config.execution.engines.clone(),
        confinement: ready.map(|ready| ready.confinement),
        fault: fault(loaded, workshop),
    }
}

#[cfg(test)]
mod tests {
    use ptc_protocol::run::Confinement;

    use super::*;

    #[test]
    fn steps_are_counted_from_python_3_12_on() {
        let ready = |version: &str| Ready {
            confinement: Confinement::Full,
            python: "/p".into(),
            version: version.to_owned(),
            notes: Vec::new(),
        };
        let mut execution = Config::default().execution;
        assert_eq!(uncounted(&execution, Some(&ready("3.11.2"))), None);
        execution.step_budget = Some(5000);
        assert_eq!(uncounted(&execution, None), None);
        for (version, counts) in [("3.11.2", false), ("3.12.0", true), ("3.14.0", true)] {
            let why = uncounted(&execution, Some(&ready(version)));
            assert_eq!(why.is_none(), counts, "{why:?}");
            assert!(why.is_none_or(|why| why.contains("3.11.2 (/p)")));
        }
    }
}
