//! Judges tool calls by Cedar policies.
//!
//! The rules that make this safe: values are built by hand, so that no argument
//! becomes an entity or a call of an extension; whatever cannot be evaluated
//! denies; a set of policies is taken whole or not at all.

mod annotations;
mod facts;
mod judge;
mod known;
mod load;
mod numbers;
mod schemas;
mod validate;
mod values;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod table;

pub use facts::{Call, Client, Hints, Program, Tool};
pub use judge::{Judgement, Verdict};
pub use load::{Fault, Policies, Source};
