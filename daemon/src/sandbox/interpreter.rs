//! Finds the Python that programs run in, and what that Python needs to see.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

#[cfg(target_os = "linux")]
use super::landlock::Reach;
use super::refusal;
#[cfg(target_os = "linux")]
use super::root::RootPlan;
#[cfg(any(not(target_os = "linux"), test))]
use super::seatbelt::Found;
#[cfg(target_os = "linux")]
use super::view;

/// The user programs run as when ptcd is root.
pub(super) const NOBODY: u32 = if cfg!(target_os = "macos") {
    u32::MAX - 1
} else {
    65534
};

/// How long asking one candidate who it is may take; shims start several programs.
const WHO: Duration = Duration::from_secs(10);
/// How long a look at everything one interpreter needs may take.
const LOOK: Duration = Duration::from_secs(30);
/// Candidates asked at the same time.
const AT_ONCE: usize = 4;
/// Candidates asked at all.
const MOST: usize = 32;
/// Longest answer read.
const LONGEST: u64 = 1 << 20;
/// The oldest Python that will do.
const OLDEST: (u32, u32) = (3, 11);

/// What the loader knows of libraries.
#[cfg(target_os = "linux")]
const LOADER_CACHE: &str = "/etc/ld.so.cache";

const WHO_TEXT: &str = "import sys,os,json;json.dump({'implementation':sys.implementation.name,\
    'version':list(sys.version_info[:3]),'final':sys.version_info[3]=='final',\
    'file':os.path.realpath(getattr(sys,'_base_executable',None) or sys.executable)},sys.stdout)";
const LOOK_TEXT: &str = include_str!("probe.py");

/// Parts of a standard library that no program needs, and what is installed beside it.
#[cfg(target_os = "linux")]
const LEFT_OUT: [&str; 9] = [
    "site-packages",
    "dist-packages",
    "test",
    "idlelib",
    "ensurepip",
    "venv",
    "lib2to3",
    "turtledemo",
    "tkinter",
];

/// An interpreter and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interpreter {
    /// The real file.
    pub(super) python: PathBuf,
    /// Its version, such as `3.11.2`.
    pub(super) version: String,
    /// What it may read and run.
    #[cfg(target_os = "linux")]
    pub(super) reach: Reach,
    /// What it needs to see where it sees nothing else.
    #[cfg(target_os = "linux")]
    pub(super) root: RootPlan,
    /// What the look at it found.
    #[cfg(any(not(target_os = "linux"), test))]
    pub(super) found: Found,
    /// What the operator should know about it.
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Who {
    implementation: String,
    version: (u32, u32, u32),
    r#final: bool,
    file: PathBuf,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Look {
    version: String,
    stdlib: Vec<PathBuf>,
    mapped: Vec<PathBuf>,
    #[cfg(target_os = "linux")]
    time_zones: Vec<PathBuf>,
    #[cfg(target_os = "linux")]
    loader: Option<PathBuf>,
    compiled: bool,
}

/// A file as it was when it was looked at.
type Identity = (PathBuf, u64, u64, i64, i64);

static SEEN: Mutex<Option<HashMap<Identity, Interpreter>>> = Mutex::new(None);

/// The named interpreter, or the newest that will do on `search_path`; else the text of a refusal.
pub(super) async fn find(named: Option<&Path>, search_path: &OsStr) -> Result<Interpreter, String> {
    let Some(named) = named else {
        return newest(search_path).await;
    };
    let file = if named.components().count() == 1 {
        std::env::split_paths(search_path)
            .map(|folder| folder.join(named))
            .find(|path| runnable(path))
            .ok_or_else(|| refusal::named_missing(named))?
    } else {
        named.to_owned()
    };
    let who = ask(&file).await.map_err(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied && worker_user().is_some() {
            refusal::named_unreachable(named, NOBODY)
        } else {
            refusal::named_unusable(named, &error)
        }
    })?;
    if !will_do(&who) {
        return Err(refusal::named_too_old(
            named,
            &who.implementation,
            who.version,
        ));
    }
    look(&who.file).await.map_err(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied && worker_user().is_some() {
            refusal::named_unreachable(named, NOBODY)
        } else {
            refusal::named_unusable(named, &error)
        }
    })
}

