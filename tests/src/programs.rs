//! Finds the programs under test, and refuses one that is older than its sources.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Names the folder of the programs where the sources are not at hand, as `tests/as-user` does.
const PROGRAMS_VARIABLE: &str = "PTC_TEST_PROGRAMS";
/// Names the folder that stands for this package's own, for the files tests read.
const DATA_VARIABLE: &str = "PTC_TEST_DATA";

/// The path of a program, by its file name.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(PROGRAMS_VARIABLE) {
        let path = Path::new(&folder).join(name);
        assert!(path.is_file(), "{} is missing", path.display());
        return path;
    }
    let own = std::env::current_exe().expect("the test's own path");
    let folder = own
        .parent()
        .and_then(Path::parent)
        .expect("a folder above deps/");
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo test --workspace`, which builds it",
        path.display()
    );
    refuse_stale(&path, name);
    path
}

/// A file or folder of this package that a test reads.
pub fn data(relative: &str) -> PathBuf {
    std::env::var_os(DATA_VARIABLE)
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
        .join(relative)
}

/// The root of the source tree; `None` where only the built programs are at hand.
pub fn source_root() -> Option<PathBuf> {
    if std::env::var_os(PROGRAMS_VARIABLE).is_some() {
        return None;
    }
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
}

/// The folders a program is built from.
fn sources(name: &str) -> &'static [&'static str] {
    match name {
        "ptcd" => &[
            "daemon/src",
            "daemon/python/ptc_child",
            "protocol/src",
            "sandbox-profiles",
        ],
        "mock-mcp" => &["tests/src/mock", "tests/src/bin"],
        _ => &["shim/src", "protocol/src"],
    }
}

#[track_caller]
fn refuse_stale(path: &Path, name: &str) {
    let root = source_root().expect("a source tree");
    let built = modified(path).expect("the program's time");
    for folder in sources(name) {
        if let Some((source, time)) = newest(&root.join(folder)) {
            assert!(
                time <= built,
                "{} is older than {}: run `cargo test --workspace`, which builds it",
                path.display(),
                source.display()
            );
        }
    }
}

/// The file below `folder` that was changed last, among those a program is built from.
fn newest(folder: &Path) -> Option<(PathBuf, SystemTime)> {
    let mut best = None;
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let found = if path.is_dir() {
            newest(&path)
        } else {
            is_source(&path)
                .then(|| modified(&path))
                .flatten()
                .map(|time| (path, time))
        };
        if let Some(found) = found
            && best
                .as_ref()
                .is_none_or(|(_, time): &(PathBuf, _)| *time < found.1)
        {
            best = Some(found);
        }
    }
    best
}

fn is_source(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end == "rs" || end == "py" || end == "json" || end == "sb")
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_source_below_a_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old.rs");
        let inner = folder.path().join("inner");
        let new = inner.join("new.py");
        std::fs::create_dir(&inner).unwrap();
        for path in [&old, &new, &inner.join("newer.txt")] {
            std::fs::write(path, "").unwrap();
        }
        let age = |path: &Path, seconds| {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            std::fs::File::open(path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        age(&old, 10);
        age(&new, 20);
        assert_eq!(newest(folder.path()).unwrap().0, new);
    }
}
