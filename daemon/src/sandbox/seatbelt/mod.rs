//! The tier `seatbelt`: what an interpreter of macOS needs, and the words `sandbox-exec` is called with.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The profile as it stands in `sandbox-profiles/`.
const PROFILE: &str = include_str!("../../../../sandbox-profiles/python.sb");
/// The one program that applies a profile, whatever PATH says.
pub(super) const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";
/// What ends a line of the profile that stands for several.
const EACH: &str = ";each";
/// Paths of one kind; an interpreter that needs more is not understood.
const MOST: usize = 128;

/// Folders of the system, which the profile names itself.
const SYSTEM: [&str; 2] = ["/usr/lib", "/System"];
/// What is installed beside a library, and parts of it that no program needs.
const HIDDEN: [&str; 3] = ["site-packages", "test", "ensurepip"];

/// What a look at an interpreter found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its real file.
    pub(super) python: PathBuf,
    /// Its library: folders, and an archive where there is one.
    pub(super) stdlib: Vec<PathBuf>,
    /// Files it has mapped, by the names it loaded them by.
    pub(super) mapped: Vec<PathBuf>,
}

/// The parameters of the profile for one interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    python: PathBuf,
    app: PathBuf,
    read: Vec<PathBuf>,
    hide: Vec<PathBuf>,
    way: Vec<PathBuf>,
}

