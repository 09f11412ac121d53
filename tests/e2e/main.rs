//! The real programs from the outside: a client at the shim's pipes, the daemon, scripted servers.
//!
//! One file an area. A new file needs its line in `main`; the compiler names
//! a test that its area's list forgets.
#![expect(
    clippy::unnecessary_wraps,
    reason = "every test has the one signature that the lists take"
)]

mod answers;
mod approvals;
mod calls;
mod cancelling;
mod config;
mod contract;
mod crowd;
mod ctl;
mod demo;
mod discovery;
mod disk;
mod doctor;
mod doctored;
mod environment;
mod eras;
mod eras_upstream;
mod forging;
mod handshake;
mod health;
mod http;
mod http_life;
mod journal;
mod leftovers;
mod life;
mod limits;
mod logs;
mod mistakes;
mod monty;
mod policy;
mod printed;
mod programs;
mod projects;
mod properties;
mod reloads;
mod replay;
mod requests;
mod resources;
mod resuming;
mod risk;
mod roundtrip;
mod secrets;
mod servers;
mod services;
mod sharing;
mod skew;
mod sockets;
mod sse;
mod strangers;
mod submit;
mod tampering;
mod tool_errors;
mod tool_lists;
mod traps;
mod verbs;
mod wire;
mod written;

fn main() {
    let areas = [
        handshake::tests(),
        wire::tests(),
        written::tests(),
        requests::tests(),
        eras_upstream::tests(),
        resuming::tests(),
        reloads::tests(),
        discovery::tests(),
        doctor::tests(),
        answers::tests(),
        printed::tests(),
        programs::tests(),
        mistakes::tests(),
        monty::tests(),
        leftovers::tests(),
        limits::tests(),
        forging::tests(),
        tampering::tests(),
        properties::tests(),
        roundtrip::tests(),
        calls::tests(),
        contract::tests(),
        cancelling::tests(),
        servers::tests(),
        projects::tests(),
        tool_lists::tests(),
        tool_errors::tests(),
        http::tests(),
        http_life::tests(),
        sse::tests(),
        eras::tests(),
        traps::tests(),
        sharing::tests(),
        crowd::tests(),
        life::tests(),
        sockets::tests(),
        skew::tests(),
        strangers::tests(),
        disk::tests(),
        health::tests(),
        secrets::tests(),
        journal::tests(),
        policy::tests(),
        risk::tests(),
        approvals::tests(),
        resources::tests(),
        replay::tests(),
        doctored::tests(),
        submit::tests(),
        config::tests(),
        ctl::tests(),
        verbs::tests(),
        logs::tests(),
        environment::tests(),
        services::tests(),
        demo::tests(),
    ];
    ptc_tests::suite::run(areas.into_iter().flatten().collect());
}
