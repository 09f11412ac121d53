//! Every path that ptcd writes stands in the documents.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use ptc_tests::{Home, Plan, TestResult};

const SECURITY: &str = include_str!("../../docs/security.md");

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![what_is_written_is_documented_and_the_reverse]
}

/// The paths of the table, as they stand there.
fn documented() -> Vec<String> {
    let section = SECURITY
        .split("\n## ")
        .find(|part| part.starts_with("What ptcd writes"));
    let rows = section
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('`').nth(1).map(str::to_owned))
        .collect()
}

/// Whether `path` is of the form `form`, in which a part in capitals stands for any name.
fn is_of(path: &str, form: &str) -> bool {
    let parts = |text: &str| -> Vec<String> { text.split('/').map(str::to_owned).collect() };
    let (path, form) = (parts(path), parts(form));
    path.len() == form.len() && path.iter().zip(&form).all(|(is, may)| matches(is, may))
}

fn matches(is: &str, may: &str) -> bool {
    let capitals: String = may.chars().filter(char::is_ascii_uppercase).collect();
    if is == may || capitals.is_empty() {
        return is == may;
    }
    let Some((before, after)) = may.split_once(&capitals) else {
        return false;
    };
    is.len() > before.len() + after.len() && is.starts_with(before) && is.ends_with(after)
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// What stands in the folders that all users share; names only, as other processes are at work there.
fn shared() -> BTreeSet<PathBuf> {
    let folders = ["/tmp", "/run", "/var/tmp", "/dev/shm"];
    let entries = folders
        .iter()
        .flat_map(std::fs::read_dir)
        .flatten()
        .flatten();
    entries.map(|entry| entry.path()).collect()
}

fn what_is_written_is_documented_and_the_reverse() -> TestResult {
    let before = shared();
    let home = Home::new(&Plan::new().server("m", &["--banner"]));
    let mut seen_shared = BTreeSet::new();
    {
        // Started by the shim, as a client does it.
        let mut client = home.client();
        client.run("print(1)");
        let daemon_is_up = || home.ctl(&["status"]).0 == 0;
        assert!(daemon_is_up());
        client.run("await mcp__m__echo(x=1)\nopen('scratch', 'w').write('x')\nprint('x' * 100000)");
        seen_shared.extend(shared().difference(&before).cloned());
        assert_eq!(home.ctl(&["reload"]).0, 0);
    }
    let mut found = Vec::new();
    for folder in ["home", "run"] {
        below(&home.path(folder), &mut found);
    }
    let forms = documented();
    let state = home.state();
    let (key, root) = (
        state.file_name().unwrap_or_default().to_owned(),
        state.parent().unwrap_or(&state).to_owned(),
    );
    let named = |path: &Path| -> String {
        let text = path.display().to_string();
        let run = home.path("run").display().to_string();
        let text = text
            .replace(&root.display().to_string(), "STATE")
            .replace(&run, "$XDG_RUNTIME_DIR");
        text.replace(&key.to_string_lossy().into_owned(), "KEY")
    };
    let written: BTreeSet<String> = found.iter().map(|path| named(path)).collect();
    let undocumented: Vec<&String> = written
        .iter()
        .filter(|path| !forms.iter().any(|form| is_of(path, form)))
        .collect();
    assert!(undocumented.is_empty(), "{undocumented:#?}");
    let _ = home.ctl(&["stop"]);
    let own = |path: &&PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.starts_with("ptcd")
    };
    let unlisted: Vec<&PathBuf> = seen_shared
        .iter()
        .filter(own)
        .filter(|path| {
            !forms
                .iter()
                .any(|form| is_of(&path.display().to_string(), form))
        })
        .collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
    // The other way round: what the table names is written, but for what needs an occasion.
    let unseen: Vec<&String> = forms
        .iter()
        .filter(|form| form.starts_with("STATE") || form.starts_with("$XDG"))
        .filter(|form| !written.iter().any(|path| is_of(path, form)))
        .collect();
    let occasions = SECURITY.matches("(on occasion)").count();
    assert_eq!(unseen.len(), occasions, "{unseen:?} {written:#?}");
    Ok(())
}
