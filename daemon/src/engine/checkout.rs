//! Takes a worker of the workshop that is in force when the program begins.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::second::chosen;
use super::{Engine, Parts, Purpose, RunError};
use crate::pool::{Busy, Worker};

impl Engine {
    /// The parts in force and a worker of theirs.
    ///
    /// Who waited, for a place or for its worker, may have waited through a reload: a program begins under the limits
    /// and the confinement that are in force then. Each further turn takes another reload.
    pub(super) async fn check_out(
        &self,
        cancel: &CancellationToken,
        purpose: &Purpose,
    ) -> Result<(Arc<Parts>, Worker, Busy), RunError> {
        loop {
            let parts = chosen(&self.parts(), purpose)?;
            if let Some(fault) = &parts.fault {
                return Err(RunError::Config(fault.clone()));
            }
            let checked_out = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(RunError::Cancelled),
                () = self.inner.abort.cancelled() => return Err(RunError::Draining),
                worker = parts.pool.check_out() => worker,
            };
            let now = chosen(&self.parts(), purpose)?;
            if !now.pool.is(&parts.pool) {
                continue;
            }
            let Some((worker, busy)) = checked_out?.into_parts() else {
                return Err(RunError::Cancelled);
            };
            return Ok((now, worker, busy));
        }
    }
}
