//! The rooms of the ptcd daemon; `docs/architecture.md` is the map.

pub mod app;
pub mod config;
pub mod control;
pub mod demo;
pub mod downstream;
pub mod engine;
pub mod journal;
pub mod metrics;
pub mod names;
pub mod policy;
pub mod pool;
pub mod registry;
pub mod sandbox;
pub mod session;
pub mod status;
pub mod telemetry;
