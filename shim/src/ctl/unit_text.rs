//! Writes the units of systemd and the plist of launchd with the real paths in them.

use std::path::{Path, PathBuf};

use crate::manager::{Kind, SERVICE_UNIT, SOCKET_UNIT};

/// Stands in every file that is written here, and tells it from another's.
const MARK: &str = "Written by `ptcctl service install`";
/// The units as they lie in the source tree.
const SOCKET: &str = include_str!("../../../systemd/ptcd.socket");
const SERVICE: &str = include_str!("../../../systemd/ptcd.service");
const PLIST: &str = include_str!("../../../launchd/ptcd.plist");
/// What of them is replaced.
const PROGRAM: &str = "ExecStart=/usr/bin/ptcd ";

/// What the files need to know.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    /// The daemon's program.
    pub(super) program: &'a str,
    /// The daemon's socket; systemd works it out by itself.
    pub(super) socket: &'a str,
    /// The daemon's log.
    pub(super) log: &'a str,
}

/// A file to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnitFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The files that make the daemon a service.
pub(super) fn files(kind: Kind, units: &Path, facts: &Facts<'_>) -> Vec<UnitFile> {
    match kind {
        Kind::Systemd => [
            (SOCKET_UNIT, SOCKET.to_owned()),
            (SERVICE_UNIT, service(facts.program)),
        ]
        .map(|(name, text)| UnitFile {
            path: units.join(name),
            text: format!(
                "# {MARK}, which may write it anew; changes belong into a drop-in.\n{text}"
            ),
        })
        .into(),
        Kind::Launchd => vec![UnitFile {
            path: kind.main_file(units),
            text: plist(facts),
        }],
    }
}

/// Whether `ptcctl` has written this text.
pub(super) fn is_own(text: &str) -> bool {
    text.lines().take(4).any(|line| line.contains(MARK))
}

fn service(program: &str) -> String {
    SERVICE.replace(PROGRAM, &format!("ExecStart={} ", unit_word(program)))
}

/// One word of a unit's command line: nothing in it is expanded, and it is not split.
fn unit_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    let mut word = String::new();
    for c in text.chars() {
        match c {
            '\\' => word.push_str("\\\\"),
            '"' => word.push_str("\\\""),
            '%' => word.push_str("%%"),
            c => word.push(c),
        }
    }
    // A dollar sign is not expanded in the program's own path.
    if text.chars().all(is_plain) {
        word
    } else {
        format!("\"{word}\"")
    }
}

fn plist(facts: &Facts<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in PLIST.lines() {
        if line.starts_with("<!-- A template") {
            lines.push(format!("<!-- {MARK}, which may write it anew. -->"));
            continue;
        }
        lines.push(
            line.replace("@PTCD@", &xml(facts.program))
                .replace("@SOCKET@", &xml(facts.socket))
                .replace("@LOG@", &xml(facts.log)),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    const FACTS: Facts<'_> = Facts {
        program: "/opt/a & b/ptcd",
        socket: "/Users/u/.ptc/run/ptcd.sock",
        log: "/Users/u/.ptc/default/ptcd.log",
    };

    #[test]
    fn a_path_is_one_word_of_a_unit_and_nothing_in_it_is_expanded() {
        assert_eq!(unit_word("/usr/bin/ptcd"), "/usr/bin/ptcd");
        assert_eq!(
            unit_word("/a b/100%/\"x\"\\$H"),
            r#""/a b/100%%/\"x\"\\$H""#
        );
        let text = service("/a b/ptcd");
        assert!(
            text.contains("\nExecStart=\"/a b/ptcd\" serve --service\n"),
            "{text}"
        );
        assert!(!text.contains("/usr/bin/ptcd"), "{text}");
    }

    #[test]
    fn what_is_written_here_is_known_again_and_nothing_else_is() {
        for kind in [Kind::Systemd, Kind::Launchd] {
            for file in files(kind, Path::new("/u"), &FACTS) {
                assert!(is_own(&file.text), "{file:?}");
            }
        }
        for text in [SOCKET, SERVICE, PLIST] {
            assert!(!is_own(text), "{text}");
        }
    }

    #[test]
    fn units_hold_no_option_that_breaks_nested_sandboxes_servers_or_the_socket() {
        let never = [
            "RestrictNamespaces",
            "MemoryDenyWriteExecute",
            "PrivateUsers",
            "ProtectProc",
            "ProtectKernelTunables",
            "RuntimeDirectory",
        ];
        for text in [SOCKET, SERVICE] {
            for option in never {
                assert!(!text.contains(option), "{option} in {text}");
            }
        }
        assert!(SOCKET.contains("\nSocketMode=0600\nDirectoryMode=0700\n"));
        assert!(SERVICE.contains("\nType=notify\n"));
    }

    #[test]
    fn the_plist_is_the_golden_one() {
        let [file] = &files(
            Kind::Launchd,
            Path::new("/Users/u/Library/LaunchAgents"),
            &FACTS,
        )[..] else {
            panic!("more than one file");
        };
        assert_eq!(
            file.path,
            Path::new("/Users/u/Library/LaunchAgents/dev.ptc.ptcd.plist")
        );
        let golden = include_str!("../../tests/golden/ptcd.plist");
        assert_eq!(file.text, golden, "{}", file.text);
    }

    #[test]
    fn a_property_list_reader_finds_in_the_plist_what_was_meant() {
        let script = r#"
import plistlib, sys
made = plistlib.loads(sys.stdin.buffer.read())
assert made == {
    "Label": "dev.ptc.ptcd",
    "ProgramArguments": ["/opt/a & b/ptcd", "serve", "--service"],
    "Sockets": {"Listeners": {"SockPathName": "/Users/u/.ptc/run/ptcd.sock", "SockPathMode": 0o600}},
    "ExitTimeOut": 60,
    "ProcessType": "Interactive",
    "StandardErrorPath": "/Users/u/.ptc/default/ptcd.log",
}, made
"#;
        let mut python = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = plist(&FACTS);
        python
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = python.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }
}
