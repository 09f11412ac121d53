//! Scratch folders stay within their limits, and go with their worker without anybody waiting for it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use ptcd::sandbox::{Limits, Sandbox, WorkerProcess};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use crate::lab::{LIMITS, RUNTIME, ask, end, eventually, fresh, outside, run, run_in, spawn};
use crate::life::{GONE, LATER, kill, lives, swept};

/// A tree is as deep as it gets in this time, or so deep: its removal takes a while on slow and on fast disks, and on
/// none of them for ever. On a busy one it takes a hundred times as long as the growth.
const GROWTH: Duration = Duration::from_millis(50);
const DEEPEST: usize = 15_000;

/// Programs that put more into scratch than they may, each in its own way.
const GREEDY: &[(&str, &str)] = &[
    (
        "named",
        "i = 0\nwhile True: open('f%d' % i, 'wb').write(bytes(1 << 20)); i += 1",
    ),
    (
        "nameless",
        "keep = []\nwhile len(keep) < 100:\n    f = open('x', 'w+b'); f.write(bytes(1 << 20)); f.flush(); os.unlink('x'); keep.append(f)\nwhile True: pass",
    ),
    (
        "only mapped",
        "import mmap\nfor i in range(40):\n    f = os.open('x', os.O_RDWR | os.O_CREAT); os.write(f, bytes(1 << 20))\n    \
         syscall(facts['sys']['SYS_mmap'], 0, 4096, 1, 1, f, 0); os.close(f); os.unlink('x')\nwhile True: pass",
    ),
    (
        "very many",
        "i = 0\nwhile True: open('f%d' % i, 'w').close(); i += 1",
    ),
    (
        "very many folders",
        "i = 0\nwhile True: os.mkdir('d%d' % i); i += 1",
    ),
    ("deep", "while True: os.mkdir('d'); os.chdir('d')"),
    (
        "below a long path",
        "for i in range(22): os.mkdir('d' * 200); os.chdir('d' * 200)\n\
         for i in range(9): open('f%d' % i, 'wb').write(bytes(1 << 20))\nwhile True: pass",
    ),
    (
        "where nobody may look",
        "os.mkdir('d', 0o300)\n\
         for i in range(9): open('d/f%d' % i, 'wb').write(bytes(1 << 20))\nwhile True: pass",
    ),
    (
        "by another thread",
        "import threading, time\n\
         def fill():\n    for i in range(9): open('f%d' % i, 'wb').write(bytes(1 << 20)); time.sleep(0.1)\n    \
         while True: time.sleep(0.1)\n\
         t = threading.Thread(target=fill); t.start(); t.join()",
    ),
    (
        "beside more mappings than can be looked through",
        "f = os.open('x', os.O_RDWR | os.O_CREAT); os.write(f, bytes(8192))\n\
         for i in range(20000): syscall(facts['sys']['SYS_mmap'], 0, 4096, i % 2, 1, f, 0)\nwhile True: pass",
    ),
];

/// Whatever way files are made and kept, together they do not pass the limit for long.
fn limits_hold() -> Result<(), Failed> {
    for (what, program) in GREEDY {
        let outcome = run(SandboxChoice::Landlock, program);
        assert_eq!(
            (
                outcome.answer.as_ref(),
                outcome.exit.signal,
                outcome.exit.scratch_exceeded
            ),
            (None, Some(libc::SIGKILL), true),
            "{what}"
        );
    }
    Ok(())
}

/// What a program within its limits does is measured a few times and left alone.
fn modest_use_is_fine() -> Result<(), Failed> {
    let program = "import time\n\
        os.makedirs('/'.join(['d' * 60] * 60)); os.mkdir('none', 0); os.symlink('nowhere', 'link')\n\
        for i in range(2000): open('f%d' % i, 'w').close()\n\
        open('large', 'wb').write(bytes(4 << 20))\n\
        end = time.monotonic() + 1\n\
        while time.monotonic() < end: os.rename('f0', 'g0'); os.rename('g0', 'f0')\n\
        result = 1";
    let outcome = run(SandboxChoice::Landlock, program);
    assert_eq!(outcome.answer()["ok"], 1);
    assert!(!outcome.exit.scratch_exceeded);
    Ok(())
}

