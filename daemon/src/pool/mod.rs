//! Warm workers: checked out once, never handed back.

pub mod frame;
pub mod runtime;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use worker::{FrameSender, Worker};

use crate::config::PoolConfig;
use crate::sandbox::{Sandbox, SandboxError};

pub use crate::sandbox::{Exit, MAX_SCRATCH_DEPTH, MAX_SCRATCH_ENTRIES};

/// A warm worker older than this is replaced, so that none keeps a stale interpreter for ever.
const MAX_AGE: Duration = Duration::from_mins(10);
/// After this long without a checkout the pool shrinks to its configured size.
const IDLE: Duration = Duration::from_mins(1);
/// The same where workers are forked: one is made again in a few milliseconds, and takes memory until then.
const FORKED_IDLE: Duration = Duration::from_millis(250);
/// How often the pool looks after its age and size when nothing happens.
const UPKEEP: Duration = Duration::from_secs(30);
/// A run that is not over by then gets its place in the pool refilled meanwhile.
const REFILL_DELAY: Duration = Duration::from_millis(100);
/// Pause after a spawn that failed, doubled up to the cap.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The sandbox refuses, with cause and remedy.
    #[error("{0}")]
    Refused(String),
    /// The sandbox could not start the process.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The process did not become a warm worker.
    #[error("a worker did not start: {detail}")]
    NoHello {
        /// What it did instead.
        detail: String,
    },
    /// Its streams could not be taken into use.
    #[error("a worker's streams cannot be used: {0}")]
    Io(#[from] std::io::Error),
}

/// Keeps workers warm and hands each out once.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sandbox: Sandbox,
    sizes: PoolConfig,
    max_emit: usize,
    state: Mutex<State>,
    wake: Notify,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Cancelled when nobody has the pool, or a worker of it, any more.
    unused: CancellationToken,
    _held: DropGuard,
}

#[derive(Debug, Default)]
struct State {
    warm: VecDeque<(Worker, Instant)>,
    /// Programs that ran at once lately: what the pool grows to.
    peak: usize,
    busy: usize,
    last_checkout: Option<Instant>,
    made: Made,
    fault: Option<String>,
    /// The version that the last worker said.
    version: Option<String>,
}

/// Workers since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Those that became ready.
    pub started: u64,
    /// Those that did not.
    pub failed: u64,
}

impl Pool {
    /// Starts to keep workers warm. `max_emit` is what a program may emit, in bytes of JSON.
    pub fn start(sandbox: Sandbox, sizes: PoolConfig, max_emit: usize) -> Self {
        let unused = CancellationToken::new();
        let inner = Arc::new(Inner {
            sandbox,
            sizes,
            max_emit,
            state: Mutex::default(),
            wake: Notify::new(),
            keeper: Mutex::default(),
            _held: unused.clone().drop_guard(),
            unused,
        });
        let keeper = tokio::spawn(keep_warm(Arc::downgrade(&inner)));
        *lock(&inner.keeper) = Some(keeper);
        Self { inner }
    }

    /// A worker for one program: a warm one, else a fresh one.
    pub async fn check_out(&self) -> Result<CheckedOut, PoolError> {
        self.take(true).await
    }

    /// A worker whose interpreter shares its hash seed and its addresses with no other: never a forked one.
    pub async fn check_out_unforked(&self) -> Result<CheckedOut, PoolError> {
        self.take(false).await
    }

    async fn take(&self, forked: bool) -> Result<CheckedOut, PoolError> {
        if let Err(refusal) = self.inner.sandbox.state() {
            return Err(PoolError::Refused(refusal.message));
        }
        let warm = self.inner.take_warm(forked);
        let worker = match warm {
            Some(worker) => worker,
            None => self.inner.spawn(forked).await?,
        };
        {
            let mut state = lock(&self.inner.state);
            state.busy += 1;
            state.peak = state.peak.max(state.busy);
            state.last_checkout = Some(Instant::now());
        }
        self.inner.refill_soon();
        Ok(CheckedOut {
            worker: Some(worker),
            inner: Arc::clone(&self.inner),
        })
    }

    /// Workers ready now, and the most that are kept.
    pub fn warm(&self) -> (usize, usize) {
        (lock(&self.inner.state).warm.len(), self.inner.sizes.max)
    }

    /// The tier in force; `None` where programs are refused.
    pub fn confinement(&self) -> Option<ptc_protocol::run::Confinement> {
        Some(self.inner.sandbox.state().ok()?.confinement)
    }

    /// The interpreter's version; `None` where programs are refused.
    pub fn python(&self) -> Option<String> {
        let proved = self.inner.sandbox.state().ok()?.version;
        let said = lock(&self.inner.state).version.clone();
        Some(said.unwrap_or(proved))
    }

    /// Workers made since the pool was.
    pub fn made(&self) -> Made {
        lock(&self.inner.state).made
    }

    /// Why the last attempt to warm a worker failed.
    pub fn fault(&self) -> Option<String> {
        lock(&self.inner.state).fault.clone()
    }

