//! The worker from the outside, as the daemon sees it: frames on a socket, one pipe of output, an exit code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what plays the daemon is part of the tests"
)]

mod ends;
mod hostile;
mod party;
mod probes;
mod speech;
