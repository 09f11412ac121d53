//! Reads a log's last lines and follows it through rotation and truncation.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How much of a log's end is looked at for its last lines, in bytes.
const MAX_TAIL_BYTES: u64 = 8 * 1024 * 1024;
/// How much is read at once of what was added, in bytes.
const MAX_CHUNK_BYTES: u64 = 1024 * 1024;
/// Longest line that is waited for, in bytes; longer ones are shown in pieces.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The last lines of a file, which is left at its end; a last line without its newline counts.
pub(super) fn tail(file: &mut File, lines: usize) -> io::Result<Vec<String>> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(MAX_TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(length - from).read_to_end(&mut bytes)?;
    if from > 0 {
        // The first line is most likely cut.
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        bytes.drain(..=end.min(bytes.len().saturating_sub(1)));
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let skipped = all.len().saturating_sub(lines);
    Ok(all.into_iter().skip(skipped).map(str::to_owned).collect())
}

/// A log that is followed by its path.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    file: File,
    /// What was read of a line that has no end yet.
    begun: Vec<u8>,
}

impl Follower {
    /// Opens a log.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: open(path)?,
            begun: Vec::new(),
        })
    }

    /// The file as it was opened.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// The whole lines that were added since the last look, those of a file that took its place too.
    pub(super) fn added(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        if self.file.metadata()?.len() < self.file.stream_position()? {
            // It was emptied: what comes now stands at its begin.
            self.finish(&mut lines);
            self.file.seek(SeekFrom::Start(0))?;
        }
        self.read(&mut lines)?;
        if let Some(next) = self.successor() {
            // What the old one was given before it was moved aside comes first.
            self.read(&mut lines)?;
            self.finish(&mut lines);
            self.file = next;
            self.read(&mut lines)?;
        }
        Ok(lines)
    }

    /// Another file that stands at the path now. There may be none for a moment.
    fn successor(&self) -> Option<File> {
        let next = open(&self.path).ok()?;
        let identity = |file: &File| file.metadata().map(|about| (about.dev(), about.ino())).ok();
        (identity(&next)? != identity(&self.file)?).then_some(next)
    }

    fn read(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        loop {
            let mut chunk = Vec::new();
            let read = (&mut self.file)
                .take(MAX_CHUNK_BYTES)
                .read_to_end(&mut chunk)?;
            for byte in chunk {
                if byte == b'\n' || self.begun.len() >= MAX_LINE_BYTES {
                    self.finish_line(lines);
                }
                if byte != b'\n' {
                    self.begun.push(byte);
                }
            }
            // A writer faster than this reader is caught up with at the next look.
            if read == 0 || lines.len() > 100_000 {
                return Ok(());
            }
        }
    }

    fn finish_line(&mut self, lines: &mut Vec<String>) {
        let line = std::mem::take(&mut self.begun);
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }

    /// A line that will not be ended any more.
    fn finish(&mut self, lines: &mut Vec<String>) {
        if !self.begun.is_empty() {
            self.finish_line(lines);
        }
    }
}

/// Never waits, as for a writer of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn log(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.log");
        append(&path, text);
        (folder, path)
    }

    #[test]
    fn the_last_lines_are_whole_and_as_many_as_asked_for() {
        let (_folder, path) = log("one\ntwo\nthree\nfour");
        let last = |lines| tail(&mut File::open(&path).unwrap(), lines).unwrap();
        assert_eq!(last(2), ["three", "four"]);
        assert_eq!(last(9), ["one", "two", "three", "four"]);
        assert_eq!(last(0), [""; 0]);
    }

    #[test]
    fn of_a_huge_log_only_the_end_is_read() {
        let line = "x".repeat(1023);
        let (_folder, path) = log(&format!("{line}\n").repeat(9 * 1024));
        let lines = tail(&mut File::open(&path).unwrap(), usize::MAX).unwrap();
        assert_eq!(lines.len(), 8 * 1024 - 1);
        assert!(lines.iter().all(|found| *found == line));
    }

    #[test]
    fn what_is_added_comes_in_whole_lines() {
        let (_folder, path) = log("old\n");
        let mut follower = Follower::open(&path).unwrap();
        assert_eq!(tail(follower.file(), 1).unwrap(), ["old"]);
        append(&path, "a\nb");
        assert_eq!(follower.added().unwrap(), ["a"]);
        append(&path, "c\n");
        assert_eq!(follower.added().unwrap(), ["bc"]);
        assert_eq!(follower.added().unwrap(), [""; 0]);
    }

    #[test]
    fn a_rotation_loses_no_line_and_a_truncation_begins_anew() {
        let (folder, path) = log("");
        let mut follower = Follower::open(&path).unwrap();
        append(&path, "before\n");
        std::fs::rename(&path, folder.path().join("s.log.1")).unwrap();
        append(&folder.path().join("s.log.1"), "late");
        assert_eq!(follower.added().unwrap(), ["before"]);
        append(&path, "after\n");
        assert_eq!(follower.added().unwrap(), ["late", "after"]);
        std::fs::write(&path, "x\n").unwrap();
        assert_eq!(follower.added().unwrap(), ["x"]);
        std::fs::write(&path, "").unwrap();
        assert_eq!(follower.added().unwrap(), [""; 0]);
        append(&path, "y\n");
        assert_eq!(follower.added().unwrap(), ["y"]);
    }
}
