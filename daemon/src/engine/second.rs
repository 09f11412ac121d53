//! Which engine a program runs in, and why it may not run in the one it names.

use std::sync::Arc;

use ptc_protocol::facts::RunKind;

use super::checks::parts_for;
use super::{Parts, Purpose, RunError};
use crate::config::EngineName;
use crate::pool::Pool;

/// Whether programs can run in the engine monty.
#[derive(Clone, Debug, Default)]
pub enum Second {
    /// The configuration does not offer it.
    #[default]
    Off,
    /// It is offered and cannot be had, for this reason.
    Unavailable(String),
    /// Its workers come from here.
    Ready(Pool),
}

/// The parts in force for a run, those of its engine among them. What is run for inspection or submitted is CPython's.
pub(super) fn chosen(parts: &Arc<Parts>, purpose: &Purpose) -> Result<Arc<Parts>, RunError> {
    let parts = parts_for(parts, purpose);
    let engines = &parts.limits.engines;
    let engine = purpose.engine.unwrap_or(engines.default);
    if purpose.kind != RunKind::Program || engine == EngineName::Cpython {
        return Ok(parts);
    }
    match &parts.second {
        Second::Ready(pool) => Ok(Arc::new(Parts {
            pool: pool.clone(),
            engine,
            ..Parts::clone(&parts)
        })),
        Second::Unavailable(reason) => Err(RunError::Engine(reason.clone())),
        Second::Off => Err(RunError::Engine(
            "the configuration does not offer it (execution.engines)".to_owned(),
        )),
    }
}
