//! The shim and the command line as a library, so that both programs share their dialling.

mod action;
mod answers;
pub mod connect;
pub mod ctl;
mod ending;
mod environment;
pub mod excerpt;
pub mod forward;
pub mod handshake;
pub mod launch;
mod launch_error;
pub mod lines;
mod link;
mod login;
mod manager;
pub mod message;
mod opener;
pub mod options;
mod pending;
mod replace;
pub mod resume;
#[cfg(test)]
mod resume_events;
#[cfg(test)]
mod resume_properties;
mod said;
pub mod stdio;