async fn newest(search_path: &OsStr) -> Result<Interpreter, String> {
    let mut found: Vec<Who> = Vec::new();
    let mut unreachable = BTreeSet::new();
    let mut failed = Vec::new();
    for group in candidates(search_path).chunks(AT_ONCE) {
        let mut asking = tokio::task::JoinSet::new();
        for path in group.iter().cloned() {
            asking.spawn(async move {
                let answer = ask(&path).await;
                (path, answer)
            });
        }
        while let Some(Ok((path, answer))) = asking.join_next().await {
            match answer {
                Ok(who) if will_do(&who) => found.push(who),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    unreachable.insert(path);
                }
                Err(error) => failed.push(format!("{}: {error}", path.display())),
            }
        }
    }
    found.sort_by_key(|who| std::cmp::Reverse((who.r#final, who.version)));
    found.dedup();
    let mut notes = Vec::new();
    if !unreachable.is_empty() {
        notes.push(refusal::passed_over(&unreachable, worker_user()));
    }
    for who in found {
        match look(&who.file).await {
            Ok(mut interpreter) => {
                interpreter.notes.splice(0..0, notes);
                return Ok(interpreter);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                notes.push(refusal::passed_over(
                    &BTreeSet::from([who.file]),
                    worker_user(),
                ));
            }
            Err(error) => failed.push(format!("{}: {error}", who.file.display())),
        }
    }
    Err(refusal::no_python(&notes, &failed))
}

fn will_do(who: &Who) -> bool {
    who.implementation == "cpython" && (who.version.0, who.version.1) >= OLDEST
}

/// Files on the search path that by their name may be a Python of the right age, each file of a folder once.
fn candidates(search_path: &OsStr) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for folder in std::env::split_paths(search_path).filter(|folder| folder.is_absolute()) {
        let Ok(real) = folder.canonicalize() else {
            continue;
        };
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name.to_str().is_some_and(is_python_name))
            .collect();
        names.sort();
        for path in names.iter().map(|name| folder.join(name)) {
            // A link to the same interpreter in another folder may be the one that can be reached.
            let identity =
                std::fs::metadata(&path).map(|file| (real.clone(), file.dev(), file.ino()));
            if let Ok(identity) = identity
                && runnable(&path)
                && found.len() < MOST
                && seen.insert(identity)
            {
                found.push(path);
            }
        }
    }
    found
}

fn is_python_name(name: &str) -> bool {
    match name.strip_prefix("python") {
        Some("" | "3") => true,
        Some(rest) => rest
            .strip_prefix("3.")
            .and_then(|minor| minor.parse::<u32>().ok())
            .is_some_and(|minor| minor >= OLDEST.1),
        None => false,
    }
}

fn runnable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The user programs run as, when it is not ptcd's own.
pub(super) fn worker_user() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

async fn ask(path: &Path) -> io::Result<Who> {
    let answer = run(path, WHO_TEXT, WHO).await?;
    serde_json::from_slice(&answer).map_err(io::Error::other)
}

async fn look(file: &Path) -> io::Result<Interpreter> {
    let identity = identity(file)?;
    if let Some(seen) = seen(|seen| seen.get(&identity).cloned()) {
        return Ok(seen);
    }
    let answer = run(file, LOOK_TEXT, LOOK).await?;
    let look: Look = serde_json::from_slice(&answer).map_err(io::Error::other)?;
    let mut notes = Vec::new();
    if !look.compiled {
        notes.push(refusal::not_compiled(file));
    }
    let interpreter = Interpreter {
        python: file.to_owned(),
        #[cfg(target_os = "linux")]
        reach: reach(file, &look)?,
        #[cfg(target_os = "linux")]
        root: root(file, &look),
        #[cfg(any(not(target_os = "linux"), test))]
        found: Found {
            python: file.to_owned(),
            stdlib: look.stdlib.clone(),
            mapped: look.mapped.clone(),
        },
        version: look.version,
        notes,
    };
    seen(|seen| seen.insert(identity, interpreter.clone()));
    Ok(interpreter)
}

fn identity(file: &Path) -> io::Result<Identity> {
    let found = std::fs::metadata(file)?;
    Ok((
        file.to_owned(),
        found.dev(),
        found.ino(),
        found.mtime(),
        found.mtime_nsec(),
    ))
}

fn seen<T>(with: impl FnOnce(&mut HashMap<Identity, Interpreter>) -> T) -> T {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    with(seen.get_or_insert_with(HashMap::new))
}

