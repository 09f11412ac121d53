//! How the client opened its session, kept to be said again to the next daemon.

use std::ops::Range;

use crate::message::Id;

/// How the session was opened, if it is.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    opener: Option<Opener>,
    /// The opener before an `initialize` that has no answer yet.
    former: Option<Opener>,
    /// Whether the client began without a handshake.
    modern: bool,
}

impl Opening {
    /// The client sent `initialize`, its id standing at `id_at`.
    pub(crate) fn begin(&mut self, line: &[u8], id_at: Range<usize>) {
        self.former = self.opener.replace(Opener::new(line, id_at));
    }

    /// The daemon answered `initialize`; one it refuses counts as never said.
    pub(crate) fn answered(&mut self, is_error: bool) {
        let former = self.former.take();
        if is_error {
            self.opener = former;
        }
    }

    /// The client said that it is initialized.
    pub(crate) fn initialized(&mut self) {
        if let Some(opener) = &mut self.opener {
            opener.initialized = true;
        }
    }

    /// The client sent a request, one that opens a session without a handshake or not.
    pub(crate) fn note(&mut self, modern: bool) {
        self.modern |= modern;
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.modern
    }

    /// What the client said to open its session.
    pub(crate) fn opener(&self) -> Option<&Opener> {
        self.opener.as_ref()
    }
}

/// What the client said to open its session.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    line: Vec<u8>,
    id_at: Range<usize>,
    /// Whether the client has said that it is initialized.
    pub(crate) initialized: bool,
}

impl Opener {
    /// Keeps a line whose id stands at `id_at`.
    fn new(line: &[u8], id_at: Range<usize>) -> Self {
        Self {
            line: line.to_vec(),
            id_at,
            initialized: false,
        }
    }

    /// The line under an id of the shim's own, since the client may use its id again.
    pub(crate) fn replay(&self, number: u64) -> (Option<Id>, Vec<u8>) {
        let id = format!("\"ptc-mcp-replay-{number}\"");
        let mut line = self.line.clone();
        line.splice(self.id_at.clone(), id.bytes());
        (Id::from_json(&id), line)
    }
}
