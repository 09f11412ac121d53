//! Keeps the last known list of tools of a server that is not always running.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::json::{self, Duplicates};
use super::listing::{Listing, ToolDefinition};
use crate::config::{ServerConfig, Transport};
use crate::names;

/// Largest list that is kept over the end of the daemon, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The list, and the file that keeps it.
#[derive(Debug)]
pub(super) struct Known {
    path: PathBuf,
    /// What the list belongs to: another entry under the same name may be another server.
    entry: String,
    tools: Mutex<Option<Arc<[ToolDefinition]>>>,
    /// One writer at a time.
    writing: Mutex<()>,
}

impl Known {
    /// Reads what was kept for this entry, if anything. A file that cannot be used is as none.
    pub(super) fn open(folder: &Path, config: &ServerConfig) -> Self {
        let path = folder.join(format!("{}.json", names::fold(&config.name)));
        let entry = digest(config);
        let kept = read(&path).ok().and_then(|text| parse(&text, &entry));
        Self {
            path,
            entry,
            tools: Mutex::new(kept.map(Arc::from)),
            writing: Mutex::new(()),
        }
    }

    pub(super) fn tools(&self) -> Option<Arc<[ToolDefinition]>> {
        self.lock().clone()
    }

    /// Takes over a list that a server has just given.
    pub(super) fn learn(self: &Arc<Self>, tools: &Arc<[ToolDefinition]>) {
        {
            let mut known = self.lock();
            if known.as_ref().is_some_and(|known| known == tools) {
                return;
            }
            *known = Some(Arc::clone(tools));
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let this = Arc::clone(self);
            runtime.spawn_blocking(move || {
                if let Err(error) = this.write() {
                    tracing::warn!(%error, path = %this.path.display(), "a list of tools cannot be kept");
                }
            });
        }
    }

    fn write(&self) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tools) = self.tools() else {
            return Ok(());
        };
        let tools: Vec<Value> = tools.iter().map(written).collect();
        let text = json!({"entry": self.entry, "tools": tools}).to_string();
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("it is too long"));
        }
        let fresh = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(no_follow_nor_wait())
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&fresh, &self.path)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<[ToolDefinition]>>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool as its server would write it.
fn written(tool: &ToolDefinition) -> Value {
    let mut written = json!({"name": tool.name});
    let mut put = |key: &str, value: Option<Value>| {
        if let (Some(value), Some(written)) = (value, written.as_object_mut()) {
            written.insert(key.to_owned(), value);
        }
    };
    put("title", tool.title.clone().map(Value::String));
    put("description", tool.description.clone().map(Value::String));
    put("inputSchema", tool.input_schema.clone());
    put("outputSchema", tool.output_schema.clone());
    put("annotations", tool.annotations.clone());
    written
}

fn parse(text: &str, entry: &str) -> Option<Vec<ToolDefinition>> {
    let kept = json::read(text, Duplicates::Refuse).ok()?;
    if kept.get("entry").and_then(Value::as_str) != Some(entry) {
        return None;
    }
    Listing::of_kept(json!({"tools": kept.get("tools")?}))
}

/// Tells one entry from another, by what decides which program is started or who is asked. No value
/// of a variable or a header goes into it.
fn digest(config: &ServerConfig) -> String {
    let parts = match &config.transport {
        Transport::Stdio {
            command, args, cwd, ..
        } => format!("{command:?} {args:?} {cwd:?}"),
        Transport::Http { url, .. } | Transport::Sse { url, .. } => url.clone(),
    };
    let text = format!("{} {parts}", config.transport.name());
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(16).fold(String::new(), |mut hex, byte| {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn read(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_follow_nor_wait())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// A link is not followed, and a pipe in the file's place is not waited for.
fn no_follow_nor_wait() -> i32 {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    i32::try_from(flags.bits()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::testing::server;
    use super::*;

    fn tool(name: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: Some("does \u{7}".to_owned()),
            input_schema: json::read(
                r#"{"type":"object","properties":{"n":{"maximum":123456789012345678901234567890}}}"#,
                Duplicates::Refuse,
            )
            .ok(),
            output_schema: None,
            annotations: Some(json!({"readOnlyHint": true})),
        }
    }

    #[test]
    fn a_list_is_read_back_exactly_and_belongs_to_one_entry() {
        let folder = tempfile::tempdir().unwrap();
        let config = server("a b", "", folder.path());
        let known = Arc::new(Known::open(folder.path(), &config));
        assert_eq!(known.tools(), None);
        let tools: Arc<[ToolDefinition]> = Arc::from([tool("x.y"), tool("z")]);
        // Without a runtime there is nobody to write.
        known.learn(&tools);
        known.write().unwrap();
        let mode = known.path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Known::open(folder.path(), &config).tools(), Some(tools));
        let mut other = config.clone();
        if let Transport::Stdio { command, .. } = &mut other.transport {
            command.push('x');
        }
        assert_eq!(Known::open(folder.path(), &other).tools(), None);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let config = server("s", "", folder.path());
        let entry = digest(&config);
        for text in [
            String::new(),
            "{".to_owned(),
            json!({"entry": entry}).to_string(),
            json!({"entry": entry, "tools": 7}).to_string(),
            json!({"entry": "x", "tools": []}).to_string(),
        ] {
            std::fs::write(folder.path().join("s.json"), &text).unwrap();
            assert_eq!(Known::open(folder.path(), &config).tools(), None, "{text}");
        }
    }
}
