//! Opens the way of arguments and results to the fuzz targets, without a server behind it.
//!
//! `tests/soak` feeds it; the daemon itself has no use for it. What goes
//! through here is the code that real calls go through.

use std::sync::Arc;

use ptc_protocol::run::ToolErrorKind;
use serde_json::Value;

use super::error::ToolError;
use super::prepare::{PreparedCall, prepare};
use super::reply::{ToolReply, finish};
use super::table::{Entry, entry};
use crate::config::ToolFilter;
use crate::downstream::wire::{self, Incoming, Outcome};
use crate::downstream::{Answer, ToolDefinition};
use crate::policy::Policy;

/// One tool `t` of a server `s` that is not there.
#[derive(Clone, Debug)]
pub struct Tool {
    entry: Arc<Entry>,
}

impl Tool {
    /// A tool with these schemas; `None` where no policy can be had, which does not happen.
    pub fn new(input_schema: Option<Value>, output_schema: Option<Value>) -> Option<Self> {
        let definition = ToolDefinition {
            name: "t".to_owned(),
            title: None,
            description: None,
            input_schema,
            output_schema,
            annotations: None,
        };
        let policy = Policy::new(&ToolFilter::All).ok()?;
        Some(Self {
            entry: Arc::new(entry("mcp__s__t", "s", &definition, &policy)),
        })
    }

    /// What becomes of the arguments of a call frame.
    ///
    /// # Errors
    /// As the program gets them.
    pub fn arguments(&self, text: &str, check: bool) -> Result<PreparedCall, ToolError> {
        prepare(&self.entry, text, check)
    }

    /// What becomes of one line of the server's stdout, read as the answer to a
    /// call of this tool; `None` where it is no answer.
    ///
    /// # Errors
    /// As the program gets them.
    pub fn answer(&self, line: &[u8], limit: usize) -> Option<Result<ToolReply, ToolError>> {
        let (tool, server) = (&self.entry.callable, &self.entry.server);
        let Incoming::Answer { outcome, .. } = wire::read(line) else {
            return None;
        };
        Some(match outcome {
            Outcome::Result(result) => {
                let bytes = line.len();
                finish(&self.entry, Answer { result, bytes }, limit)
            }
            Outcome::Error { code, message, .. } => {
                let text = format!("error {code}: {message}");
                Err(ToolError::new(ToolErrorKind::Protocol, text).of(tool, server))
            }
            Outcome::TooDeep { .. } => {
                let fault = "it is nested deeper than 127 levels";
                Err(ToolError::shape(tool, server, fault))
            }
            Outcome::Fault(fault) => Err(ToolError::shape(tool, server, &fault)),
        })
    }
}
