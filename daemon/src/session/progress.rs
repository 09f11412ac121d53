//! Tells a client how far its program is.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::engine::Progress;

/// Least pause between two notifications of one program.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest pause: clients that give up a silent request hear from a program that calls nothing.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Tells until the run has ended or is cancelled: what changed, at most once a pause.
pub(super) async fn report(
    peer: Peer<RoleServer>,
    token: ProgressToken,
    mut progress: watch::Receiver<Progress>,
    cancelled: CancellationToken,
) {
    let mut steps = 0_u32;
    loop {
        tokio::select! {
            () = cancelled.cancelled() => return,
            changed = progress.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
        steps += 1;
        let mut note = ProgressNotificationParam::new(token.clone(), f64::from(steps));
        note.message = Some(message(&progress.borrow_and_update()));
        let sent = tokio::time::timeout(PAUSE, peer.notify_progress(note)).await;
        if matches!(sent, Ok(Err(_))) {
            return;
        }
        tokio::select! {
            () = cancelled.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

fn message(progress: &Progress) -> String {
    let Progress {
        started,
        finished,
        tool,
    } = progress;
    if *started == 0 {
        return "running, no calls yet".to_owned();
    }
    format!("{finished}/{started} calls · {tool}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_calls_or_says_that_there_are_none() {
        let mut progress = Progress::default();
        assert_eq!(message(&progress), "running, no calls yet");
        progress.started = 12;
        progress.finished = 7;
        "github.get_issue".clone_into(&mut progress.tool);
        assert_eq!(message(&progress), "7/12 calls · github.get_issue");
    }
}