/// Why an interpreter cannot be confined here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LayoutError {
    /// A path that no parameter may hold.
    #[error(
        "{} is no path a profile can hold (absolute and resolved, without quotes, backslashes and control characters)",
        path.display()
    )]
    Path {
        /// Which.
        path: PathBuf,
    },
    /// No library that is there.
    #[error("the interpreter names no library that is there")]
    NoLibrary,
    /// A path that leads nowhere.
    #[error("{} cannot be resolved", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// More paths than one interpreter can need.
    #[error("the interpreter needs {count} paths, {MOST} at most")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl Layout {
    /// Works out what an interpreter needs; `resolve` gives the real path of one that exists.
    pub(super) fn of(
        found: &Found,
        resolve: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Result<Self, LayoutError> {
        let existing = |path: &Path| {
            resolve(path).ok_or_else(|| LayoutError::Missing {
                path: path.to_owned(),
            })
        };
        let python = existing(&found.python)?;
        let mut read = BTreeSet::new();
        let mut way = BTreeSet::new();
        let app = match framework(&python) {
            Some(version) => {
                let app = version.join("Resources/Python.app/Contents/MacOS/Python");
                // The library itself, which has no ending, and what describes the application.
                for beside in ["Python", "Resources"] {
                    read.extend(resolve(&version.join(beside)));
                }
                resolve(&app).unwrap_or_else(|| python.clone())
            }
            None => python.clone(),
        };
        for path in &found.stdlib {
            // A path entry that is not there need not be read.
            if let Some(real) = resolve(path) {
                way.extend(ancestors(path));
                read.insert(real);
            }
        }
        for path in &found.mapped {
            if SYSTEM.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            // The loader goes by the name it was given, over links that it has to see.
            way.extend(ancestors(path));
            way.insert(path.clone());
            read.insert(existing(path)?);
        }
        let inner: Vec<PathBuf> = read.iter().cloned().collect();
        read.retain(|path| {
            let above = |folder: &PathBuf| folder != path && path.starts_with(folder);
            *path != python && *path != app && !inner.iter().any(above)
        });
        let library = found.stdlib.iter().filter_map(|path| resolve(path));
        // Whether they are there or not: a denial of nothing in particular would be one of everything.
        let hide: BTreeSet<PathBuf> = library
            .flat_map(|folder| HIDDEN.map(|name| folder.join(name)))
            .collect();
        if hide.is_empty() {
            return Err(LayoutError::NoLibrary);
        }
        for path in read.iter().chain([&python, &app]) {
            way.extend(ancestors(path));
        }
        let layout = Self {
            python,
            app,
            read: read.into_iter().collect(),
            hide: hide.into_iter().collect(),
            way: way.into_iter().collect(),
        };
        layout.check()?;
        Ok(layout)
    }

    fn check(&self) -> Result<(), LayoutError> {
        let all = || {
            let lists = [&self.read, &self.hide, &self.way];
            [&self.python, &self.app]
                .into_iter()
                .chain(lists.into_iter().flatten())
        };
        let count = all().count();
        if count > MOST {
            return Err(LayoutError::TooMany { count });
        }
        all().try_for_each(|path| check_path(path))
    }

    /// The profile with as many lines as this layout has paths.
    pub(super) fn profile(&self, scratch: &Path) -> String {
        let mut text = String::new();
        for line in PROFILE.lines() {
            let Some(pattern) = line.trim_end().strip_suffix(EACH) else {
                text.push_str(line);
                text.push('\n');
                continue;
            };
            for (kind, paths) in self.lists(scratch) {
                let one = format!("\"{kind}\"");
                for number in 0..paths.len() {
                    if pattern.contains(&one) {
                        let numbered = format!("\"{kind}_{number}\"");
                        text.push_str(pattern.replace(&one, &numbered).trim_end());
                        text.push('\n');
                    }
                }
            }
        }
        text
    }

    fn lists(&self, scratch: &Path) -> [(&'static str, Vec<PathBuf>); 3] {
        let mut way: BTreeSet<PathBuf> = self.way.iter().cloned().collect();
        way.extend(ancestors(scratch));
        [
            ("READ", self.read.clone()),
            ("HIDE", self.hide.clone()),
            ("WAY", way.into_iter().collect()),
        ]
    }

    /// The whole command line: `program` is `sandbox-exec`, `profile` the file that holds [`profile`](Self::profile).
    pub(super) fn command_line(
        &self,
        program: &Path,
        profile: &Path,
        scratch: &Path,
        boot: &str,
    ) -> Result<Vec<OsString>, LayoutError> {
        check_path(scratch)?;
        check_path(profile)?;
        let mut words: Vec<OsString> = vec![program.into(), "-f".into(), profile.into()];
        for (name, path) in self.parameters(scratch) {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(path);
            words.extend([OsString::from("-D"), word]);
        }
        words.push(self.python.clone().into());
        words.extend(plain_arguments(boot));
        Ok(words)
    }

    /// Every parameter of the profile with its value.
    fn parameters(&self, scratch: &Path) -> Vec<(String, PathBuf)> {
        let mut all = vec![
            ("PYTHON".to_owned(), self.python.clone()),
            ("PYTHON_APP".to_owned(), self.app.clone()),
            ("SCRATCH".to_owned(), scratch.to_owned()),
        ];
        for (kind, paths) in self.lists(scratch) {
            let numbered = paths.into_iter().enumerate();
            all.extend(numbered.map(|(number, path)| (format!("{kind}_{number}"), path)));
        }
        all
    }
}

/// What an interpreter is called with, confined or not.
pub(super) fn plain_arguments(boot: &str) -> impl Iterator<Item = OsString> {
    let words = ["-I", "-S", "-B", "-X", "utf8", "-c", boot];
    words.map(OsString::from).into_iter()
}

/// The folder of the version, where an interpreter is part of a framework.
fn framework(python: &Path) -> Option<PathBuf> {
    let version = python.parent()?.parent()?;
    let versions = version.parent()?;
    let is_one = versions.file_name()? == "Versions"
        && versions.parent()?.file_name()? == "Python.framework";
    is_one.then(|| version.to_owned())
}

/// The folders on the way to a path, but for the root.
fn ancestors(path: &Path) -> impl Iterator<Item = PathBuf> {
    path.ancestors()
        .skip(1)
        .filter(|folder| folder.parent().is_some())
        .map(Path::to_owned)
}

/// Refuses what would mean something else inside a profile, or could be another path when it is looked up.
pub(super) fn check_path(path: &Path) -> Result<(), LayoutError> {
    let fits = path.to_str().is_some_and(|text| {
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let forbidden = |c: char| c.is_control() || matches!(c, '"' | '\'' | '\\');
        text.starts_with('/')
            && plain
            && text.len() > 1
            && !text.ends_with('/')
            && !text.contains("//")
            && !text.contains("/./")
            && !text.ends_with("/.")
            && !text.contains(forbidden)
    });
    if fits {
        Ok(())
    } else {
        Err(LayoutError::Path {
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
