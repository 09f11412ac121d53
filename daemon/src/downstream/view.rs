//! Says for whom a list is made or a call is sent.

use std::path::Path;
use std::sync::Arc;

use crate::config::offered::Barred;

/// What of the servers one client sees.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Digest of the client's session: the calls of one client take turns with those of the others.
    pub client: Arc<str>,
    /// Real path of its project folder, for servers with `scope: project`; `None` where it has named none.
    pub project: Option<Arc<Path>>,
    /// Servers that run with other values of variables than this client's.
    pub barred: Barred,
}
