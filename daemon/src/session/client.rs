//! Says who a session's client is, and what of the servers it sees.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::config::offered::Barred;
use crate::registry::View;

/// Who is at the other end, as far as the handshake said.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// Digest of the session's id.
    pub session: String,
    /// The shim's `--client` label.
    pub label: Option<String>,
    /// Set to the name the client gives in `initialize`, unless it has a label.
    pub name: Arc<Mutex<String>>,
    /// Real path of its project folder; `None` where it has named none.
    pub project: Option<Arc<Path>>,
    /// Servers that run with other values of variables than this client's.
    pub barred: Barred,
}

impl ClientInfo {
    pub(super) fn view(&self) -> View {
        View {
            client: Arc::from(self.session.as_str()),
            project: self.project.clone(),
            barred: self.barred.clone(),
        }
    }
}