    /// Whether both are the same pool.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Ends the warm workers, and waits until the last run is over that has a worker, or may still ask for one. The
    /// runs' own time limits bound that.
    pub fn retire(self) -> impl Future<Output = ()> + Send + 'static {
        self.stop();
        self.inner.unused.clone().cancelled_owned()
    }

    /// Ends the warm workers; none is warmed any more.
    pub fn stop(&self) {
        if let Some(keeper) = lock(&self.inner.keeper).take() {
            keeper.abort();
        }
        lock(&self.inner.state).warm.clear();
    }
}

/// A worker that belongs to one run.
#[derive(Debug)]
pub struct CheckedOut {
    worker: Option<Worker>,
    inner: Arc<Inner>,
}

impl CheckedOut {
    /// Takes the worker out; it counts as busy until the value returned second is dropped.
    pub fn into_parts(mut self) -> Option<(Worker, Busy)> {
        let worker = self.worker.take()?;
        Some((
            worker,
            Busy {
                inner: Arc::clone(&self.inner),
            },
        ))
    }
}

impl Drop for CheckedOut {
    fn drop(&mut self) {
        if self.worker.is_some() {
            self.inner.retire();
        }
    }
}

/// Counts one worker as busy.
#[derive(Debug)]
pub struct Busy {
    inner: Arc<Inner>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.inner.retire();
    }
}

impl Inner {
    /// Refills during a long run, but not in the first moments of a short one.
    fn refill_soon(self: &Arc<Self>) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(REFILL_DELAY).await;
            if let Some(inner) = pool.upgrade() {
                inner.wake.notify_one();
            }
        });
    }

    fn retire(&self) {
        let mut state = lock(&self.state);
        state.busy = state.busy.saturating_sub(1);
        drop(state);
        self.wake.notify_one();
    }

    /// The oldest warm worker that still lives, and is no forked one unless it may be.
    fn take_warm(&self, forked: bool) -> Option<Worker> {
        let mut state = lock(&self.state);
        loop {
            let may_be = |(worker, _): &(Worker, Instant)| forked || !worker.is_forked();
            let at = state.warm.iter().position(may_be)?;
            let (mut worker, _) = state.warm.remove(at)?;
            if worker.is_idle() {
                return Some(worker);
            }
        }
    }

    /// A fresh worker, forked where that may be and can be.
    async fn spawn(&self, forked: bool) -> Result<Worker, PoolError> {
        let ready = self
            .sandbox
            .state()
            .map_err(|refusal| PoolError::Refused(refusal.message))?;
        let process = if forked {
            self.sandbox.spawn().await
        } else {
            self.sandbox.spawn_unforked().await
        };
        let warmed = match process {
            Ok(process) => Worker::warm(process, self.max_emit, ready.confinement).await,
            Err(error) => Err(error.into()),
        };
        let mut state = lock(&self.state);
        match &warmed {
            Ok(worker) => {
                state.made.started += 1;
                state.version = Some(worker.version.clone());
            }
            Err(_) => state.made.failed += 1,
        }
        drop(state);
        warmed
    }

    /// How long a peak counts.
    fn idle(&self) -> Duration {
        if self.sandbox.is_forking() {
            FORKED_IDLE
        } else {
            IDLE
        }
    }

    /// When to look next if nobody asks for it.
    fn pause(&self) -> Duration {
        let peak = lock(&self.state).peak;
        if peak > self.sizes.warm {
            self.idle().min(UPKEEP)
        } else {
            UPKEEP
        }
    }

    /// Drops what is old, dead or too many; says whether one more is wanted.
    fn upkeep(&self) -> bool {
        let idle = self.idle();
        let mut state = lock(&self.state);
        if state.last_checkout.is_none_or(|at| at.elapsed() >= idle) {
            state.peak = state.busy;
        }
        let target = state
            .peak
            .clamp(self.sizes.warm, self.sizes.max.max(self.sizes.warm));
        let before = std::mem::take(&mut state.warm);
        state.warm = before
            .into_iter()
            .filter_map(|(mut worker, born)| {
                (born.elapsed() < MAX_AGE && worker.is_idle()).then_some((worker, born))
            })
            .take(target)
            .collect();
        state.warm.len() < target
    }
}

/// One worker at a time: a burst of starts would slow the programs that run.
async fn keep_warm(pool: std::sync::Weak<Inner>) {
    let mut pause = RETRY.0;
    loop {
        let Some(inner) = pool.upgrade() else { return };
        if inner.sandbox.state().is_ok() && inner.upkeep() {
            match inner.spawn(true).await {
                Ok(worker) => {
                    let mut state = lock(&inner.state);
                    state.warm.push_back((worker, Instant::now()));
                    state.fault = None;
                    pause = RETRY.0;
                }
                Err(error) => {
                    tracing::warn!(%error, "a worker could not be warmed");
                    lock(&inner.state).fault = Some(error.to_string());
                    drop(inner);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
            continue;
        }
        let _ = tokio::time::timeout(inner.pause(), inner.wake.notified()).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
