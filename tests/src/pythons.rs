//! The Pythons of this machine, each where the uid of programs can reach it.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::machine::is_root;

/// Prints what a Python is, if it is a CPython that will do.
const PROBE: &str = "
import os, sys
if sys.implementation.name == 'cpython' and sys.version_info >= (3, 11):
    print(sys.version_info[1])
    print(os.path.realpath(sys._base_executable))
    print(sys.base_prefix)
";
/// Parts of an installation that no program here needs: they are most of its size.
const LEFT_OUT: [&str; 7] = [
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "ensurepip",
    "turtledemo",
    "__pycache__",
];

/// One installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// The minor version, 12 of 3.12.
    pub minor: u32,
    /// The real file.
    pub path: PathBuf,
    /// The folder above its `bin` and `lib`.
    prefix: PathBuf,
}

/// Every CPython 3.11 or later on PATH or in pyenv's folder, each real file once, as `.ci/run` finds them.
pub fn found() -> Vec<Python> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".pyenv")));
    let versions = pyenv.map(|root| root.join("versions"));
    for version in versions.iter().flat_map(std::fs::read_dir).flatten() {
        places.extend(version.map(|version| version.path().join("bin")));
    }
    let mut found: Vec<Python> = Vec::new();
    for place in places {
        let names = (11..=15).map(|minor| format!("python3.{minor}"));
        for name in names.chain(["python3".to_owned()]) {
            let Some(python) = probe(&place.join(name)) else {
                continue;
            };
            if !found.contains(&python) {
                found.push(python);
            }
        }
    }
    found.sort_by(|a, b| (a.minor, &a.path).cmp(&(b.minor, &b.path)));
    found
}

fn probe(path: &Path) -> Option<Python> {
    if !path.is_file() {
        return None;
    }
    let output = Command::new(path)
        .args(["-I", "-S", "-c", PROBE])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    Some(Python {
        minor: lines.next()?.parse().ok()?,
        path: lines.next()?.into(),
        prefix: lines.next()?.into(),
    })
}

impl Python {
    /// Whether programs can use it where it stands: as root they run as another
    /// uid, which a closed folder keeps out.
    fn is_reachable(&self) -> bool {
        !is_root()
            || self
                .path
                .ancestors()
                .skip(1)
                .all(|folder| folder.metadata().is_ok_and(|data| data.mode() & 0o001 != 0))
    }

    /// Its path, or that of a copy where programs can reach it; the copy goes with the folder.
    ///
    /// CPython finds its library by its own place, so a copied tree works.
    ///
    /// # Errors
    /// The copy could not be made, or does not start.
    pub fn within_reach(&self) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
        if self.is_reachable() {
            return Ok((self.path.clone(), None));
        }
        let folder = tempfile::Builder::new()
            .prefix("ptc-python-")
            .tempdir_in("/tmp")?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let name = format!("python3.{}", self.minor);
        for part in ["bin", "lib"] {
            std::fs::create_dir(folder.path().join(part))?;
        }
        for entry in std::fs::read_dir(self.prefix.join("lib"))?.flatten() {
            let file = entry.file_name();
            let text = file.to_string_lossy();
            if text == name.as_str() || text.starts_with("libpython") && text.contains(".so") {
                link(&entry.path(), &folder.path().join("lib").join(&file))?;
            }
        }
        let copy = folder.path().join("bin").join(&name);
        std::fs::write(&copy, self.relocated()?)?;
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
        match probe(&copy) {
            Some(python) if python.prefix == folder.path() => Ok((copy, Some(folder))),
            other => anyhow::bail!(
                "a copy of {} does not start: {other:?}",
                self.path.display()
            ),
        }
    }

    /// The executable, which looks for its shared library beside itself.
    fn relocated(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = std::fs::read(&self.path)?;
        let old = format!("{}/lib\0", self.prefix.display()).into_bytes();
        let new = b"$ORIGIN/../lib\0";
        // The texts of an executable end with a zero, so a shorter one fits in the place of a longer.
        if old.len() >= new.len()
            && let Some(at) = bytes.windows(old.len()).position(|part| part == old)
        {
            bytes.splice(at..at + new.len(), new.iter().copied());
        }
        Ok(bytes)
    }
}

/// Puts a file or a folder at another place, without copying its bytes where that can be.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return std::fs::hard_link(from, to).or_else(|_| std::fs::copy(from, to).map(drop));
    }
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)?.flatten() {
        let name = entry.file_name();
        let left_out = LEFT_OUT.iter().any(|part| name == OsStr::new(part))
            || name.to_string_lossy().starts_with("config-");
        if !left_out {
            link(&entry.path(), &to.join(&name))?;
        }
    }
    Ok(())
}
