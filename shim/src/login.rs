//! Asks the user database and the login shell what a session of this user has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a login shell may take.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The search path where no login shell says another.
pub(crate) const FIXED_PATH: &str = if cfg!(target_os = "macos") {
    "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
} else {
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
};
/// Most that is read of a login shell's output, in bytes.
const MAX_OUTPUT_BYTES: usize = 4 * 1024 * 1024;

/// Why the login shell did not say what it has.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The user database names none.
    #[error("the user database names no login shell")]
    NoShell,
    /// It could not be run.
    #[error("cannot run the login shell {shell}: {source}")]
    Spawn {
        /// The shell.
        shell: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It took too long, and was killed with all it had started.
    #[error("the login shell {shell} did not answer within {seconds} s and was killed")]
    Slow {
        /// The shell.
        shell: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// It ended, or said too much, without the answer.
    #[error("the login shell {shell} did not say what it has ({status})")]
    NoAnswer {
        /// The shell.
        shell: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
}

/// What the user database says of this process's user; nothing where it does not know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    pub(crate) name: Option<String>,
    pub(crate) home: Option<String>,
    pub(crate) shell: Option<PathBuf>,
}

impl User {
    /// Asks the user database.
    pub(crate) fn of_process() -> Self {
        let found = nix::unistd::User::from_uid(nix::unistd::geteuid());
        let Some(user) = found.ok().flatten() else {
            return Self::default();
        };
        let home = user.dir.into_os_string().into_string().ok();
        Self {
            name: Some(user.name).filter(|name| !name.is_empty()),
            home: home.filter(|home| home.starts_with('/')),
            shell: Some(user.shell).filter(|shell| shell.is_absolute()),
        }
    }

    /// `HOME`, `USER`, `LOGNAME` and `SHELL`, as far as they are known.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let shell = self.shell.as_ref().and_then(|shell| shell.to_str());
        [
            ("HOME", self.home.as_deref()),
            ("USER", self.name.as_deref()),
            ("LOGNAME", self.name.as_deref()),
            ("SHELL", shell),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect()
    }
}

/// The variables that a login shell has which was started with these alone. It gets no input
/// and no terminal; when it has answered or `limit` is over, its process group is killed.
pub(crate) async fn variables(
    shell: &Path,
    given: &BTreeMap<String, String>,
    limit: Duration,
) -> Result<BTreeMap<String, String>, LoginError> {
    let mut random = [0_u8; 12];
    let spawned = getrandom::fill(&mut random)
        .map_err(std::io::Error::other)
        .and_then(|()| start(shell, given, &mark(random)));
    let mut child = spawned.map_err(|source| LoginError::Spawn {
        shell: shell.to_owned(),
        source,
    })?;
    let mark = mark(random);
    let answer = timeout(limit, answer(&mut child, &mark)).await;
    // Before the shell is reaped, so that its number is still its own.
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
        // What is not there any more needs no killing.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let status = child.wait().await.unwrap_or_default();
    match answer {
        Ok(Some(variables)) => Ok(variables),
        Ok(None) => Err(LoginError::NoAnswer {
            shell: shell.to_owned(),
            status,
        }),
        Err(_) => Err(LoginError::Slow {
            shell: shell.to_owned(),
            seconds: limit.as_secs(),
        }),
    }
}

/// What stands before and after the variables, since start files print what they like.
fn mark(random: [u8; 12]) -> String {
    format!("ptc-{}", ptc_protocol::hex(&random))
}

fn start(shell: &Path, given: &BTreeMap<String, String>, mark: &str) -> std::io::Result<Child> {
    let name = shell.file_name().unwrap_or_default().to_string_lossy();
    Command::new(shell)
        // Every shell takes this for a login, whatever its options are called.
        .arg0(format!("-{name}"))
        .arg("-c")
        .arg(format!("echo {mark}; /usr/bin/env -0; echo {mark}"))
        .env_clear()
        .envs(given)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

/// What stands between the marks, once both are there.
async fn answer(child: &mut Child, mark: &str) -> Option<BTreeMap<String, String>> {
    let mut stdout = child.stdout.take()?;
    let mut output = Vec::new();
    let mut chunk = [0_u8; 8192];
    while output.len() < MAX_OUTPUT_BYTES {
        let read = stdout.read(&mut chunk).await.ok()?;
        if read == 0 {
            return None;
        }
        output.extend_from_slice(&chunk[..read]);
        if let Some(variables) = between(&output, mark) {
            return Some(variables);
        }
    }
    None
}

fn between(output: &[u8], mark: &str) -> Option<BTreeMap<String, String>> {
    let find = |from: usize, what: &str| {
        let rest = output.get(from..)?;
        let at = rest
            .windows(what.len())
            .position(|w| w == what.as_bytes())?;
        Some(from + at)
    };
    let opening = format!("{mark}\n");
    let begin = find(0, &opening)? + opening.len();
    let end = find(begin, mark)?;
    let entries = output.get(begin..end)?.split(|byte| *byte == 0);
    let variables = entries.filter_map(|entry| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(variables.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(home: &Path) -> BTreeMap<String, String> {
        [("HOME", home.to_str().unwrap()), ("PATH", FIXED_PATH)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    async fn ask(profile: &str, limit: Duration) -> Result<BTreeMap<String, String>, LoginError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".profile"), profile).unwrap();
        variables(Path::new("/bin/sh"), &given(home.path()), limit).await
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_the_start_files_export_is_given_and_what_they_print_is_not() {
        // Not with what PATH was before: the system's own start files may have set it anew.
        let profile = "echo A=junk; printf 'no newline'\nexport PATH=/mine:/theirs\n\
                       export TWO='a\nB=b'\nHIDDEN=x\n";
        let found = ask(profile, Duration::from_mins(1)).await.unwrap();
        assert_eq!(found["PATH"], "/mine:/theirs");
        assert_eq!(found["TWO"], "a\nB=b");
        for name in ["A", "B", "HIDDEN", "CARGO_MANIFEST_DIR"] {
            assert!(!found.contains_key(name), "{name}: {found:?}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_shell_that_ends_or_is_missing_is_no_answer() {
        let error = ask("exit 7", Duration::from_mins(1)).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 7"), "{error}");
        let none = variables(Path::new("/nowhere/sh"), &BTreeMap::new(), LOGIN_TIMEOUT).await;
        assert!(matches!(none, Err(LoginError::Spawn { .. })), "{none:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_shell_that_hangs_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let profile = format!("sleep 600 & echo $! > '{}'; wait", pid.display());
        let error = ask(&profile, Duration::from_secs(2)).await.unwrap_err();
        assert!(
            matches!(error, LoginError::Slow { seconds: 2, .. }),
            "{error}"
        );
        let Ok(pid) = std::fs::read_to_string(&pid) else {
            // A machine so busy that the shell did not get that far has nothing to leave behind.
            return;
        };
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
            assert!(std::time::Instant::now() < until, "it still runs");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it has ended and only waits to be reaped by whoever has taken it over.
    fn is_zombie(pid: rustix::process::Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    }

    #[test]
    fn the_answer_is_what_stands_between_the_marks() {
        let all = "x\nptc-1\nA=1\0B=a=b\0no\0ptc-1\n";
        let want = BTreeMap::from([("A".into(), "1".into()), ("B".into(), "a=b".into())]);
        assert_eq!(between(all.as_bytes(), "ptc-1"), Some(want));
        assert_eq!(between(b"ptc-1\nA=1\0", "ptc-1"), None);
    }
}
