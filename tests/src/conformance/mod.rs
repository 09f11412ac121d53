//! The parties of the public conformance suite: its fixtures on the daemon's session layer, and an HTTP front.

pub mod client;
pub mod fixture;
pub mod front;
mod lines;
mod rounds;
mod stock;
