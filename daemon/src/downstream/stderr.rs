//! Drains a server's stderr into a bounded tail and a bounded log file.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

/// Lines of the tail.
const MAX_LINES: usize = 20;
/// Longest piece of text that is taken for a line, in bytes; progress bars have none.
const MAX_LINE_BYTES: usize = 4096;
/// Most bytes of a line that are held back since a secret may go on in what follows.
const MAX_HELD_BYTES: usize = 64 * 1024;
/// Longest line of the tail, in characters.
const MAX_LINE_CHARS: usize = 400;
/// Size at which the log file is moved aside; two of them are kept.
const MAX_LOG_BYTES: u64 = 1024 * 1024;

/// Makes a text fit to be written down: no secret is left in it.
pub type Mask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// How many bytes of a text can be masked apart from what follows: a secret may have begun behind them.
pub type Settled = Arc<dyn Fn(&str) -> usize + Send + Sync>;

/// The latest lines of a server's stderr, masked.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    /// The last line that is not blank.
    pub(super) fn last(&self) -> Option<String> {
        self.lock().back().cloned()
    }

    /// The last lines, for an error.
    pub(super) fn text(&self, lines: usize) -> Option<String> {
        let kept = self.lock();
        let skip = kept.len().saturating_sub(lines);
        let text: Vec<&str> = kept.iter().skip(skip).map(String::as_str).collect();
        (!text.is_empty()).then(|| text.join("\n"))
    }

    fn push(&self, line: &str) {
        let line: String = line
            .trim()
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_LINE_CHARS)
            .collect();
        if line.trim().is_empty() {
            return;
        }
        let mut kept = self.lock();
        if kept.len() >= MAX_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads until the pipe ends. A log that cannot be written stops nothing.
pub(super) async fn drain(
    mut pipe: impl AsyncRead + Unpin,
    tail: Tail,
    log: PathBuf,
    (mask, settled): (Mask, Settled),
) {
    let mut log = match Log::open(log).await {
        Ok(log) => Some(log),
        Err(error) => {
            tracing::warn!(%error, "a server's log cannot be opened");
            None
        }
    };
    let mut chunk = vec![0; 16 * 1024];
    let mut line = Vec::new();
    loop {
        let read = pipe.read(&mut chunk).await.unwrap_or(0);
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        let mut masked = String::new();
        for &byte in bytes {
            if byte == b'\n' || byte == b'\r' {
                take_line(&mut line, &tail, &mask, &mut masked);
                continue;
            }
            line.push(byte);
            if line.len() >= MAX_LINE_BYTES && line.len() % MAX_LINE_BYTES == 0 {
                let held = held(&line, &settled);
                let mut rest = line.split_off(line.len() - held);
                take_line(&mut line, &tail, &mask, &mut masked);
                line.append(&mut rest);
            }
        }
        if !masked.is_empty()
            && let Some(open) = &mut log
            && let Err(error) = open.write(masked.as_bytes()).await
        {
            tracing::warn!(%error, "a server's log cannot be written");
            log = None;
        }
    }
    let mut masked = String::new();
    take_line(&mut line, &tail, &mask, &mut masked);
    if let Some(open) = &mut log {
        // The server has ended; there is nobody left to tell.
        let _ = open.write(masked.as_bytes()).await;
    }
}

/// How many bytes at the end of a long line wait for what follows.
fn held(line: &[u8], settled: &Settled) -> usize {
    let mut rest = line;
    let text = loop {
        match std::str::from_utf8(rest) {
            Ok(text) => break text,
            Err(error) => {
                let valid = error.valid_up_to();
                let Some(length) = error.error_len() else {
                    // Of a character that is cut the rest is waited for.
                    let whole = rest.get(..valid).unwrap_or_default();
                    break std::str::from_utf8(whole).unwrap_or_default();
                };
                // What is no text ends whatever secret may have begun before it.
                rest = rest.get(valid + length..).unwrap_or_default();
            }
        }
    };
    let held = rest.len() - settled(text);
    if held > MAX_HELD_BYTES { 0 } else { held }
}

fn take_line(line: &mut Vec<u8>, tail: &Tail, mask: &Mask, masked: &mut String) {
    if line.is_empty() {
        return;
    }
    let text = mask(&String::from_utf8_lossy(line));
    tail.push(&text);
    masked.push_str(&text);
    masked.push('\n');
    line.clear();
}

