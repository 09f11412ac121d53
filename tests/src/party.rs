//! What most tests begin with: a daemon whose server `m` is ready, and a client.

use ptc_protocol::status::ServerState;

use crate::{Client, Daemon, Home, Plan};

/// Program text: what a call of `m`'s `echo` gives, or the kind of its failure and its text.
pub const ECHO: &str = "\
try:
    print(await mcp__m__echo(a=1))
except ToolError as e:
    print(e.kind, e)
";

/// A daemon of this plan, whose server `m` is ready.
#[track_caller]
pub fn daemon_of(plan: &Plan) -> (Home, Daemon) {
    let home = Home::new(plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    (home, daemon)
}

/// A daemon of this plan, whose server `m` is ready, and a client.
#[track_caller]
pub fn party_of(plan: &Plan) -> (Home, Daemon, Client) {
    let (home, daemon) = daemon_of(plan);
    let client = home.client();
    (home, daemon, client)
}

/// A daemon of this plan and a scripted server `m`, which is ready, and a client.
#[track_caller]
pub fn party(plan: Plan) -> (Home, Daemon, Client) {
    party_of(&plan.server("m", &[]))
}
