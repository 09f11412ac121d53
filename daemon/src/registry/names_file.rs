//! Keeps the names of tools in the state folder.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::names::Names;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 128 * 1024 * 1024;

/// The file, and what a person should know about it.
#[derive(Debug)]
pub(super) struct NamesFile {
    path: PathBuf,
    /// Where nothing can be kept, nothing is written either.
    writable: bool,
    /// When names were last to be written and could not be.
    failed: Option<Instant>,
    pub(super) notes: Vec<String>,
}

impl NamesFile {
    /// Reads the kept names. A file that is broken is set aside, and names are not trusted from then on.
    pub(super) fn open(path: PathBuf) -> (Self, Names) {
        let mut file = Self {
            path,
            writable: true,
            failed: None,
            notes: Vec::new(),
        };
        let text = match read(&file.path) {
            Ok(Some(text)) => text,
            Ok(None) => return (file, Names::default()),
            Err(error) => return file.set_aside(&error.to_string()),
        };
        match Names::parse(&text) {
            Ok(parsed) => {
                if parsed.ignored > 0 {
                    file.notes.push(format!(
                        "{} kept names of tools in {} do not count: the rule could not have given them",
                        parsed.ignored,
                        file.path.display()
                    ));
                }
                if !parsed.names.is_trusted() {
                    file.notes.push(untrusted_note());
                }
                (file, parsed.names)
            }
            Err(error) => file.set_aside(&error.to_string()),
        }
    }

    /// Writes the names down, whole or not at all.
    pub(super) fn save(&mut self, names: &Names) {
        if !self.writable {
            return;
        }
        let about = format!("names of tools cannot be kept in {}", self.path.display());
        match write(&self.path, &names.to_text()) {
            Ok(()) => {
                self.failed = None;
                self.notes.retain(|note| !note.starts_with(&about));
            }
            Err(error) => {
                self.failed = Some(Instant::now());
                self.note(format!("{about}: {error}"));
            }
        }
    }

    /// Writes what could not be written before, where that is due: a name that is not kept could move to another tool.
    pub(super) fn save_again(&mut self, names: &Names, pause: Duration) {
        if self.failed.is_some_and(|failed| failed.elapsed() >= pause) {
            self.save(names);
        }
    }

    /// Forgets all notes, for a fresh start.
    pub(super) fn reset(&mut self) {
        self.notes.clear();
        self.writable = true;
    }

    fn set_aside(mut self, cause: &str) -> (Self, Names) {
        let names = Names::untrusted();
        let aside = self.path.with_extension("broken");
        match std::fs::rename(&self.path, &aside) {
            Ok(()) => {
                self.notes.push(format!(
                    "the kept names of tools were broken ({cause}) and are set aside as {}",
                    aside.display()
                ));
                self.save(&names);
            }
            Err(error) => {
                self.writable = false;
                self.notes.push(format!(
                    "the kept names of tools in {} cannot be read ({cause}) nor moved ({error})",
                    self.path.display()
                ));
            }
        }
        self.notes.push(untrusted_note());
        (self, names)
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            tracing::warn!(%note, "names of tools");
            self.notes.push(note);
        }
    }
}

fn untrusted_note() -> String {
    "each tool whose name collides with another's has a suffix until `ptcctl names reset`"
        .to_owned()
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(no_follow_nor_wait())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    Ok(Some(text))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(no_follow_nor_wait())
        .open(&fresh)?;
    file.write_all(text.as_bytes())?;
    // An empty file after a power cut would cost every name its trust.
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

/// A link is not followed, and a pipe in the file's place is not waited for.
fn no_follow_nor_wait() -> i32 {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    i32::try_from(flags.bits()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn names_are_kept_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        let (mut file, mut names) = NamesFile::open(path.clone());
        assert_eq!(names, Names::default());
        names.assign([("s", "a-b")]);
        file.save(&names);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let (file, again) = NamesFile::open(path);
        assert_eq!(again, names);
        assert!(file.notes.is_empty());
    }

    #[test]
    fn a_broken_file_is_set_aside_and_names_are_not_trusted_for_ever_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        std::fs::write(&path, "garbage\n").unwrap();
        let (file, names) = NamesFile::open(path.clone());
        assert!(!names.is_trusted());
        assert!(file.notes[0].contains("set aside"), "{:?}", file.notes);
        let aside = std::fs::read_to_string(folder.path().join("names.broken")).unwrap();
        assert_eq!(aside, "garbage\n");
        let (file, names) = NamesFile::open(path);
        assert!(!names.is_trusted());
        assert!(
            file.notes[0].contains("ptcctl names reset"),
            "{:?}",
            file.notes
        );
    }

    #[test]
    fn a_pipe_in_the_files_place_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let (file, names) = NamesFile::open(path);
        assert!(!names.is_trusted());
        assert!(
            file.notes[0].contains("no regular file"),
            "{:?}",
            file.notes
        );
    }

    #[test]
    fn what_could_not_be_written_is_written_as_soon_as_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/names");
        let (mut file, mut names) = NamesFile::open(path.clone());
        names.assign([("s", "a.b")]);
        file.save(&names);
        assert_eq!(file.notes.len(), 1);
        file.save_again(&names, Duration::from_mins(1));
        assert!(!path.exists());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        file.save_again(&names, Duration::ZERO);
        assert_eq!(file.notes, Vec::<String>::new());
        let (_, kept) = NamesFile::open(path);
        assert_eq!(kept.callable("s", "a.b"), Some("mcp__s__a_b"));
    }

    #[test]
    fn what_cannot_be_written_is_noted_once_and_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, mut names) = NamesFile::open(folder.path().join("none/names"));
        names.assign([("s", "a")]);
        file.save(&names);
        file.save(&names);
        assert_eq!(file.notes.len(), 1, "{:?}", file.notes);
    }
}
