//! What this machine has, found once a test process.

use std::sync::OnceLock;

use ptc_protocol::run::Confinement;

use crate::home::{Home, Plan};
use crate::suite::skip;
use crate::wait::{PATIENCE, eventually};

/// Whether the tests run as the superuser.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The tier that `sandbox: auto` gives here, or why there is none.
pub fn tier() -> &'static Result<Confinement, String> {
    static TIER: OnceLock<Result<Confinement, String>> = OnceLock::new();
    TIER.get_or_init(|| {
        let home = Home::new(&Plan::bare());
        let daemon = home.daemon();
        eventually("ptcd has decided on a tier", PATIENCE, || {
            let programs = daemon.status().programs;
            match (programs.confinement, programs.refusal) {
                (Some(tier), _) => Some(Ok(tier)),
                (None, Some(refusal)) => Some(Err(refusal)),
                (None, None) => None,
            }
        })
    })
}

/// The word for `execution.sandbox` with which programs run here.
pub fn sandbox_word() -> &'static str {
    match tier() {
        Ok(_) => "auto",
        Err(_) => "none",
    }
}

/// Ends the test as ignored where no tier can be had.
pub fn needs_tier() -> anyhow::Result<Confinement> {
    match tier() {
        Ok(tier) => Ok(*tier),
        Err(reason) => skip(format!("no confinement on this machine: {reason}")),
    }
}