/// What an interpreter may see: its library without what is installed beside it, and the files it has mapped.
#[cfg(target_os = "linux")]
fn reach(python: &Path, look: &Look) -> io::Result<Reach> {
    let mut reach = Reach::default();
    for folder in &look.stdlib {
        if folder.is_dir() {
            // The import system lists folders; names of what is left out are all that shows of it.
            reach.list.push(folder.clone());
            reach.read.extend(library_entries(folder)?);
        } else {
            reach.read.push(folder.clone());
        }
    }
    reach.execute.push(python.to_owned());
    for file in &look.mapped {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with("ld-") || name.starts_with("ld.") || name.starts_with("ld64") {
            reach.execute.push(file.clone());
        } else if !look.stdlib.iter().any(|folder| file.starts_with(folder)) && file != python {
            reach.read.push(file.clone());
        }
    }
    reach.read.extend(look.time_zones.iter().cloned());
    // Where the loader looks up libraries outside the usual folders.
    reach.read.push(PathBuf::from(LOADER_CACHE));
    Ok(reach)
}

/// What an interpreter needs in a root that has nothing else: itself, its loader, library and mapped files.
#[cfg(target_os = "linux")]
fn root(python: &Path, look: &Look) -> RootPlan {
    let mut paths = vec![python.to_owned(), PathBuf::from(LOADER_CACHE)];
    paths.extend(look.loader.clone());
    for list in [&look.mapped, &look.stdlib, &look.time_zones] {
        paths.extend(list.iter().cloned());
    }
    let entries = look.stdlib.iter().flat_map(std::fs::read_dir).flatten();
    let hide = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        folder && is_left_out(name.to_str())
    });
    let mut hide: Vec<PathBuf> = hide.map(|entry| entry.path()).collect();
    hide.sort();
    view::plan(&paths, hide)
}

/// Whether no program needs an entry of the standard library.
#[cfg(target_os = "linux")]
fn is_left_out(name: Option<&str>) -> bool {
    name.is_none_or(|name| {
        LEFT_OUT.contains(&name) || name.starts_with("config-") || name.ends_with(".egg-info")
    })
}

#[cfg(target_os = "linux")]
fn library_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // A link may lead anywhere, such as into /etc.
        if !is_left_out(name.to_str()) && !entry.file_type()?.is_symlink() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Runs our own text in an interpreter that is not confined, as the user programs run as.
async fn run(python: &Path, text: &str, limit: Duration) -> io::Result<Vec<u8>> {
    let mut command = Command::new(python);
    command
        .args(["-I", "-S", "-B", "-X", "utf8", "-c", text])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if let Some(user) = worker_user() {
        command.uid(user).gid(user);
    }
    let mut child = command.spawn()?;
    let answer = async {
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(LONGEST).read_to_end(&mut output).await?;
        }
        let status = child.wait().await?;
        if status.success() {
            Ok(output)
        } else {
            Err(io::Error::other(format!("it ended with {status}")))
        }
    };
    tokio::time::timeout(limit, answer)
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_pythons_of_the_right_age_are_asked() {
        let names = [
            "python",
            "python3",
            "python3.11",
            "python3.14",
            "python3.10",
            "python2",
            "python3-config",
            "python3.11-config",
            "pythonw",
        ];
        let asked: Vec<&str> = names
            .into_iter()
            .filter(|name| is_python_name(name))
            .collect();
        assert_eq!(asked, ["python", "python3", "python3.11", "python3.14"]);
    }

    #[test]
    fn what_is_installed_beside_a_library_is_not_readable() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["os.py", "json", "site-packages", "config-3.11-x"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/etc", folder.path().join("link")).unwrap();
        let look = Look {
            version: "3.11.2".into(),
            stdlib: vec![folder.path().to_owned()],
            mapped: vec![
                "/lib/ld-linux.so.2".into(),
                "/lib/libz.so".into(),
                folder.path().join("x.so"),
            ],
            time_zones: vec!["/zones".into()],
            loader: None,
            compiled: true,
        };
        assert_eq!(
            reach(Path::new("/usr/bin/python3"), &look).unwrap(),
            Reach {
                list: vec![folder.path().to_owned()],
                read: vec![
                    folder.path().join("json"),
                    folder.path().join("os.py"),
                    "/lib/libz.so".into(),
                    "/zones".into(),
                    "/etc/ld.so.cache".into(),
                ],
                execute: vec!["/usr/bin/python3".into(), "/lib/ld-linux.so.2".into()],
            }
        );
    }

    #[tokio::test]
    async fn a_missing_interpreter_is_named_in_the_refusal() {
        let text = find(Some(Path::new("/nowhere/python3")), OsStr::new(""))
            .await
            .unwrap_err();
        assert!(text.contains("/nowhere/python3"), "{text}");
        let text = find(None, OsStr::new("/nowhere")).await.unwrap_err();
        assert!(text.contains("3.11"), "{text}");
    }
}
