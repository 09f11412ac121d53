//! Reading a configuration file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use ptc_protocol::paths::ConfigChoice;

use super::fault::{ConfigFaults, Fault, Place};
use super::{Config, check, raw};

/// Longest configuration file, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// Most faults of one file that are told.
const MAX_FAULTS: usize = 100;

/// Reads the file that was chosen: the default one may be absent, which means defaults and no servers.
pub fn load_choice(choice: &ConfigChoice) -> Result<Config, ConfigFaults> {
    match choice {
        ConfigChoice::Default(path) if is_absent(path) => Ok(Config::default()),
        ConfigChoice::Default(path) | ConfigChoice::Named(path) => load(path),
    }
}

/// Reads a file that must be there. Blocking; never waits on a pipe.
pub fn load(path: &Path) -> Result<Config, ConfigFaults> {
    let refused = |fault| ConfigFaults {
        path: path.to_owned(),
        faults: vec![fault],
    };
    let bytes = read(path).map_err(|error| {
        refused(Fault::of_file(&match error.kind() {
            ErrorKind::NotFound => "there is no such file".to_owned(),
            _ => format!("cannot be read: {error}"),
        }))
    })?;
    if bytes.len() > MAX_BYTES {
        let message = format!("has more than {MAX_BYTES} bytes, the most a configuration may have");
        return Err(refused(Fault::of_file(&message)));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, path),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let valid = String::from_utf8_lossy(valid);
            let place = Place {
                line: valid.matches('\n').count() + 1,
                column: valid
                    .rsplit('\n')
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .count()
                    + 1,
            };
            Err(refused(Fault::at(place, "not UTF-8 from here on")))
        }
    }
}

/// Reads a configuration from its text; `path` is the file it came from, whose
/// folder relative paths start from. All faults are found, in the file's order.
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigFaults> {
    let mut faults = Vec::new();
    let root = raw::read(text, &mut faults);
    let absolute = std::path::absolute(path);
    let absolute = absolute.as_deref().unwrap_or(path);
    let base = absolute.parent().unwrap_or(Path::new("/"));
    let config = check::resolve(root.as_ref(), base, &mut faults);
    if faults.is_empty() {
        return Ok(config);
    }
    faults.sort();
    // One fault of a merged mapping would show once for each place it is merged into.
    faults.dedup();
    if faults.len() > MAX_FAULTS {
        let more = faults.len() - MAX_FAULTS;
        faults.truncate(MAX_FAULTS);
        faults.push(Fault::of_file(&format!("{more} more faults below these")));
    }
    Err(ConfigFaults {
        path: path.to_owned(),
        faults,
    })
}

/// Whether nothing is there at all; a link that leads nowhere is something.
fn is_absent(path: &Path) -> bool {
    matches!(path.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no ordinary file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn message(result: Result<Config, ConfigFaults>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn only_the_default_file_may_be_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let default = ConfigChoice::Default(path.clone());
        let named = ConfigChoice::Named(path.clone());
        assert_eq!(load_choice(&default).unwrap(), Config::default());
        let expected = format!("{}: there is no such file", path.display());
        assert_eq!(message(load_choice(&named)), expected);
        symlink("nowhere", &path).unwrap();
        assert_eq!(message(load_choice(&default)), expected);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "daemon: {drain_seconds: 1}\n").unwrap();
        let drain = load_choice(&default).unwrap().daemon.drain;
        assert_eq!(drain.as_secs(), 1);
    }

    #[test]
    fn files_that_are_no_text_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.yaml");
        let name = path.display();
        assert_eq!(
            message(load(folder.path())),
            format!(
                "{}: cannot be read: it is no ordinary file",
                folder.path().display()
            )
        );
        std::fs::write(&path, b"servers: []\n# \xc3\xa4\xff\n").unwrap();
        assert_eq!(
            message(load(&path)),
            format!("{name}:2:4: not UTF-8 from here on")
        );
        std::fs::write(&path, "#".repeat(MAX_BYTES + 1)).unwrap();
        assert!(message(load(&path)).starts_with(&format!("{name}: has more than 1048576 bytes")));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(message(load(&path)).contains("no ordinary file"));
    }

    #[test]
    fn faults_of_the_text_and_of_the_values_come_together_in_order() {
        let text = "daemon: {drain_seconds: x}\ndaemon: {}\ntool: {}\n";
        let faults = parse(text, Path::new("f")).unwrap_err();
        let lines: Vec<_> = faults.faults.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }

    #[test]
    fn a_file_of_faults_is_read_in_a_moment_and_told_in_part() {
        use std::fmt::Write as _;
        let mut text = String::new();
        for number in 0..40_000 {
            let _ = writeln!(text, "key{number}: 1");
        }
        let faults = parse(&text, Path::new("f")).unwrap_err().faults;
        assert_eq!(faults.len(), MAX_FAULTS + 1);
        assert_eq!(faults[MAX_FAULTS - 1].line, MAX_FAULTS);
        let last = &faults[MAX_FAULTS];
        assert_eq!(last.message, "39900 more faults below these");
    }

    #[test]
    fn a_fault_in_a_merged_mapping_shows_once() {
        let text = "x-a: &a {enabled: 7}\nservers:\n- {<<: *a, name: a, command: c}\n- {<<: *a, name: b, command: c}\n";
        let faults = parse(text, Path::new("f")).unwrap_err();
        assert!(faults.faults.iter().all(|fault| fault.line == 1));
    }
}
