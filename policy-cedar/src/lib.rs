//! Judges tool calls, and who may start programs, by Cedar policies.
//!
//! The rules that make this safe: values are built by hand, so that no argument
//! becomes an entity or a call of an extension; whatever cannot be evaluated
//! denies; a set of policies is taken whole or not at all.

mod annotations;
mod depth;
mod facts;
mod judge;
mod known;
mod load;
mod numbers;
mod programs;
mod schemas;
mod validate;
mod values;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod table;

pub use facts::{Call, Client, Hints, Program, Start, Tool};
pub use judge::{Judgement, Verdict};
pub use load::{Fault, Policies, Source};
