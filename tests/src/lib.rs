//! The parties the tests are made of: a home of its own, the real programs in it, and a scripted MCP server.
//!
//! A helper that meets something it does not expect panics with what it saw,
//! since a test has nothing better to do with it either.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

pub mod client;
pub mod conformance;
pub mod daemon;
pub mod direct;
pub mod documents;
pub mod home;
pub mod http;
pub mod machine;
pub mod mock;
pub mod mock_http;
pub mod party;
pub mod process;
pub mod programs;
pub mod pythons;
pub mod reference;
pub mod suite;
pub mod wait;

pub use client::{Client, Run};
pub use daemon::Daemon;
pub use direct::Direct;
pub use home::{Home, Plan};
pub use party::{daemon_of, party, party_of};
pub use suite::{Skip, TestResult};
pub use wait::{PATIENCE, eventually};
