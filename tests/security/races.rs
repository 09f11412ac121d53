//! A program that changes its files while they are measured or removed reaches nothing outside its scratch folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{ask, end, eventually, fresh, spawn, tiers};
use crate::life::LATER;

/// What a program swaps for each other as fast as it can: a folder of its own and a link to one of somebody else.
const SWAPS: [&str; 3] = [
    "os.mkdir('a')\nfor n in range(200): open('a/f%d' % n, 'w').close()\n\
     os.symlink(bait, 'b'); answer({})\nwhile True:\n    os.rename('a', 'c'); os.rename('b', 'a'); os.rename('a', 'b'); os.rename('c', 'a')",
    "os.makedirs('/'.join(['d'] * 40)); os.symlink(bait, 'l'); answer({})\n\
     while True:\n    os.rename('d', 'x'); os.rename('l', 'd'); os.rename('d', 'l'); os.rename('x', 'd')",
    "os.makedirs('one/two'); answer({})\n\
     while True:\n    os.rename('one/two', 'two'); os.symlink(bait, 'one/two'); os.unlink('one/two'); os.rename('two', 'one/two')",
];

/// A folder that everybody may empty.
fn bait(folder: &Path) -> std::io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
    for name in ["one", "two", "three"] {
        let path = folder.join(name);
        fs::write(&path, name)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    }
    Ok(())
}

fn nothing_outside_is_removed() -> Result<(), Failed> {
    let folder = tempfile::Builder::new()
        .prefix("ptc-bait-")
        .tempdir_in("/tmp")?;
    bait(folder.path())?;
    let sandbox = fresh(SandboxChoice::Landlock);
    let place = folder.path().to_str().ok_or("no text")?;
    for swap in SWAPS {
        for _ in 0..3 {
            let worker = spawn(&sandbox);
            let answer = ask(&worker, &format!("bait = {place:?}\n{swap}"));
            assert!(answer.is_some(), "{swap}");
            end(worker, answer);
        }
    }
    // What was set aside is removed before the folder of the warden can be.
    crate::lab::RUNTIME.block_on(sandbox.stop());
    let mut left: Vec<String> = fs::read_dir(folder.path())?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    left.sort();
    assert_eq!(left, ["one", "three", "two"]);
    assert_eq!(fs::read_to_string(folder.path().join("two"))?, "two");
    Ok(())
}

/// A worker that is stopped is killed like any other.
fn a_stopped_worker_is_killed() -> Result<(), Failed> {
    // Which process it is, there an engine knows: `container.rs` has the same.
    for tier in tiers()
        .iter()
        .filter(|tier| **tier != SandboxChoice::Container)
    {
        let sandbox = fresh(*tier);
        let worker = spawn(&sandbox);
        let answer = ask(&worker, "result = 1");
        let pid = worker.pid();
        kill_process(Pid::from_raw(pid).ok_or("no pid")?, Signal::STOP)?;
        eventually(LATER, "it is stopped", || {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
        });
        let outcome = end(worker, answer);
        assert_eq!(outcome.exit.signal, Some(libc::SIGKILL));
        assert!(outcome.exit.cpu < Duration::from_secs(20));
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    vec![
        Trial::test(
            "races::nothing_outside_is_removed",
            nothing_outside_is_removed,
        ),
        Trial::test(
            "races::a_stopped_worker_is_killed",
            a_stopped_worker_is_killed,
        ),
    ]
}
