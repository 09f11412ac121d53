//! What only the tier full promises: of the machine there is nothing to be seen but the interpreter and its library.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use serde_json::{Value, json};

use crate::attempt::Expect;
use crate::lab::{LIMITS, lack_of_full, outside, run};

/// Programs, and what they give inside; unconfined each gives something else.
const SIGHTS: &[(&str, &str, &str)] = &[
    (
        "nothing_of_the_machine_exists",
        "result = [p for p in (facts['file'], facts['folder'], '/proc', '/sys', '/root', '/home', '/run', '/var', \
         '/bin/sh', '/usr/bin/env', '/etc/hostname', '/etc/shadow', '/dev/zero', '/dev/tty', '/dev/shm') \
         if os.path.lexists(p) and not sys.executable.startswith(p + '/')]",
        "[]",
    ),
    (
        "it_is_the_first_process_and_has_no_parent",
        "result = [os.getpid(), os.getppid()]",
        "[1,0]",
    ),
    (
        "the_machine_has_another_name",
        "result = os.uname().nodename",
        "\"sandbox\"",
    ),
    (
        "there_is_one_made_up_user",
        "import pwd, grp\n\
         result = [[u.pw_name, u.pw_uid, u.pw_dir] for u in pwd.getpwall()] + [g.gr_name for g in grp.getgrall()]",
        "[[\"user\",1000,\"/tmp\"],\"user\"]",
    ),
    (
        "scratch_is_the_home_and_empty",
        "result = [os.getcwd(), os.path.expanduser('~'), os.listdir('.')]",
        "[\"/tmp\",\"/tmp\",[]]",
    ),
    (
        "what_is_left_out_of_the_library_is_empty",
        "import sysconfig\nfolder = sysconfig.get_path('stdlib')\n\
         result = [n for n in ('site-packages', 'test', 'idlelib', 'ensurepip') if os.path.exists(folder + '/' + n + '/__init__.py')]\n\
         result.append(os.path.exists(folder + '/json/__init__.py'))",
        "[true]",
    ),
];

fn sight(program: &str, inside: &str) -> Result<(), Failed> {
    let inside: Value = serde_json::from_str(inside)?;
    let control = run(SandboxChoice::None, program);
    assert!(control.answer()["ok"] != Value::Null, "{control:?}");
    assert_eq!(run(SandboxChoice::Full, program).answer()["ok"], inside);
    Ok(())
}

/// A sight that differs outside, so that the one inside means something.
fn the_machine_is_seen_without(program: &str, inside: &str) -> Result<(), Failed> {
    let inside: Value = serde_json::from_str(inside)?;
    assert_ne!(run(SandboxChoice::None, program).answer()["ok"], inside);
    Ok(())
}

/// Everything but scratch is on file systems that cannot be written, and no device but one is there.
fn nothing_can_be_written() -> Result<(), Failed> {
    let program = "def code(f, *a):\n    try: f(*a)\n    except OSError as e: return e.errno\n    return 0\n\
        import sysconfig\nfolder = sysconfig.get_path('stdlib')\n\
        result = [code(os.mkdir, '/new'), code(os.mkdir, '/etc/new'), code(os.mkdir, folder + '/new'), \
        code(os.unlink, '/etc/passwd'), code(os.rename, '/tmp', '/new'), code(os.truncate, os.__file__, 0), \
        code(os.chmod, '/', 0o777), code(os.utime, '/etc'), code(os.symlink, 'x', '/dev/new')]";
    let outcome = run(SandboxChoice::Full, program);
    let codes = outcome.answer()["ok"].as_array().ok_or("no list")?.clone();
    let refused = [
        libc::EROFS,
        libc::EACCES,
        libc::EPERM,
        libc::EBUSY,
        libc::EXDEV,
    ]
    .map(Value::from);
    assert_eq!(codes.len(), 9);
    assert!(codes.iter().all(|code| refused.contains(code)), "{codes:?}");
    assert!(outside().folder.path().join("file").exists());
    Ok(())
}

/// Scratch is full at its limit, whatever it is filled with, and the program goes on.
fn scratch_ends_at_its_limit() -> Result<(), Failed> {
    for fill in [
        "f = open('one', 'wb', buffering=0)\nwhile True: f.write(bytes(1 << 16))",
        "n = 0\nwhile True: open('f%d' % n, 'wb').write(bytes(1 << 20)); n += 1",
        "keep = []\nwhile True:\n    f = open('x', 'wb', buffering=0); keep.append(f); os.unlink('x'); f.write(bytes(1 << 20))",
        "n = 0\nwhile True: open('f%d' % n, 'w').close(); n += 1",
        "n = 0\nwhile True: os.mkdir('d%d' % n); n += 1",
    ] {
        let program = format!(
            "try:\n    {}\nexcept OSError as e: code = e.errno\nresult = code",
            fill.replace('\n', "\n    ")
        );
        let outcome = run(SandboxChoice::Full, &program);
        let code = outcome.answer()["ok"].as_i64().ok_or("no code")?;
        let full = [libc::ENOSPC, libc::EFBIG].map(i64::from);
        assert!(full.contains(&code), "{fill}: {code}");
    }
    let size = "s = os.statvfs('.'); result = s.f_blocks * s.f_frsize";
    let outcome = run(SandboxChoice::Full, size);
    assert_eq!(outcome.answer()["ok"], json!(LIMITS.scratch_bytes));
    Ok(())
}

/// A file of scratch is no code.
fn scratch_holds_no_code() -> Result<(), Failed> {
    let program = "import mmap\nf = os.open('x', os.O_RDWR | os.O_CREAT); os.write(f, bytes(4096))\n\
        result = code_of(facts['sys']['SYS_mmap'], 0, 4096, 5, 2, f, 0)";
    let outcome = run(SandboxChoice::Full, program);
    Expect::Gives("1").check(outcome.answer())
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = vec![
        Trial::test("inside::nothing_can_be_written", nothing_can_be_written),
        Trial::test(
            "inside::scratch_ends_at_its_limit",
            scratch_ends_at_its_limit,
        ),
        Trial::test("inside::scratch_holds_no_code", scratch_holds_no_code),
    ];
    for (name, program, inside) in SIGHTS {
        all.push(Trial::test(format!("inside::{name}"), move || {
            sight(program, inside)?;
            the_machine_is_seen_without(program, inside)
        }));
    }
    match lack_of_full() {
        None => all,
        Some(reason) => all
            .into_iter()
            .map(|trial| trial.with_kind(reason).with_ignored_flag(true))
            .collect(),
    }
}
