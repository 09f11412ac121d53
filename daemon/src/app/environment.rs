//! The environment that variables refer to and that servers get eight variables of.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use ptc_protocol::environment::{MAX_ENVIRONMENT_BYTES, RecordedEnvironment, may_be_recorded};
use ptc_protocol::paths::Places;

/// Who has started the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// Somebody on a command line, whose environment is meant: it wins over what is recorded.
    Person,
    /// A client or the service manager, whose environment means nothing: what is recorded wins.
    Program,
}

/// The process's own variables, without what is no text.
pub fn own() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The process's own variables together with those recorded in the state folder, and why
/// there are none of these where there should be.
pub fn base(places: &Places, starter: Starter) -> (BTreeMap<String, String>, Option<String>) {
    let path = places.environment_file();
    match read(&path) {
        Ok(recorded) => (joined(own(), recorded.unwrap_or_default(), starter), None),
        Err(fault) => {
            let fault = format!("{} is passed over: {fault}", path.display());
            (own(), Some(fault))
        }
    }
}

fn joined(
    own: BTreeMap<String, String>,
    recorded: BTreeMap<String, String>,
    starter: Starter,
) -> BTreeMap<String, String> {
    let (mut under, over) = match starter {
        Starter::Person => (recorded, own),
        Starter::Program => (own, recorded),
    };
    under.extend(over);
    under
}

/// The recorded variables; `None` where nothing is recorded.
fn read(path: &Path) -> Result<Option<BTreeMap<String, String>>, String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
        return Err("it is not a file of this user".to_owned());
    }
    if about.mode() & 0o077 != 0 {
        return Err("others may read or write it".to_owned());
    }
    if about.len() > MAX_ENVIRONMENT_BYTES {
        return Err(format!("it has more than {MAX_ENVIRONMENT_BYTES} bytes"));
    }
    let mut text = Vec::new();
    file.take(MAX_ENVIRONMENT_BYTES)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    let recorded: RecordedEnvironment =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let mut variables = recorded.variables;
    variables.retain(|name, value| may_be_recorded(name) && !value.contains('\0'));
    Ok(Some(variables))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_person_s_own_variables_win_and_a_program_s_do_not() {
        let own = map(&[("PATH", "/own"), ("A", "1")]);
        let recorded = map(&[("PATH", "/recorded"), ("B", "2")]);
        let by = |starter| joined(own.clone(), recorded.clone(), starter);
        let person = map(&[("PATH", "/own"), ("A", "1"), ("B", "2")]);
        let program = map(&[("PATH", "/recorded"), ("A", "1"), ("B", "2")]);
        assert_eq!(by(Starter::Person), person);
        assert_eq!(by(Starter::Program), program);
    }

    #[test]
    fn only_a_file_of_ours_alone_counts_and_never_what_changes_a_loader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("environment.json");
        assert_eq!(read(&path), Ok(None));
        let text = r#"{"schema":1,"by":"capture","recorded_ms":1,
            "variables":{"PATH":"/p","LD_PRELOAD":"/x.so","PYTHONPATH":"/y"}}"#;
        std::fs::write(&path, text).unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o644);
        assert_eq!(read(&path), Err("others may read or write it".to_owned()));
        mode(0o600);
        assert_eq!(read(&path), Ok(Some(map(&[("PATH", "/p")]))));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read(&link).is_err());
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).is_err());
    }
}
