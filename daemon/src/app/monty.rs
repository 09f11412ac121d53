//! The workers of the engine monty: their program, their sandbox, and one of them on trial.

use std::path::{Path, PathBuf};

use ptc_protocol::status::EngineStatus;

use crate::config::{EngineName, ExecutionConfig, PoolConfig};
use crate::engine::Second;
use crate::pool::Pool;
use crate::sandbox::Sandbox;

/// What the worker's program is called beside ptcd.
const PROGRAM: &str = "ptcd-monty-worker";
/// Nothing in the interpreter counts steps, and a budget that nobody keeps is none.
const UNCOUNTED: &str = "execution.step_budget: it counts no steps; leave one of the two out";

/// The workers of the engine, where the configuration offers it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shop {
    sandbox: Option<Sandbox>,
    pub(super) second: Second,
}

impl Shop {
    /// Makes them, where they are offered. They run in the tier that `proved` has proved, once a worker of theirs has tried
    /// to get out of it, too. One is made on trial, since a program that does not start is told here and not to the first
    /// who wants it.
    pub(super) async fn open(execution: &ExecutionConfig, proved: &Sandbox) -> Self {
        if !execution.engines.offers(EngineName::Monty) {
            return Self::default();
        }
        match Self::try_open(execution, proved).await {
            Ok(shop) => shop,
            Err(reason) => {
                tracing::error!(reason, "the engine monty is unavailable");
                Self {
                    sandbox: None,
                    second: Second::Unavailable(reason),
                }
            }
        }
    }

    async fn try_open(execution: &ExecutionConfig, proved: &Sandbox) -> Result<Self, String> {
        let program = program(execution)?;
        let sandbox = proved
            .of_program(&program)
            .await
            .map_err(|refusal| format!("{}: {}", program.display(), refusal.message))?;
        let sizes = PoolConfig {
            warm: execution.pool.warm.min(1),
            ..execution.pool
        };
        let pool = Pool::start(sandbox.clone(), sizes, execution.max_output_bytes);
        if let Err(error) = pool.check_out().await {
            pool.stop();
            sandbox.stop().await;
            return Err(format!("{}: {error}", program.display()));
        }
        Ok(Self {
            sandbox: Some(sandbox),
            second: Second::Ready(pool),
        })
    }

    /// How it stands, for the status; nothing where it is not offered.
    pub(super) fn status(&self, execution: &ExecutionConfig) -> Option<EngineStatus> {
        let (version, unavailable) = match &self.second {
            Second::Off => return None,
            Second::Unavailable(reason) => (None, Some(reason.clone())),
            Second::Ready(pool) => (pool.python(), None),
        };
        Some(EngineStatus {
            name: EngineName::Monty.as_str().to_owned(),
            default: execution.engines.default == EngineName::Monty,
            version,
            unavailable,
        })
    }

    /// Warms no more workers; gives what waits for the last of its programs, and the sandbox to end after that.
    pub(super) fn retire(self) -> Option<(impl Future<Output = ()> + Send + 'static, Sandbox)> {
        match (self.second, self.sandbox) {
            (Second::Ready(pool), Some(sandbox)) => Some((pool.retire(), sandbox)),
            _ => None,
        }
    }

    /// Ends them.
    pub(super) async fn stop(self) {
        if let Second::Ready(pool) = &self.second {
            pool.stop();
        }
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
        }
    }
}

/// The worker's program, or what of the configuration and of the files stands in its way.
pub(super) fn program(execution: &ExecutionConfig) -> Result<PathBuf, String> {
    if execution.step_budget.is_some() {
        return Err(UNCOUNTED.to_owned());
    }
    find(execution.engines.monty_worker.as_deref())
}

/// The one named, else the one beside this program.
fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    let path = if let Some(path) = named {
        path.to_owned()
    } else {
        let own = std::env::current_exe()
            .map_err(|error| format!("ptcd cannot find its own folder: {error}"))?;
        own.with_file_name(PROGRAM)
    };
    path.canonicalize().map_err(|error| {
        format!(
            "{}: {error}; build it with `engines/monty/check --release` and put it beside ptcd, or name it in \
             execution.monty_worker",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_not_there_is_named_with_what_to_do() {
        let error = find(Some(Path::new("/not/here"))).unwrap_err();
        assert!(error.starts_with("/not/here: "), "{error}");
        assert!(error.contains("execution.monty_worker"), "{error}");
        let error = find(None).unwrap_err();
        assert!(error.contains(PROGRAM), "{error}");
    }
}