struct Log {
    path: PathBuf,
    file: tokio::fs::File,
    bytes: u64,
}

impl Log {
    async fn open(path: PathBuf) -> io::Result<Self> {
        let opened = path.clone();
        let file = tokio::task::spawn_blocking(move || open_private(&opened))
            .await
            .map_err(io::Error::other)??;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path,
            file: tokio::fs::File::from_std(file),
            bytes,
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes >= MAX_LOG_BYTES {
            tokio::fs::rename(&self.path, self.path.with_extension("log.1")).await?;
            *self = Self::open(self.path.clone()).await?;
        }
        self.file.write_all(bytes).await?;
        self.file.flush().await?;
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        Ok(())
    }
}

fn open_private(path: &Path) -> io::Result<std::fs::File> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn plain() -> (Mask, Settled) {
        (Arc::new(str::to_owned), Arc::new(str::len))
    }

    #[tokio::test]
    async fn output_without_newlines_stays_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("s.log");
        let tail = Tail::default();
        let bytes = "\r  42% █".repeat(500_000);
        drain(bytes.as_bytes(), tail.clone(), log.clone(), plain()).await;
        assert_eq!(tail.last().as_deref(), Some("42% █"));
        assert!(tail.text(100).unwrap().len() < MAX_LINES * MAX_LINE_CHARS * 4);
        let bytes = "x".repeat(1_000_000);
        drain(bytes.as_bytes(), tail.clone(), log.clone(), plain()).await;
        for name in ["s.log", "s.log.1"] {
            let meta = folder.path().join(name).metadata().unwrap();
            assert!(meta.len() <= MAX_LOG_BYTES + 64 * 1024, "{}", meta.len());
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        }
    }

    #[tokio::test]
    async fn a_secret_across_the_pieces_of_a_long_line_is_masked() {
        let masker =
            crate::config::mask::Masker::with_key([1; 32], &std::collections::BTreeMap::new());
        masker.register("KEY", "hunter22-é-hunter22");
        let (one, other) = (masker.clone(), masker);
        let masking = || -> (Mask, Settled) {
            let (one, other) = (one.clone(), other.clone());
            (
                Arc::new(move |text| one.mask(text).into_owned()),
                Arc::new(move |text| other.settled(text)),
            )
        };
        for before in MAX_LINE_BYTES - 24..=MAX_LINE_BYTES {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().join("s.log");
            let mut bytes = b"\xff".repeat(3);
            bytes.extend(b"x".repeat(before - 3));
            bytes.extend("hunter22-é-hunter22 and more\n".as_bytes());
            drain(&bytes[..], Tail::default(), log.clone(), masking()).await;
            let written = std::fs::read_to_string(&log).unwrap().replace('\n', "");
            assert!(!written.contains("hunter22"), "{before}");
            assert!(written.contains("<KEY:"), "{before}");
            assert!(written.ends_with(" and more"), "{before}");
        }
    }

    #[test]
    fn a_long_line_that_is_no_text_holds_nothing_back() {
        let settled: Settled = Arc::new(|_| 0);
        assert_eq!(held(&vec![0xff; 1 << 20], &settled), 0);
        let mut cut = vec![0xff; 1 << 20];
        cut.extend("ab\u{2588}".as_bytes().iter().take(4));
        assert_eq!(held(&cut, &settled), 4);
    }

    #[tokio::test]
    async fn what_is_written_down_is_masked() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("s.log");
        let tail = Tail::default();
        let mask: Mask = Arc::new(|text| text.replace("hunter22", "<KEY>"));
        drain(
            &b"key hunter22\nlast\xff line"[..],
            tail.clone(),
            log.clone(),
            (mask, Arc::new(str::len)),
        )
        .await;
        assert_eq!(
            tail.text(2).as_deref(),
            Some("key <KEY>\nlast\u{fffd} line")
        );
        let written = std::fs::read_to_string(&log).unwrap();
        assert_eq!(written, "key <KEY>\nlast\u{fffd} line\n");
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_opened_stops_nothing() {
        let tail = Tail::default();
        drain(
            &b"one\n"[..],
            tail.clone(),
            PathBuf::from("/proc/none/x.log"),
            plain(),
        )
        .await;
        assert_eq!(tail.last().as_deref(), Some("one"));
    }
}
