//! Asks an older daemon to make room for the one installed beside this shim, if it has nothing to do.

use ptc_protocol::paths::Places;
use ptc_protocol::status::Done;
use ptc_protocol::{BUILD, PROTOCOL_MIN, route, skew};

use crate::connect::{connect, daemon_file};
use crate::launch::is_installed;

/// What is known of the daemon after a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// It serves, and is of this build.
    Serving(&'a str),
    /// It refused.
    Refusing,
}

/// Whether the daemon has agreed to end now, so that the newer one can be started.
///
/// One with programs under way does not, and one that does not know the question says so.
pub(crate) async fn replaced(places: &Places, found: Found<'_>) -> bool {
    let older = match found {
        Found::Serving(build) => skew::is_older(build, BUILD),
        // Refusals have other causes too: only one that cannot talk to us is to go.
        Found::Refusing => daemon_file(places).is_some_and(|daemon| daemon.protocol < PROTOCOL_MIN),
    };
    if !older || !is_installed() {
        return false;
    }
    let Ok(daemon) = connect(places).await else {
        return false;
    };
    let answer = daemon.post::<Done>(route::STOP_IDLE).await;
    answer.is_ok_and(|done| done.ok)
}