fn folder_of(worker: &WorkerProcess) -> PathBuf {
    let answer = ask(worker, "result = os.getcwd()").unwrap();
    PathBuf::from(answer["ok"].as_str().unwrap())
}

fn below(folder: &OwnedFd, name: &str) -> OwnedFd {
    mkdirat(folder, name, Mode::from_raw_mode(0o700)).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty()).unwrap()
}

/// Puts a tree deeper than any limit into the folder of each worker, at once, and ends the workers. Gives the base and
/// how long their ends took.
fn end_with_trees(workers: Vec<WorkerProcess>) -> (PathBuf, Duration) {
    let folders: Vec<PathBuf> = workers.iter().map(folder_of).collect();
    let base = folders[0].parent().unwrap().to_owned();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for number in 0..folders.len() {
        // Beside the folder, where nobody measures.
        let mut at = openat(CWD, &base, flags, Mode::empty()).unwrap();
        at = below(&at, &format!("tree-{number}"));
        let start = Instant::now();
        for _ in 0..DEEPEST {
            at = below(&at, "d");
            if start.elapsed() > GROWTH {
                break;
            }
        }
    }
    for (number, folder) in folders.iter().enumerate() {
        fs::rename(base.join(format!("tree-{number}")), folder.join("tree")).unwrap();
    }
    let start = Instant::now();
    for worker in &workers {
        worker.kill();
    }
    for mut worker in workers {
        let exit = RUNTIME.block_on(async { tokio::time::timeout(LATER, worker.exited()).await });
        assert_eq!(exit.unwrap().signal, Some(libc::SIGKILL));
    }
    (base, start.elapsed())
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// The folder is there while its worker lives and gone afterwards, whatever was in it.
fn scratch_is_removed() -> Result<(), Failed> {
    for choice in [SandboxChoice::None, SandboxChoice::Landlock] {
        let sandbox = fresh(choice);
        let outcome = run_in(
            &sandbox,
            "os.mkdir('closed'); open('closed/x', 'w').close(); os.symlink(facts['folder'], 'out')\n\
             os.mkdir('none', 0); os.chmod('closed', 0)\n\
             for i in range(3500): open('f%d' % i, 'w').close()\n\
             os.makedirs('/'.join(['deep'] * 50)); open('odd \\n name', 'w').close(); os.chmod('.', 0o500)\n\
             result = os.getcwd()",
        );
        let path = PathBuf::from(outcome.answer()["ok"].as_str().ok_or("no path")?);
        assert!(
            path.starts_with("/run/") || path.starts_with("/tmp/"),
            "{}",
            path.display()
        );
        assert!(!path.exists(), "{}", path.display());
        let base = path.parent().ok_or("no parent")?;
        assert!(base.exists());
        eventually(LATER, "all is removed", || entries(base) == 0);
        assert!(outside().folder.path().join("file").exists());
    }
    Ok(())
}

/// A tree that takes long to remove holds up neither the end of its worker nor the start of another.
fn nobody_waits_for_a_removal() -> Result<(), Failed> {
    let sandbox = fresh(SandboxChoice::Landlock);
    let workers: Vec<WorkerProcess> = (0..4).map(|_| spawn(&sandbox)).collect();
    let (base, ended) = end_with_trees(workers);
    let start = Instant::now();
    let other = spawn(&sandbox);
    let answered = start.elapsed();
    assert!(ended < GONE && answered < GONE, "{ended:?} {answered:?}");
    eventually(LATER, "the trees are gone", || entries(&base) == 1);
    drop(other);
    Ok(())
}

/// Programs with as much to measure as there may be are no trouble for others.
fn nobody_waits_for_a_measuring() -> Result<(), Failed> {
    let sandbox = fresh(SandboxChoice::Landlock);
    let program = "import time\n\
        os.makedirs('/'.join(['d' * 60] * 60))\n\
        for i in range(3900): os.mkdir('f%d' % i)\n\
        f = os.open('x', os.O_RDWR | os.O_CREAT); os.write(f, bytes(8192))\n\
        for i in range(5000): syscall(facts['sys']['SYS_mmap'], 0, 4096, i % 2, 1, f, 0)\n\
        answer({})\n\
        while True: os.rename('f0', 'g0'); os.rename('g0', 'f0'); time.sleep(0.01)";
    let large = Limits {
        scratch_bytes: 1 << 30,
        ..LIMITS
    };
    let mut busy = Vec::new();
    for _ in 0..16 {
        let worker = RUNTIME.block_on(sandbox.spawn_limited(large))?;
        if ask(&worker, program).is_none() {
            return Err(format!("{:?}", end(worker, None)).into());
        }
        busy.push(worker);
    }
    for _ in 0..5 {
        let start = Instant::now();
        drop(spawn(&sandbox));
        assert!(start.elapsed() < GONE, "{:?}", start.elapsed());
    }
    for worker in busy {
        assert!(!end(worker, Some(1.into())).exit.scratch_exceeded);
    }
    Ok(())
}

/// The child of the warden that removes, while it works.
fn sweeper_of(warden: u32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{warden}/task/{warden}/children")).ok()?;
    let mut children = text.split_whitespace();
    children.find_map(|pid| {
        let name = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        name.starts_with(b"ptcd\0")
            .then(|| pid.parse().ok())
            .flatten()
    })
}

fn descriptors(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut found: Vec<String> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

/// A sandbox whose warden has just begun to remove a tree, the base of it and the one who removes.
fn removing() -> Result<(Sandbox, PathBuf, i32), Failed> {
    let sandbox = fresh(SandboxChoice::Landlock);
    let workers: Vec<WorkerProcess> = (0..4).map(|_| spawn(&sandbox)).collect();
    let warden = sandbox.warden_pid().ok_or("no warden")?;
    let (base, _) = end_with_trees(workers);
    let mut sweeper = None;
    let start = Instant::now();
    while sweeper.is_none() && start.elapsed() < GONE {
        sweeper = sweeper_of(warden);
    }
    Ok((sandbox, base, sweeper.ok_or("nobody removes")?))
}

/// Who removes has nothing of the warden's but its folder, and goes with it; the next warden goes on.
fn who_removes_has_nothing_and_goes_with_the_warden() -> Result<(), Failed> {
    let (sandbox, base, sweeper) = removing()?;
    let name = base.to_str().ok_or("no text")?;
    eventually(GONE, "it has what it needs only", || {
        let found = descriptors(sweeper);
        let has_more = |path: &String| {
            !path.starts_with(name) && path.contains(['[', ':']) && !is_output(path)
        };
        !lives(sweeper) || (found.len() <= 8 && !found.iter().any(has_more))
    });
    kill(sandbox.warden_pid().ok_or("no warden")?);
    eventually(GONE, "it is gone", || !lives(sweeper));
    assert!(base.exists());
    swept(&base)
}

/// Whether it is where the tests themselves write.
fn is_output(path: &str) -> bool {
    fs::read_link("/proc/self/fd/2").is_ok_and(|own| own.to_string_lossy() == path)
}

/// A stop in order waits for a removal, but not for long.
fn a_stop_waits_a_little() -> Result<(), Failed> {
    let (sandbox, base, sweeper) = removing()?;
    let start = Instant::now();
    RUNTIME.block_on(sandbox.stop());
    assert!(start.elapsed() < GONE, "{:?}", start.elapsed());
    eventually(GONE, "it is gone", || !lives(sweeper));
    swept(&base)?;
    // Little is removed before the stop is over.
    let sandbox = fresh(SandboxChoice::Landlock);
    let worker = spawn(&sandbox);
    let folder = folder_of(&worker);
    fs::write(folder.join("file"), "x")?;
    RUNTIME.block_on(sandbox.stop());
    assert!(!folder.parent().ok_or("no parent")?.exists());
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    vec![
        Trial::test("scratch::files_of_every_kind_count_together", limits_hold),
        Trial::test("scratch::modest_use_is_fine", modest_use_is_fine),
        Trial::test("scratch::it_is_removed_with_the_worker", scratch_is_removed),
        Trial::test(
            "scratch::nobody_waits_for_a_removal",
            nobody_waits_for_a_removal,
        ),
        Trial::test(
            "scratch::nobody_waits_for_a_measuring",
            nobody_waits_for_a_measuring,
        ),
        Trial::test(
            "scratch::who_removes_has_nothing_and_goes_with_the_warden",
            who_removes_has_nothing_and_goes_with_the_warden,
        ),
        Trial::test("scratch::a_stop_waits_a_little", a_stop_waits_a_little),
    ]
}
