//! Keeps the environment that is recorded for the daemon, and makes one where none was captured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ptc_protocol::environment::{
    MAX_ENVIRONMENT_BYTES, RecordedBy, RecordedEnvironment, may_be_recorded,
};
use ptc_protocol::paths::Places;
use ptc_protocol::status::SCHEMA;

use crate::connect::own_file;
use crate::login::{self, FIXED_PATH, LOGIN_TIMEOUT, LoginError, User};

/// What of the login shell is kept beside `PATH` and what was asked for, where it has it.
const PLACE: [&str; 2] = ["LANG", "TMPDIR"];

/// What is recorded for the daemon of these places; `None` where nothing usable is.
pub(crate) fn read(places: &Places) -> Option<RecordedEnvironment> {
    let text = own_file(&places.environment_file(), MAX_ENVIRONMENT_BYTES)?;
    serde_json::from_str(&text).ok()
}

/// Records an environment, in place of the one before.
pub(crate) fn write(places: &Places, recorded: &RecordedEnvironment) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(recorded)?;
    if text.len() as u64 > MAX_ENVIRONMENT_BYTES {
        let most = MAX_ENVIRONMENT_BYTES / 1024;
        return Err(io::Error::other(format!(
            "the variables take more than {most} KiB: name fewer"
        )));
    }
    let path = places.environment_file();
    let fresh = path.with_extension("json.new");
    let _ = std::fs::remove_file(&fresh);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&text)?;
    std::fs::rename(&fresh, path)
}

/// Whether the login shell is asked again that was asked at an earlier start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Only where nothing is recorded: an editor waits for its client's answer.
    Once,
    /// Each time: a person has time, and may have changed what the shell says.
    Anew,
}

/// What a daemon that is started now is to get: what was captured, else what the user database
/// and the login shell say at this moment, or said at an earlier start.
pub(crate) async fn for_start(places: &Places, ask: Ask) -> RecordedEnvironment {
    // What was recorded without a shell that answered is worth another try.
    let stays = |found: &RecordedEnvironment| {
        found.by == RecordedBy::Capture || (ask == Ask::Once && found.login_shell.is_some())
    };
    if let Some(found) = read(places).filter(stays) {
        return found;
    }
    let user = User::of_process();
    match ask_shell(&user, None).await {
        Ok((shell, found)) => recorded(RecordedBy::Start, &user, Some(&shell), &found, &[]),
        // The fixed path is left, and what the user database knows.
        Err(_) => recorded(RecordedBy::Start, &user, None, &BTreeMap::new(), &[]),
    }
}

/// What `env capture` found.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) recorded: RecordedEnvironment,
    /// Names that the login shell does not have.
    pub(crate) missing: BTreeSet<String>,
}

/// Takes `PATH` and these names from the login shell, or from another one.
pub(crate) async fn capture(
    names: &[String],
    shell: Option<&Path>,
) -> Result<Captured, LoginError> {
    let user = User::of_process();
    let (shell, found) = ask_shell(&user, shell).await?;
    let missing = names.iter().filter(|name| !found.contains_key(*name));
    Ok(Captured {
        missing: missing.cloned().collect(),
        recorded: recorded(RecordedBy::Capture, &user, Some(&shell), &found, names),
    })
}

async fn ask_shell(
    user: &User,
    shell: Option<&Path>,
) -> Result<(PathBuf, BTreeMap<String, String>), LoginError> {
    let shell = shell.or(user.shell.as_deref()).ok_or(LoginError::NoShell)?;
    let mut given = user.variables();
    given.insert("PATH".to_owned(), FIXED_PATH.to_owned());
    given.insert("TERM".to_owned(), "dumb".to_owned());
    let found = login::variables(shell, &given, LOGIN_TIMEOUT).await?;
    Ok((shell.to_owned(), found))
}

fn recorded(
    by: RecordedBy,
    user: &User,
    shell: Option<&Path>,
    found: &BTreeMap<String, String>,
    names: &[String],
) -> RecordedEnvironment {
    let mut variables = BTreeMap::from([("PATH".to_owned(), FIXED_PATH.to_owned())]);
    let path = std::iter::once("PATH").chain(PLACE);
    for name in path.chain(names.iter().map(String::as_str)) {
        if let Some(value) = found.get(name).filter(|_| may_be_recorded(name)) {
            variables.insert(name.to_owned(), value.clone());
        }
    }
    // A start file does not decide who the user is.
    variables.extend(user.variables());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_millis();
    RecordedEnvironment {
        schema: SCHEMA,
        by,
        recorded_ms: u64::try_from(now).unwrap_or(u64::MAX),
        login_shell: shell.map(|shell| shell.display().to_string()),
        names: names.to_vec(),
        variables,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn the_user_database_wins_over_start_files_and_only_what_was_asked_for_is_kept() {
        let user = User {
            name: Some("u".to_owned()),
            home: Some("/home/u".to_owned()),
            shell: Some("/bin/zsh".into()),
        };
        let found = map(&[
            ("PATH", "/p"),
            ("HOME", "/elsewhere"),
            ("LANG", "C.UTF-8"),
            ("TOKEN", "t"),
            ("OTHER", "o"),
            ("LD_PRELOAD", "/x.so"),
        ]);
        let names = ["TOKEN".to_owned(), "LD_PRELOAD".to_owned()];
        let made = recorded(RecordedBy::Capture, &user, None, &found, &names);
        let want = map(&[
            ("PATH", "/p"),
            ("LANG", "C.UTF-8"),
            ("TOKEN", "t"),
            ("HOME", "/home/u"),
            ("USER", "u"),
            ("LOGNAME", "u"),
            ("SHELL", "/bin/zsh"),
        ]);
        assert_eq!(made.variables, want);
    }

    #[test]
    fn a_user_whom_the_database_does_not_know_gets_the_fixed_path() {
        let nobody = User::default();
        let made = recorded(RecordedBy::Start, &nobody, None, &BTreeMap::new(), &[]);
        assert_eq!(made.variables, map(&[("PATH", FIXED_PATH)]));
        assert_eq!(made.login_shell, None);
    }
}
