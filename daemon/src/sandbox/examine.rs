//! Tries each tier that this machine may have, for those who want to know why it has no other.

use std::path::PathBuf;

use ptc_protocol::run::Confinement;

use super::{Ready, Refusal, Sandbox, SandboxConfig, canary, interpreter, refusal};
use crate::config::SandboxChoice;

/// How one tier did.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The tier.
    pub tier: Confinement,
    /// What was proved, or why nothing was.
    pub outcome: Result<Ready, Refusal>,
}

/// The interpreter that programs would run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Its real file.
    pub python: PathBuf,
    /// Its version, such as `3.11.2`.
    pub version: String,
    /// Whether its standard library is compiled.
    pub compiled: bool,
    /// What the operator should know about it.
    pub notes: Vec<String>,
}

/// Finds the interpreter as a start would. Takes at most about a minute.
pub async fn find_python(config: &SandboxConfig) -> Result<Python, Refusal> {
    let found = interpreter::find(config.python.as_deref(), &config.search_path).await;
    let found = found.map_err(|message| Refusal { message })?;
    Ok(Python {
        compiled: !found.notes.contains(&refusal::not_compiled(&found.python)),
        python: found.python,
        version: found.version,
        notes: found.notes,
    })
}

/// Proves each tier of this machine by a worker that tries to get out, and ends it again: those of the system, and that
/// of containers where it is asked for or an image is named.
pub async fn try_tiers(config: &SandboxConfig) -> Vec<Finding> {
    let mut tiers = if cfg!(target_os = "linux") {
        vec![
            (SandboxChoice::Full, Confinement::Full),
            (SandboxChoice::Landlock, Confinement::Landlock),
        ]
    } else if cfg!(target_os = "macos") {
        vec![(SandboxChoice::Seatbelt, Confinement::Seatbelt)]
    } else {
        Vec::new()
    };
    if config.choice == SandboxChoice::Container || config.container.image.is_some() {
        tiers.push((SandboxChoice::Container, Confinement::Container));
    }
    let mut findings = Vec::new();
    for (choice, tier) in tiers {
        let sandbox = Sandbox::start(SandboxConfig {
            choice,
            ..config.clone()
        })
        .await;
        findings.push(Finding {
            tier,
            outcome: sandbox.state(),
        });
        sandbox.stop().await;
    }
    findings
}

/// What the program that proves a tier tries, and must not be able to do.
pub fn attempts() -> &'static [&'static str] {
    &canary::ATTEMPTS
}

/// What a tier does not stop and a stronger one of the same system does.
pub fn gaps(tier: Confinement) -> Option<&'static str> {
    (tier == Confinement::Landlock).then_some(
        "in this tier programs can learn whether a path exists, its kind and size, and scratch is held to its limit by \
         measuring it four times a second",
    )
}
