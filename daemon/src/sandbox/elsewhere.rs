//! The sandbox on systems other than Linux: a guard for each worker, or a container engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::container::{self, Containers};
use super::guarded::{self, Guard, Guarded};
use super::seatbelt::SANDBOX_EXEC;
use super::{
    Limits, Ready, Refusal, SandboxConfig, SandboxError, WorkerProcess, interpreter, refusal,
};
use crate::config::SandboxChoice;

/// Where workers come from.
#[derive(Clone, Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What programs run in, or why they cannot.
    state: Result<(Ready, Source), Refusal>,
    limits: Limits,
    next: AtomicU64,
}

/// Who makes workers.
#[derive(Debug)]
enum Source {
    Guards(Box<Guarded>),
    Engine(Box<Containers>),
}

impl Sandbox {
    /// Proves the tier that was asked for. Where that fails the sandbox is there all the same, and
    /// [`state`](Self::state) says why nothing can run.
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
            Ok((ready, _)) => Ok(ready.clone()),
            Err(refusal) => Err(refusal.clone()),
        }
    }

    /// Whether workers are forked now: none is here.
    pub fn is_forking(&self) -> bool {
        false
    }

    /// A fresh worker with the limits of the configuration.
    pub async fn spawn(&self) -> Result<WorkerProcess, SandboxError> {
        self.spawn_limited(self.inner.limits).await
    }

    /// The same: none is forked here.
    pub async fn spawn_unforked(&self) -> Result<WorkerProcess, SandboxError> {
        self.spawn().await
    }

    /// A fresh worker with limits of its own.
    pub async fn spawn_limited(&self, limits: Limits) -> Result<WorkerProcess, SandboxError> {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        match &self.inner.state {
            Ok((_, Source::Guards(guarded))) => guarded.spawn(id, limits),
            Ok((_, Source::Engine(containers))) => containers.spawn(id, limits),
            Err(refusal) => Err(SandboxError::Refused {
                message: refusal.message.clone(),
            }),
        }
    }

    /// Workers of other programs are made on Linux only.
    pub async fn of_program(&self, _: &Path) -> Result<Self, Refusal> {
        self.state()?;
        std::future::ready(Err(Refusal {
            message: "the engine monty runs on Linux only".to_owned(),
        }))
        .await
    }

    /// There is none for all workers.
    pub fn warden_pid(&self) -> Option<u32> {
        None
    }

    /// Ends every worker; none can be had afterwards.
    pub async fn stop(&self) {
        match &self.inner.state {
            Ok((_, Source::Guards(guarded))) => guarded.stop().await,
            Ok((_, Source::Engine(containers))) => containers.stop().await,
            Err(_) => {}
        }
    }
}

async fn prove(config: SandboxConfig) -> Result<(Ready, Source), String> {
    let system = std::env::consts::OS;
    let choice = config.choice;
    let seatbelt = match choice {
        SandboxChoice::Container => {
            let (ready, containers) = container::prove(&config).await?;
            return Ok((ready, Source::Engine(Box::new(containers))));
        }
        SandboxChoice::Full | SandboxChoice::Landlock => {
            return Err(refusal::linux_elsewhere(choice.as_str(), system));
        }
        SandboxChoice::Auto | SandboxChoice::Native | SandboxChoice::Seatbelt => true,
        SandboxChoice::None => false,
    };
    if seatbelt && !cfg!(target_os = "macos") {
        return Err(refusal::no_tier_here(system));
    }
    let found = interpreter::find(config.python.as_deref(), &config.search_path).await?;
    let program = match &config.warden_program {
        Some(program) => program.clone(),
        None => own_program()?,
    };
    let guard = Guard::Program(program);
    let user = interpreter::worker_user();
    let (ready, guarded) = if seatbelt {
        guarded::prove_seatbelt(&config, &found, guard, user, Path::new(SANDBOX_EXEC)).await?
    } else {
        guarded::plain(&config, &found, guard, user)
    };
    Ok((ready, Source::Guards(Box::new(guarded))))
}

fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|source| {
        let error = SandboxError::WardenStart { source };
        refusal::plain_worker(&error)
    })
}

/// There is no such switch here; workers are kept from other processes by their profile.
pub fn hide_process() -> std::io::Result<()> {
    Ok(())
}

/// The hidden mode that is the parent of one worker.
pub mod warden {
    /// Runs the guard; there are no namespaces to be inside of.
    pub fn main(_inside: bool) -> std::process::ExitCode {
        crate::sandbox::guard::main()
    }
}
