//! No file outside scratch is read or changed.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;

use crate::attempt::{Attempt, DENIED, EACCES, EPERM, Expect, trials};
use crate::lab::{outside, run, tiers};

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "a_file_outside_is_not_read",
        program: "result = open(facts['file']).read()",
        control: Expect::Gives("\"outside\""),
        confined: EACCES,
    },
    Attempt {
        // Where nothing else is to be seen there is a made-up one.
        name: "etc_passwd_is_not_read",
        program: "if 'root' not in open('/etc/passwd').read(): raise PermissionError(13, 'made up')",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "own_environment_file_is_not_read",
        program: "result = open('/proc/self/environ').read()",
        control: Expect::Gives("\"\""),
        confined: EACCES,
    },
    Attempt {
        name: "own_memory_map_is_not_read",
        program: "open('/proc/self/maps').read(1)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "command_lines_of_others_are_not_read",
        program: "open('/proc/%d/cmdline' % facts['pid'], 'rb').read(1)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "sys_is_not_read",
        program: "open('/sys/kernel/mm/transparent_hugepage/enabled').read(1)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "devices_are_not_opened",
        program: "open('/dev/zero', 'rb').read(1)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "dev_null_is_open",
        program: "open('/dev/null', 'wb').write(b'x')",
        control: Expect::Succeeds,
        confined: Expect::Succeeds,
    },
    Attempt {
        name: "the_root_is_not_listed",
        program: "os.listdir('/')",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "what_is_installed_beside_the_library_is_not_read",
        program: "import sysconfig, glob\n\
            folder = sysconfig.get_path('stdlib')\n\
            found = [p for p in glob.glob(folder + '/config-*/Makefile') + glob.glob(folder + '/test/*.py')]\n\
            if not found: raise PermissionError(13, 'nothing there')\n\
            open(found[0]).read(1)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EACCES,
    },
    Attempt {
        name: "no_file_is_made_outside",
        program: "open(facts['folder'] + '/made-%d' % os.getpid(), 'w').write('x')",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_file_outside_is_not_written",
        program: "open(facts['file'], 'r+').close()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_file_outside_is_not_appended_to",
        program: "open(facts['file'], 'a').close()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_path_with_dots_leads_nowhere_else",
        program: "open('../../../..' + facts['file']).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_working_directory_gives_no_right",
        program: "os.chdir(facts['folder']); open('file').read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_file_outside_is_not_removed",
        program: "p = facts['folder'] + '/removed-%d' % os.getpid()\n\
            try: open(p, 'w').close()\n\
            except OSError: p = facts['socket']\n\
            os.unlink(p)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_file_is_not_moved_out",
        program: "open('x', 'w').close(); os.rename('x', facts['folder'] + '/moved-%d' % os.getpid())",
        control: Expect::OtherThan(&[libc::EACCES, libc::EPERM]),
        confined: Expect::Errno(&[libc::EACCES, libc::EXDEV]),
    },
    Attempt {
        name: "a_file_is_not_moved_in",
        program: "os.rename(facts['socket'], 'y') if facts.get('never') else os.link(facts['file'], 'y')",
        control: Expect::OtherThan(&[libc::EACCES]),
        confined: DENIED,
    },
    Attempt {
        name: "a_link_to_a_file_outside_does_not_open_it",
        program: "os.symlink(facts['file'], 'link'); open('link').read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "no_hard_link_is_made_even_of_an_own_file",
        program: "open('own', 'w').close(); os.link('own', 'second')",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "no_pipe_is_made_in_scratch",
        program: "os.mkfifo('pipe')",
        control: Expect::Succeeds,
        confined: DENIED,
    },
    Attempt {
        name: "no_device_is_made_by_a_rename",
        program: "open('a', 'w').close()\n\
            at = ctypes.c_long(-100).value\n\
            one, two = (ctypes.create_string_buffer(name) for name in (b'a', b'b'))\n\
            syscall(facts['sys']['SYS_renameat2'], at, ctypes.addressof(one), at, ctypes.addressof(two), 4)",
        control: Expect::OtherThan(&[libc::EINVAL, libc::ENOSYS]),
        confined: Expect::Errno(&[libc::ENOSYS]),
    },
    Attempt {
        name: "a_file_outside_is_not_emptied",
        program: "p = facts['folder'] + '/emptied-%d' % os.getpid()\n\
            try: open(p, 'w').close()\n\
            except OSError: p = facts['file']\n\
            os.truncate(p, 0)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_handle_of_a_file_is_not_made",
        program: "b = ctypes.create_string_buffer(256); b[0] = 128\n\
            m = ctypes.c_int(); p = ctypes.create_string_buffer(b'/')\n\
            syscall(facts['sys']['SYS_name_to_handle_at'], -100, ctypes.addressof(p), ctypes.addressof(b), ctypes.addressof(m), 0)",
        control: Expect::OtherThan(&[libc::EPERM, libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        name: "scratch_is_empty_and_can_be_used",
        program: "import shutil, tempfile, zipfile, sqlite3\n\
            before = os.listdir('.')\n\
            with open('a', 'w') as f: f.write('text')\n\
            shutil.copy('a', 'b'); shutil.copy2('a', 'c'); os.rename('c', 'd'); os.mkdir('e'); os.replace('d', 'e/d')\n\
            with tempfile.TemporaryDirectory() as folder: open(folder + '/x', 'w').close()\n\
            with tempfile.TemporaryFile() as file: file.write(b'x')\n\
            with zipfile.ZipFile('z.zip', 'w') as z: z.write('a')\n\
            zipfile.ZipFile('z.zip').extractall('out')\n\
            db = sqlite3.connect('db'); db.execute('pragma journal_mode=wal'); db.execute('create table t(x)')\n\
            db.execute('insert into t values (1)'); db.commit()\n\
            shutil.rmtree('e')\n\
            result = [before, os.path.exists('out/a'), db.execute('select x from t').fetchall()[0][0]]",
        control: Expect::Gives("[[], true, 1]"),
        confined: Expect::Gives("[[], true, 1]"),
    },
    Attempt {
        name: "attributes_are_not_there",
        program: "open('a', 'w').close(); os.setxattr('a', 'user.x', b'1')",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: Expect::Errno(&[libc::EOPNOTSUPP]),
    },
    Attempt {
        name: "a_file_in_a_folder_of_others_is_not_found_by_listing",
        program: "result = 'file' in os.listdir(facts['folder']); os.listdir('..') if not result else None",
        control: Expect::Gives("true"),
        confined: EACCES,
    },
];

/// The whole standard library can be imported, but for the parts that are left out on purpose.
fn library() -> Result<(), Failed> {
    let program = "import importlib\nfailed = []\n\
        out = {'tkinter', '_tkinter', 'idlelib', 'turtle', 'turtledemo', 'lib2to3', 'ensurepip', 'venv', 'antigravity', 'this'}\n\
        for name in sorted(sys.stdlib_module_names - out):\n\
        \x20   try: importlib.import_module(name)\n\
        \x20   except BaseException: failed.append(name)\n\
        import hashlib, ssl, zoneinfo, decimal, time\n\
        ssl.create_default_context; hashlib.sha256(b'x'); hashlib.new('sha3_256'); ssl.MemoryBIO()\n\
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n\
        found = [zoneinfo.ZoneInfo('Europe/Berlin').key] if os.path.isdir('/usr/share/zoneinfo/Europe') else []\n\
        time.localtime(); os.cpu_count(); os.uname()\n\
        result = failed";
    let control = run(SandboxChoice::None, program);
    assert!(control.answer()["ok"].is_array(), "{control:?}");
    for tier in tiers() {
        assert_eq!(run(*tier, program).answer(), control.answer());
    }
    Ok(())
}

/// asyncio with tasks, threads and timers works as it does outside.
fn event_loop() -> Result<(), Failed> {
    let program = "import asyncio, threading, signal\n\
        async def one(n):\n    await asyncio.sleep(0.001); return n\n\
        async def main():\n\
        \x20   a = await asyncio.gather(*[one(n) for n in range(20)])\n\
        \x20   b = await asyncio.to_thread(sum, [1, 2])\n\
        \x20   asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, int)\n\
        \x20   return [sum(a), b]\n\
        result = asyncio.run(main())";
    for choice in [SandboxChoice::None].iter().chain(tiers()) {
        Expect::Gives("[190, 3]").check(run(*choice, program).answer())?;
    }
    Ok(())
}

/// Modes and times seem to change and do not, not even of an own file outside scratch.
fn modes_do_not_change() -> Result<(), Failed> {
    let file = outside().folder.path().join("mode");
    std::fs::write(&file, "x")?;
    let before = std::fs::metadata(&file)?;
    let program = "p = facts['folder'] + '/mode'\n\
        import sysconfig\n\
        for path in (p, os.__file__):\n    os.chmod(path, 0o777); os.utime(path, (1, 1))\n\
        result = True";
    let outcome = run(SandboxChoice::Landlock, program);
    Expect::Gives("true").check(outcome.answer())?;
    let after = std::fs::metadata(&file)?;
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified()?, before.modified()?);
    // Unconfined, the owner of a file changes both.
    let own = "open('own', 'w').close(); os.chmod('own', 0o600); os.utime('own', (1, 1))\n\
        s = os.stat('own'); result = [s.st_mode & 0o777, s.st_mtime]";
    Expect::Gives("[384, 1.0]").check(run(SandboxChoice::None, own).answer())?;
    let confined = run(SandboxChoice::Landlock, own);
    assert_ne!(confined.answer()["ok"][1], 1.0);
    if tiers().contains(&SandboxChoice::Full) {
        // In a file system of its own the worker is that owner; outside there is nothing to change.
        Expect::Gives("[384, 1.0]").check(run(SandboxChoice::Full, own).answer())?;
        let library = "os.chmod(os.__file__, 0o777)";
        Expect::Errno(&[libc::EROFS]).check(run(SandboxChoice::Full, library).answer())?;
        let outside = "os.chmod(facts['folder'] + '/mode', 0o777)";
        Expect::Errno(&[libc::ENOENT]).check(run(SandboxChoice::Full, outside).answer())?;
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials("files", ATTEMPTS);
    all.push(Trial::test(
        "files::the_whole_library_can_be_imported",
        library,
    ));
    all.push(Trial::test("files::the_event_loop_works", event_loop));
    all.push(Trial::test(
        "files::modes_and_times_do_not_change",
        modes_do_not_change,
    ));
    all
}
