//! Says how well one server is; every face of the daemon shows this statement.

use ptc_protocol::status::{Health, Level, ServerState};

/// The health of a server in this state, for this reason.
pub(super) fn of(name: &str, state: ServerState, detail: Option<String>) -> Health {
    let (level, summary, action) = match state {
        ServerState::Ready => (Level::Ok, "its tools can be called", None),
        ServerState::Connecting => (Level::Transient, "its first connection is being made", None),
        ServerState::Reconnecting => (
            Level::Transient,
            "it was lost or did not start, and is tried again",
            None,
        ),
        ServerState::Failed => (
            Level::Blocked,
            "it is not tried again by itself",
            Some(format!(
                "mend the cause, then `ptcctl reload` or `ptcctl servers restart {name}`"
            )),
        ),
        ServerState::Disabled => (
            Level::Ok,
            "it is turned off",
            Some(format!("`ptcctl servers enable {name}` turns it on")),
        ),
    };
    Health {
        level,
        state: state.as_str().to_owned(),
        summary: summary.to_owned(),
        detail,
        action,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_a_person_blocks_and_says_what_to_do() {
        use ServerState::{Connecting, Disabled, Failed, Ready, Reconnecting};
        for (state, level, acts) in [
            (Connecting, Level::Transient, false),
            (Ready, Level::Ok, false),
            (Reconnecting, Level::Transient, false),
            (Failed, Level::Blocked, true),
            (Disabled, Level::Ok, true),
        ] {
            let health = of("jira", state, Some("because".to_owned()));
            assert_eq!((health.level, health.action.is_some()), (level, acts));
            assert_eq!(health.state, state.as_str());
            assert_eq!(health.detail.as_deref(), Some("because"));
            assert!(health.action.is_none_or(|action| action.contains("jira")));
        }
    }
}
