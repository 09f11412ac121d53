//! The sandbox on Linux: proves a tier at start, then hands out verified workers of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::StartChoice;
use ptc_protocol::run::Confinement;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::container::Containers;
use super::examine::gaps;
use super::forking::{Forking, Wanted};
use super::interpreter::{self, Interpreter};
use super::landlock::{LEAST_ABI, Reach};
use super::link::{Link, answer};
use super::root::USERS;
use super::verify::{Expected, verify};
use super::wire::{How, Plan};
use super::{
    Limits, Ready, Refusal, SandboxConfig, SandboxError, WorkerProcess, canary, container, refusal,
    sys, tier, view,
};

/// The program that is running, even where its file has been replaced since.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Keeps other processes of the user from reading this process's memory and environment. To be called after the
/// sandbox has started.
pub fn hide_process() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Where workers come from. Clones share one warden, or one engine.
#[derive(Clone, Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The tier and what it is made from, or why there is none.
    state: Result<Proved, Refusal>,
    limits: Limits,
    next: AtomicU64,
}

#[derive(Debug)]
struct Proved {
    ready: Ready,
    source: Source,
}

/// Who makes workers.
#[derive(Debug)]
enum Source {
    /// A warden, what each fresh worker of it is compared with, and whether workers are forked.
    Warden(Arc<Wardens>, Expected, Arc<Forking>),
    /// A container engine.
    Engine(Box<Containers>),
}

/// The running warden, which is replaced when it is lost.
#[derive(Debug)]
pub(super) struct Wardens {
    program: PathBuf,
    plan: Plan,
    current: Mutex<Option<Arc<Link>>>,
    next: AtomicU64,
}

