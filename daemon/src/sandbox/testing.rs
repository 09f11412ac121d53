//! The door for tests: sandboxes that lack a layer, which the running ptcd can neither ask for nor make.
//!
//! ptcd's own warden (`ptcd warden`) refuses a plan that leaves something out. Only a program that is linked with this
//! library and calls [`warden`] itself, as the security tests do, follows one. No variable, configuration key or
//! argument of ptcd leads here.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use ptc_protocol::run::Confinement;
use serde_json::Value;

pub use super::without::{LAYERS, Layer, Without};

use super::interpreter::{self, Interpreter};
use super::link::{Link, answer};
use super::verify::{Expected, verify};
use super::wire::{How, Plan};
use super::{Limits, SandboxConfig, SandboxError, WorkerProcess, canary, linux, profile};

/// The word before the layers that a warden of the tests leaves out of its own namespaces.
const WORD: &str = "--without=";

/// Runs a warden that follows plans with layers left out, and itself lacks those its arguments name.
pub fn warden(arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut inside = false;
    let mut layers = Vec::new();
    for argument in arguments {
        inside |= argument == "--inside";
        if let Some(names) = argument.strip_prefix(WORD) {
            layers.extend(names.split(',').filter_map(Layer::named));
        }
    }
    super::warden::start(inside, Some(&Without::layers(&layers)))
}

/// The seccomp profile as it is built in.
pub fn profile_text() -> &'static str {
    profile::TEXT
}

/// An interpreter and a program to be its warden, for any number of sandboxes.
#[derive(Debug)]
pub struct Ground {
    found: Interpreter,
    warden: PathBuf,
    limits: Limits,
    boot: String,
}

impl Ground {
    /// Looks for the interpreter of `config`, whose warden program must call [`warden`].
    pub async fn find(config: SandboxConfig) -> Result<Self, String> {
        let found = interpreter::find(config.python.as_deref(), &config.search_path).await?;
        let warden = config.warden_program.ok_or("no warden is named")?;
        Ok(Self {
            found,
            warden,
            limits: config.limits,
            boot: config.boot,
        })
    }

    /// The folder of the standard library.
    pub fn library(&self) -> PathBuf {
        let python = &self.found.version;
        let name = python.rsplit_once('.').map_or(&**python, |(name, _)| name);
        let ends = format!("python{name}");
        let listed = self.found.reach.list.iter();
        let mut folders = listed.filter(|path| path.ends_with(&ends));
        folders.next().cloned().unwrap_or_default()
    }

    /// Starts a sandbox that lacks `without` and proves it as ptcd does: one worker is looked at from outside and
    /// tries to get out. The error is what that saw, or what could not be set up.
    pub async fn prove(&self, tier: Confinement, without: &Without) -> Result<Weak, String> {
        let weak = self.start(tier, without, canary::TEXT).await?;
        let worker = weak.spawn_verified().await?;
        let inside = tier == Confinement::Full;
        let abi = super::sys::landlock_abi();
        let landlocked = inside && abi.is_ok_and(|abi| abi >= super::landlock::LEAST_ABI);
        canary::run(&worker, inside, landlocked).await?;
        drop(worker);
        weak.configure(self.plan(tier, &self.boot, without), without)
            .await?;
        Ok(weak)
    }

    /// The same with workers that are forked: the server's first one tries to get out.
    pub async fn prove_forks(&self, tier: Confinement, without: &Without) -> Result<Weak, String> {
        let mut weak = self.start(tier, without, &self.boot).await?;
        weak.serve().await?;
        let worker = weak.spawn_verified().await?;
        let inside = tier == Confinement::Full;
        canary::run(&worker, inside, inside).await?;
        drop(worker);
        weak.how = How::Fork;
        Ok(weak)
    }

    /// The same without the proof.
    pub async fn unproved(&self, tier: Confinement, without: &Without) -> Result<Weak, String> {
        self.start(tier, without, &self.boot).await
    }

    /// Lets `weak`, which was made of this, make its further workers without other things. What the warden itself
    /// lacks stays.
    pub async fn change(&self, weak: &mut Weak, without: &Without) -> Result<(), String> {
        let plan = self.plan(weak.tier, &self.boot, without);
        weak.filters = weak.configure(plan, without).await?;
        Ok(())
    }

    async fn start(
        &self,
        tier: Confinement,
        without: &Without,
        boot: &str,
    ) -> Result<Weak, String> {
        let of_warden = without.layers.iter().filter(|layer| layer.is_of_warden());
        let names: Vec<&str> = of_warden.map(|layer| layer.as_str()).collect();
        let word = (!names.is_empty()).then(|| format!("{WORD}{}", names.join(",")));
        let link = Link::start_with(&self.warden, tier == Confinement::Full, word.as_deref())
            .map_err(|error| error.to_string())?;
        let mut weak = Weak {
            link,
            tier,
            limits: self.limits,
            filters: 0,
            how: How::Exec,
            next: AtomicU64::new(0),
        };
        weak.filters = weak
            .configure(self.plan(tier, boot, without), without)
            .await?;
        Ok(weak)
    }

    fn plan(&self, tier: Confinement, boot: &str, without: &Without) -> Plan {
        let mut plan = linux::plan(tier, &self.found, boot.to_owned());
        plan.reach.read.extend(without.shown.iter().cloned());
        if let Some(root) = &mut plan.root {
            for path in &without.shown {
                // What is hidden lies in something that is shown.
                match root.hide.iter().position(|hidden| hidden == path) {
                    Some(at) => drop(root.hide.remove(at)),
                    None => root.show.push(path.clone()),
                }
            }
        }
        plan.landlock &= !without.lacks(Layer::Landlock);
        plan
    }
}

/// A sandbox that lacks something.
#[derive(Debug)]
pub struct Weak {
    link: Link,
    tier: Confinement,
    limits: Limits,
    filters: usize,
    how: How,
    /// The number of its next worker.
    next: AtomicU64,
}

impl Weak {
    /// Asks for a fork server; the next worker is forked and tries to get out.
    pub async fn serve(&mut self) -> Result<(), String> {
        self.filters = self.link.serve(self.limits).await?;
        self.how = How::Canary;
        Ok(())
    }

    /// Lets workers be forked that await a program, or be fresh interpreters.
    pub fn fork(&mut self, forked: bool) {
        self.how = if forked { How::Fork } else { How::Exec };
    }

    /// A worker that nobody has looked at.
    pub async fn spawn(&self) -> Result<WorkerProcess, SandboxError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.link.spawn(id, self.limits, self.how).await
    }

    /// A worker that was looked at from outside, as ptcd looks at each.
    pub async fn spawn_verified(&self) -> Result<WorkerProcess, String> {
        let text = |error: SandboxError| error.to_string();
        let expected = Expected {
            filters: (self.tier != Confinement::None).then_some(self.filters),
            user: interpreter::worker_user(),
            inside: self.tier == Confinement::Full,
        };
        let worker = self.spawn().await.map_err(text)?;
        verify(&worker, expected).map_err(text)?;
        Ok(worker)
    }

    /// Process id of its warden.
    pub fn warden_pid(&self) -> u32 {
        self.link.pid()
    }

    async fn configure(&self, plan: Plan, without: &Without) -> Result<usize, String> {
        let mut text = plan.to_json();
        if let Value::Object(fields) = &mut text {
            fields.insert("without".to_owned(), without.to_json());
        }
        let text = text.to_string();
        let asked = self.link.configure_by(&text);
        answer(asked.map_err(|error| error.to_string())?)
            .await
            .map_err(|error| error.to_string())
    }
}
