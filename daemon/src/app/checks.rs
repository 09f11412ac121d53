//! Workers of their own for inspections and submissions whose limits are not those of other programs.

use std::path::Path;

use super::reload::sandbox_config;
use crate::config::expand::Variables;
use crate::config::{Config, ExecutionConfig, ExposedTool, PoolConfig};
use crate::engine::checks::Checks;
use crate::pool::Pool;
use crate::sandbox::Sandbox;

/// None is kept warm: such programs are few and may wait a moment.
const SIZES: PoolConfig = PoolConfig { warm: 0, max: 1 };

/// A sandbox of its own and its workers.
#[derive(Clone, Debug)]
pub(super) struct CheckShop {
    sandbox: Sandbox,
    pub(super) checks: Checks,
}

impl CheckShop {
    /// Warms no more workers; gives what waits for the last of its programs, and the sandbox to end after that.
    pub(super) fn retire(self) -> (impl Future<Output = ()> + Send + 'static, Sandbox) {
        (self.checks.pool.retire(), self.sandbox)
    }
}

/// The limits of programs without tools, where they are not the usual ones and there can be such programs.
pub(super) fn limits(config: &Config) -> Option<ExecutionConfig> {
    let offered = config.tools.expose.iter().any(|tool| {
        matches!(
            tool,
            ExposedTool::RunPython
                | ExposedTool::SubmitExecuteUnconfirmed
                | ExposedTool::SubmitOutcome
        )
    });
    let limits = config
        .profiles
        .limits(config.submit.profile, &config.execution);
    limits.filter(|_| offered)
}

/// Makes them, where they are needed.
pub(super) async fn open(
    config: &Config,
    variables: &Variables,
    state: &Path,
) -> Option<CheckShop> {
    let limits = limits(config)?;
    let sandbox = Sandbox::start(sandbox_config(&limits, variables, state)).await;
    if let Err(refusal) = sandbox.state() {
        tracing::error!(
            reason = refusal.message,
            "inspections and submissions are refused"
        );
    }
    let pool = Pool::start(sandbox.clone(), SIZES, limits.max_output_bytes);
    Some(CheckShop {
        sandbox,
        checks: Checks { pool, limits },
    })
}

/// Ends them.
pub(super) async fn stop(shop: Option<CheckShop>) {
    if let Some(shop) = shop {
        shop.checks.pool.stop();
        shop.sandbox.stop().await;
    }
}