impl Wardens {
    /// A number that no other worker has.
    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether there is to be no warden any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_none()
    }

    /// Whether Landlock holds workers.
    pub(super) fn has_landlock(&self) -> bool {
        self.plan.landlock
    }

    /// The warden that is there, or another one in place of one that is lost.
    pub(super) fn current(&self) -> Result<Arc<Link>, SandboxError> {
        let mut current = self.lock();
        let Some(link) = current.as_ref() else {
            return Err(SandboxError::Stopped);
        };
        if !link.is_lost() {
            return Ok(Arc::clone(link));
        }
        tracing::warn!("the warden is lost and is started again");
        let fresh = Arc::new(Link::start(&self.program, self.plan.root.is_some())?);
        // A plan that was in force before is not refused now; if it were, no worker would come of it.
        drop(fresh.configure(&self.plan)?);
        *current = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandbox {
    /// Finds an interpreter, starts the warden and proves the tier that was asked for. Where that fails the sandbox
    /// is there all the same, and [`state`](Self::state) says why nothing can run.
    pub async fn start(config: SandboxConfig) -> Self {
        let limits = config.limits;
        let state = prove(config).await.map_err(|message| Refusal { message });
        Self {
            inner: Arc::new(Inner {
                state,
                limits,
                next: AtomicU64::new(1),
            }),
        }
    }

    /// What programs run in, or why they cannot.
    pub fn state(&self) -> Result<Ready, Refusal> {
        match &self.inner.state {
            Ok(proved) => {
                let mut ready = proved.ready.clone();
                if let Source::Warden(_, _, forking) = &proved.source {
                    ready.notes.extend(forking.note());
                }
                Ok(ready)
            }
            Err(refusal) => Err(refusal.clone()),
        }
    }

    /// Whether workers are forked now: a fork server was proved, and serves.
    pub fn is_forking(&self) -> bool {
        match self.inner.state.as_ref().map(|proved| &proved.source) {
            Ok(Source::Warden(_, _, forking)) => forking.is_forking(),
            Ok(Source::Engine(_)) | Err(_) => false,
        }
    }

    /// A fresh worker with the limits of the configuration. Waits at most 15 s, twice that if the warden is lost.
    pub async fn spawn(&self) -> Result<WorkerProcess, SandboxError> {
        self.spawn_limited(self.inner.limits).await
    }

    /// A fresh worker with limits of its own.
    pub async fn spawn_limited(&self, limits: Limits) -> Result<WorkerProcess, SandboxError> {
        self.make(limits, true).await
    }

    /// A fresh worker with the limits of the configuration that is an interpreter of its own, also where others are
    /// forked. Waits at most 15 s, twice that if the warden is lost.
    pub async fn spawn_unforked(&self) -> Result<WorkerProcess, SandboxError> {
        self.make(self.inner.limits, false).await
    }

    async fn make(&self, limits: Limits, may_fork: bool) -> Result<WorkerProcess, SandboxError> {
        let proved = match &self.inner.state {
            Ok(proved) => proved,
            Err(refusal) => {
                return Err(SandboxError::Refused {
                    message: refusal.message.clone(),
                });
            }
        };
        let (wardens, expected, forking) = match &proved.source {
            Source::Warden(wardens, expected, forking) => (wardens, *expected, forking),
            Source::Engine(containers) => {
                let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
                return containers.spawn(id, limits);
            }
        };
        // A server passes on its own limits at most, and those of another worker are not its own.
        if may_fork
            && limits == self.inner.limits
            && let Some(worker) = forking.spawn(wardens, wardens.next_id()).await
        {
            return Ok(worker);
        }
        let id = wardens.next_id();
        let made = wardens.current()?.spawn(id, limits, How::Exec).await;
        let worker = match made {
            // It may have been lost before this was asked of it.
            Err(SandboxError::WardenLost) => {
                wardens.current()?.spawn(id, limits, How::Exec).await?
            }
            other => other?,
        };
        verify(&worker, expected)?;
        Ok(worker)
    }

    /// A sandbox of the same tier whose workers are `program`, which must be linked statically: they see nothing but it,
    /// and it is started without arguments. The tier is proved for it anew: started with the argument `canary` it must try
    /// what no program may do, and answer as the canary of an interpreter does.
    pub async fn of_program(&self, program: &Path) -> Result<Self, Refusal> {
        let proved = self.inner.state.as_ref().map_err(Refusal::clone)?;
        let Source::Warden(wardens, expected, _) = &proved.source else {
            let message = "the tier container has no such workers; write another execution.sandbox"
                .to_owned();
            return Err(Refusal { message });
        };
        let failed = |error: SandboxError| Refusal {
            message: error.to_string(),
        };
        let confinement = proved.ready.confinement;
        let link = Link::start(&wardens.program, expected.inside).map_err(failed)?;
        let mut ready = Ready {
            python: program.to_owned(),
            version: String::new(),
            notes: Vec::new(),
            ..proved.ready.clone()
        };
        if confinement != Confinement::None {
            let trial = plan_of_program(confinement, program, "canary");
            let (_, version) = try_plan(&link, trial, *expected, self.inner.limits)
                .await
                .map_err(|fault| Refusal {
                    message: match fault {
                        Fault::Worker(error) => error.to_string(),
                        Fault::Canary(detail) => {
                            format!("the test of its confinement failed: {detail}")
                        }
                    },
                })?;
            ready.version = version;
        }
        let plan = plan_of_program(confinement, program, "");
        configure(&link, &plan).await.map_err(failed)?;
        let wardens = Wardens {
            program: wardens.program.clone(),
            plan,
            current: Mutex::new(Some(Arc::new(link))),
            next: AtomicU64::new(1),
        };
        // A fork server is an interpreter that runs Python's text; such a program starts as fast by itself.
        let forking = Forking::new(*expected, self.inner.limits, Wanted::No);
        let source = Source::Warden(Arc::new(wardens), *expected, forking);
        Ok(Self {
            inner: Arc::new(Inner {
                state: Ok(Proved { ready, source }),
                limits: self.inner.limits,
                next: AtomicU64::new(1),
            }),
        })
    }

    /// Process id of the warden, while there is one.
    pub fn warden_pid(&self) -> Option<u32> {
        match &self.inner.state.as_ref().ok()?.source {
            Source::Warden(wardens, ..) => wardens.lock().as_ref().map(|link| link.pid()),
            Source::Engine(_) => None,
        }
    }

    /// Ends the warden and every worker; no worker can be had afterwards.
    pub async fn stop(&self) {
        let Ok(proved) = &self.inner.state else {
            return;
        };
        match &proved.source {
            Source::Warden(wardens, ..) => {
                let link = wardens.lock().take();
                if let Some(link) = link {
                    link.stop().await;
                }
            }
            Source::Engine(containers) => containers.stop().await,
        }
    }
}

/// Proves the strongest tier that was asked for and can be had.
async fn prove(config: SandboxConfig) -> Result<Proved, String> {
    let tiers = tier::choose(config.choice)?;
    if tiers == [Confinement::Container] {
        // The kernel that confines, and the interpreter, are the engine's.
        let (ready, containers) = container::prove(&config).await?;
        let source = Source::Engine(Box::new(containers));
        return Ok(Proved { ready, source });
    }
    can_confine(&tiers)?;
    let found = interpreter::find(config.python.as_deref(), &config.search_path).await?;
    let mut failures = Vec::new();
    for tier in tiers {
        match prove_tier(&config, tier, &found).await {
            Ok(mut proved) => {
                proved.ready.notes.extend(failures);
                return Ok(proved);
            }
            Err(text) => failures.push(text),
        }
    }
    Err(failures.join("\n"))
}

async fn prove_tier(
    config: &SandboxConfig,
    confinement: Confinement,
    found: &Interpreter,
) -> Result<Proved, String> {
    let inside = confinement == Confinement::Full;
    if confinement == Confinement::Landlock {
        has_landlock()?;
    }
    let program = config
        .warden_program
        .clone()
        .unwrap_or_else(|| PathBuf::from(OWN_PROGRAM));
    let failed = |error: &SandboxError| match confinement {
        Confinement::None => refusal::plain_worker(error),
        Confinement::Full => refusal::full(error),
        _ => refusal::worker(error),
    };
    let link = Link::start(&program, inside).map_err(|error| failed(&error))?;
    let expected = if confinement == Confinement::None {
        Expected {
            filters: None,
            user: interpreter::worker_user(),
            inside,
        }
    } else {
        try_out(&link, confinement, found, config.limits)
            .await
            .map_err(|fault| match fault {
                Fault::Worker(error) => failed(&error),
                Fault::Canary(detail) => refusal::canary(&detail),
            })?
    };
    let plan = plan(confinement, found, config.boot.clone());
    configure(&link, &plan)
        .await
        .map_err(|error| failed(&error))?;
    let wanted = match config.start {
        _ if confinement == Confinement::None => Wanted::No,
        StartChoice::Exec => Wanted::No,
        StartChoice::Auto if !plan.landlock => {
            Wanted::Impossible("the kernel's Landlock is too old".to_owned())
        }
        StartChoice::Auto => Wanted::Yes,
    };
    let mut notes = found.notes.clone();
    notes.extend(gaps(confinement).map(str::to_owned));
    Ok(Proved {
        ready: Ready {
            confinement,
            python: found.python.clone(),
            version: found.version.clone(),
            notes,
        },
        source: Source::Warden(
            Arc::new(Wardens {
                program,
                plan,
                current: Mutex::new(Some(Arc::new(link))),
                next: AtomicU64::new(1),
            }),
            expected,
            Forking::new(expected, config.limits, wanted),
        ),
    })
}

/// What every confining tier needs of the machine.
fn can_confine(tiers: &[Confinement]) -> Result<(), String> {
    if tiers == [Confinement::None] {
        return Ok(());
    }
    if !sys::has_seccomp_filters() {
        return Err(refusal::seccomp());
    }
    if !matches!(std::env::consts::ARCH, "x86_64" | "aarch64") {
        return Err(refusal::architecture(std::env::consts::ARCH));
    }
    Ok(())
}

/// What the tier needs whose files Landlock alone keeps.
fn has_landlock() -> Result<(), String> {
    let abi = sys::landlock_abi();
    if matches!(abi, Ok(abi) if abi >= LEAST_ABI) {
        Ok(())
    } else {
        Err(refusal::landlock(&abi, LEAST_ABI))
    }
}

/// Why a tier is not proved.
enum Fault {
    /// A worker of it cannot be made.
    Worker(SandboxError),
    /// A worker got out, or could not try.
    Canary(String),
}

impl From<SandboxError> for Fault {
    fn from(error: SandboxError) -> Self {
        Self::Worker(error)
    }
}

/// Starts one worker that tries to get out. Gives what each later worker is compared with.
async fn try_out(
    link: &Link,
    confinement: Confinement,
    found: &Interpreter,
    limits: Limits,
) -> Result<Expected, Fault> {
    let plan = plan(confinement, found, canary::TEXT.to_owned());
    let expected = Expected {
        filters: None,
        user: interpreter::worker_user(),
        inside: confinement == Confinement::Full,
    };
    let (expected, _) = try_plan(link, plan, expected, limits).await?;
    Ok(expected)
}

/// Starts one worker by a plan that has it try to get out. Gives what each later worker is compared with, which is
/// `expected` with the filters of this plan, and the version that it told.
async fn try_plan(
    link: &Link,
    plan: Plan,
    expected: Expected,
    limits: Limits,
) -> Result<(Expected, String), Fault> {
    let filters = configure(link, &plan).await?;
    let expected = Expected {
        filters: Some(filters),
        ..expected
    };
    let worker = link.spawn(0, limits, How::Exec).await?;
    verify(&worker, expected)?;
    let version = canary::run(&worker, expected.inside, expected.inside && plan.landlock)
        .await
        .map_err(Fault::Canary)?;
    Ok((expected, version))
}

async fn configure(link: &Link, plan: &Plan) -> Result<usize, SandboxError> {
    answer(link.configure(plan)?).await
}

pub(super) fn plan(confinement: Confinement, found: &Interpreter, boot: String) -> Plan {
    let confined = confinement != Confinement::None;
    let inside = confinement == Confinement::Full;
    let mut reach = Reach::default();
    if confined {
        reach = found.reach.clone();
    }
    if inside {
        reach.read.extend(USERS.map(PathBuf::from));
    }
    Plan {
        tier: confined.then(|| confinement.as_str().to_owned()),
        python: found.python.clone(),
        is_python: true,
        boot,
        reach,
        landlock: confined && has_landlock().is_ok(),
        root: inside.then(|| found.root.clone()),
    }
}

/// The plan of workers that need no file but their program.
fn plan_of_program(confinement: Confinement, program: &Path, argument: &str) -> Plan {
    let confined = confinement != Confinement::None;
    let inside = confinement == Confinement::Full;
    let mut reach = Reach::default();
    if confined {
        reach.execute.push(program.to_owned());
    }
    Plan {
        tier: confined.then(|| confinement.as_str().to_owned()),
        python: program.to_owned(),
        is_python: false,
        boot: argument.to_owned(),
        reach,
        landlock: confined && has_landlock().is_ok(),
        root: inside.then(|| view::plan(&[program.to_owned()], Vec::new())),
    }
}
