//! Confined workers: which tier this machine can prove, and one interpreter after the other in it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ptc_protocol::run::Confinement;

use crate::config::{ContainerConfig, SandboxChoice};

mod canary;
mod container;
mod examine;
#[cfg(any(not(target_os = "linux"), test))]
mod guard;
#[cfg(any(not(target_os = "linux"), test))]
#[expect(
    unsafe_code,
    reason = "what a process used is told by calls that exist in no safe form"
)]
mod guard_sys;
#[cfg(any(not(target_os = "linux"), test))]
mod guarded;
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the allocator is told by a call of C alone")
)]
mod heap;
mod interpreter;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "other systems have no such limits")
)]
mod limits;
mod process;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only engines read it elsewhere")
)]
mod profile;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "each system has its own causes")
)]
mod refusal;
#[cfg(any(not(target_os = "linux"), test))]
mod seatbelt;
mod step;
#[cfg(target_os = "linux")]
mod tier;

pub use examine::{Finding, Python, attempts, find_python, gaps, try_tiers};
pub use limits::{Limits, MAX_SCRATCH_DEPTH, MAX_SCRATCH_ENTRIES};
pub use step::Step;

#[cfg(target_os = "linux")]
mod birth;
#[cfg(target_os = "linux")]
mod folder;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod removal;
#[cfg(target_os = "linux")]
mod root;
#[cfg(target_os = "linux")]
mod scratch;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod sweeper;
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the calls a worker is made with exist in no safe form"
)]
mod sys;
#[cfg(target_os = "linux")]
pub mod testing;
#[cfg(target_os = "linux")]
mod usage;
#[cfg(target_os = "linux")]
mod verify;
#[cfg(target_os = "linux")]
mod view;
#[cfg(target_os = "linux")]
pub mod warden;
#[cfg(target_os = "linux")]
mod wire;
#[cfg(target_os = "linux")]
mod without;
#[cfg(target_os = "linux")]
mod worker;

pub use heap::give_large_memory_back;
#[cfg(target_os = "linux")]
pub use linux::{Sandbox, hide_process};
pub use process::WorkerProcess;

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Sandbox, hide_process, warden};

/// What a sandbox is made from.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// The tier asked for.
    pub choice: SandboxChoice,
    /// The interpreter; `None` is the newest on `search_path`.
    pub python: Option<PathBuf>,
    /// Folders in which interpreters are looked for, as in PATH.
    pub search_path: OsString,
    /// What each worker may use unless it is started with other limits.
    pub limits: Limits,
    /// The text a worker starts with, under 120 KiB.
    pub boot: String,
    /// The program whose mode `warden` is the warden; `None` is the running one.
    pub warden_program: Option<PathBuf>,
    /// What the tier `container` is made from.
    pub container: ContainerConfig,
    /// A folder of this user's alone, kept between starts, for what the tiers `container` and `seatbelt` need there.
    pub state_folder: Option<PathBuf>,
}

/// Programs can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The tier that was proved.
    pub confinement: Confinement,
    /// The interpreter.
    pub python: PathBuf,
    /// Its version, such as `3.11.2`.
    pub version: String,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// No program can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The cause, and what to do.
    pub message: String,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Processor time it used.
    pub cpu: Duration,
    /// Peak resident memory, in bytes.
    pub peak_memory_bytes: u64,
    /// Whether it was killed because its files grew over the limit.
    pub scratch_exceeded: bool,
}

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Programs cannot run at all.
    #[error("{message}")]
    Refused {
        /// The cause, and what to do.
        message: String,
    },
    /// The daemon is stopping.
    #[error("the sandbox is stopped")]
    Stopped,
    /// The seccomp profile is not as it should be.
    #[error("the seccomp profile is faulty: {detail}")]
    Profile {
        /// What is wrong with it.
        detail: String,
    },
    /// There is no profile for this processor.
    #[error("there is no seccomp profile for {name}")]
    Architecture {
        /// The processor.
        name: String,
    },
    /// The program of a container engine does not start.
    #[error("{engine} does not start: {source}")]
    Engine {
        /// Which.
        engine: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The warden does not start.
    #[error("the warden does not start: {source}")]
    WardenStart {
        /// Why.
        source: io::Error,
    },
    /// The warden has gone, and all workers with it.
    #[error("the warden is lost")]
    WardenLost,
    /// The warden does not answer.
    #[error("the warden gave no answer within {seconds} s")]
    WardenSilent {
        /// How long it was waited for.
        seconds: u64,
    },
    /// The warden cannot follow the plan.
    #[error("the warden cannot make workers: {detail}")]
    Plan {
        /// Why.
        detail: String,
    },
    /// The ends of a worker's channel cannot be made.
    #[error("a worker's channel cannot be made: {source}")]
    Ends {
        /// Why.
        source: io::Error,
    },
    /// A step of making a worker failed.
    #[error("step {} failed: {detail}", step.as_str())]
    SetUp {
        /// The step.
        step: Step,
        /// Why.
        detail: String,
    },
    /// A worker lacks a layer of its confinement.
    #[error("the worker is not confined as it should be: {detail}")]
    Unconfined {
        /// The layer.
        detail: String,
    },
}
