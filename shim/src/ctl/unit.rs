//! Looks at what a service manager would start, for `ptcctl doctor`.

use std::path::{Path, PathBuf};

use ptc_protocol::doctor::Check;

const NAME: &str = "service";
/// Longest unit that is read, in bytes.
const LONGEST: u64 = 64 * 1024;
/// Where systemd looks for units of users besides the configuration folder, in its order.
const SYSTEM: [&str; 4] = [
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
];

/// Whether the unit of a service manager, where one is installed, starts this program.
pub(super) fn check(home: Option<&Path>, program: Option<&Path>) -> Check {
    let Some((unit, text)) = installed(home) else {
        return Check::ok(
            NAME,
            "no unit of a service manager is installed: ptc-mcp starts ptcd where there is none",
        );
    };
    let shown = unit.display();
    let Some(started) = started(&unit, &text, home) else {
        return Check::failed(
            NAME,
            format!("{shown} names no program to start"),
            "write its ExecStart or ProgramArguments, or remove the file",
        );
    };
    let fix = |program: &Path| format!("name {} there", program.display());
    let real = |path: &Path| path.canonicalize().ok();
    match program {
        None => Check::note(NAME, format!("{shown} starts {}", started.display()), None),
        Some(program) if real(&started).is_some() && real(&started) == real(program) => {
            Check::ok(NAME, format!("{shown} starts {}", started.display()))
        }
        Some(program) if real(&started).is_none() => Check::failed(
            NAME,
            format!("{shown} starts {}, which is not there", started.display()),
            fix(program),
        ),
        Some(program) => Check::failed(
            NAME,
            format!(
                "{shown} starts {}, and this is the ptcctl of {}",
                started.display(),
                program.display()
            ),
            fix(program),
        ),
    }
}

/// The first unit in the order of the service manager, with what is laid over it.
fn installed(home: Option<&Path>) -> Option<(PathBuf, String)> {
    if cfg!(target_os = "macos") {
        let folder = home?.join("Library/LaunchAgents");
        let entries = std::fs::read_dir(folder).ok()?.flatten();
        let mut plists: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.contains("ptcd") && name.ends_with(".plist")
            })
            .collect();
        plists.sort();
        let plist = plists.into_iter().next()?;
        let text = read(&plist)?;
        return Some((plist, text));
    }
    let own = home.map(|home| home.join(".config/systemd/user"));
    let share = home.map(|home| home.join(".local/share/systemd/user"));
    let folders = own
        .into_iter()
        .chain(SYSTEM.map(PathBuf::from))
        .chain(share);
    for folder in folders {
        let unit = folder.join("ptcd.service");
        if let Some(mut text) = read(&unit) {
            text.push('\n');
            text.push_str(&laid_over(&folder.join("ptcd.service.d")));
            return Some((unit, text));
        }
    }
    None
}

/// What a folder of drop-ins adds, in its order.
fn laid_over(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "conf"))
        .collect();
    parts.sort();
    let texts: Vec<String> = parts.iter().filter_map(|path| read(path)).collect();
    texts.join("\n")
}

fn read(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    std::io::read_to_string(std::io::Read::take(file, LONGEST)).ok()
}

/// The program that a unit starts.
fn started(unit: &Path, text: &str, home: Option<&Path>) -> Option<PathBuf> {
    let word = if unit.extension().is_some_and(|end| end == "plist") {
        let (_, after) = text.split_once("<key>ProgramArguments</key>")?;
        let (_, after) = after.split_once("<string>")?;
        let (word, _) = after.split_once("</string>")?;
        let plain = word.replace("&lt;", "<").replace("&gt;", ">");
        plain.replace("&quot;", "\"").replace("&amp;", "&")
    } else {
        let lines = text.lines().map(str::trim);
        let mut line = lines.filter_map(|line| {
            line.strip_prefix("ExecStart")?
                .trim_start()
                .strip_prefix('=')
        });
        // An empty one takes back those before it.
        let line = line.rfind(|line| !line.trim().is_empty())?;
        first_word(
            line.trim()
                .trim_start_matches(['-', '@', ':', '+', '!', '|']),
        )
    };
    let home = home.map_or_else(String::new, |home| home.display().to_string());
    Some(PathBuf::from(word.replace("%h", &home))).filter(|path| path.is_absolute())
}

/// The first word of a command line, its quotes taken away.
fn first_word(line: &str) -> String {
    for quote in ['"', '\''] {
        if let Some((word, _)) = line
            .strip_prefix(quote)
            .and_then(|rest| rest.split_once(quote))
        {
            return word.to_owned();
        }
    }
    line.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptc_protocol::doctor::Verdict;

    #[test]
    fn the_program_of_a_unit_is_read_from_either_form() {
        let home = Some(Path::new("/home/me"));
        for (unit, text, found) in [
            (
                "u.service",
                "[Service]\nExecStart=/opt/ptcd serve\n",
                Some("/opt/ptcd"),
            ),
            (
                "u.service",
                "ExecStart = -\"%h/a b/ptcd\" serve",
                Some("/home/me/a b/ptcd"),
            ),
            (
                "u.service",
                "ExecStart=/old/ptcd\nExecStart=\nExecStart=/new/ptcd",
                Some("/new/ptcd"),
            ),
            ("u.service", "ExecStartPre=/bin/true\n", None),
            ("u.service", "ExecStart=ptcd serve", None),
            (
                "u.plist",
                "<key>ProgramArguments</key><array>\n<string>/a&amp;b/ptcd</string><string>serve</string>",
                Some("/a&b/ptcd"),
            ),
            ("u.plist", "<key>Label</key><string>ptcd</string>", None),
        ] {
            assert_eq!(
                started(Path::new(unit), text, home),
                found.map(PathBuf::from),
                "{text}"
            );
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_unit_that_starts_another_program_fails() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let units = home.join(".config/systemd/user");
        std::fs::create_dir_all(units.join("ptcd.service.d")).unwrap();
        let (own, other) = (home.join("ptcd"), home.join("other"));
        for path in [&own, &other] {
            std::fs::write(path, "").unwrap();
        }
        let verdict = |text: &str| {
            std::fs::write(units.join("ptcd.service"), text).unwrap();
            check(Some(home), Some(&own)).verdict
        };
        assert_eq!(verdict("ExecStart=%h/ptcd serve"), Verdict::Ok);
        assert_eq!(verdict("ExecStart=%h/other serve"), Verdict::Failed);
        assert_eq!(verdict("ExecStart=%h/gone serve"), Verdict::Failed);
        assert_eq!(verdict(""), Verdict::Failed);
        std::fs::write(
            units.join("ptcd.service.d/x.conf"),
            "ExecStart=\nExecStart=%h/ptcd serve",
        )
        .unwrap();
        assert_eq!(verdict("ExecStart=%h/other serve"), Verdict::Ok);
    }
}
