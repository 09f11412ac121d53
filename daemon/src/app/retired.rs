//! Keeps workshops that are not in force any more until their last program is over.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Workshop;
use super::checks::CheckShop;

/// How long the retired may take to end with the daemon, all together.
const END: Duration = Duration::from_secs(10);

/// Workshops in which programs may still run. There are no more of them than programs.
#[derive(Debug, Default)]
pub(super) struct Retired {
    ending: TaskTracker,
    end: CancellationToken,
}

impl Retired {
    /// Lets a workshop's programs end in peace, under the limits they began with, and then ends it.
    pub(super) fn take(&self, workshop: Workshop) {
        let Workshop {
            sandbox,
            pool,
            checks,
            monty,
        } = workshop;
        let unused = pool.retire();
        let (unchecked, second) = checks.map(CheckShop::retire).unzip();
        let (unrun, third) = monty.retire().unzip();
        let end = self.end.clone();
        self.ending.spawn(async move {
            let over = async {
                unused.await;
                if let Some(unchecked) = unchecked {
                    unchecked.await;
                }
                if let Some(unrun) = unrun {
                    unrun.await;
                }
            };
            tokio::select! {
                () = over => {}
                () = end.cancelled() => {}
            }
            sandbox.stop().await;
            for other in second.into_iter().chain(third) {
                other.stop().await;
            }
        });
    }

    /// Ends all of them, when the daemon has drained and nothing runs any more.
    pub(super) async fn stop(&self) {
        self.end.cancel();
        self.ending.close();
        if tokio::time::timeout(END, self.ending.wait()).await.is_err() {
            tracing::error!("not every workshop of earlier configurations ended in time");
        }
    }
}
