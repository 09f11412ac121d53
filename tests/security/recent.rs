//! Ways by which programs got out of other sandboxes in the last years, or were given too much by them.

use libtest_mimic::Trial;

use crate::attempt::{Attempt, EACCES, Expect, trials};

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        // CVE-2024-42318: a child gave its parent credentials of before the rules of Landlock.
        name: "no_rule_is_shed_by_a_keyring_of_the_parent",
        program: "k = facts['sys']['SYS_keyctl']\n\
            try: pid = os.fork()\n\
            except OSError: pid = None\n\
            if pid == 0: os._exit(code_of(k, 1, 0) or code_of(k, 18))\n\
            result = code_of(k, 18) if pid is None else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])",
        control: Expect::Gives("0"),
        confined: Expect::Gives("1"),
    },
    Attempt {
        // CVE-2025-38352: timers on processor clocks, raced against the end of their thread.
        name: "no_timer_runs_on_a_processor_clock",
        program: "n = {'x86_64': 230, 'aarch64': 115}[os.uname().machine]; s = {'x86_64': 38, 'aarch64': 103}[os.uname().machine]\n\
            result = codes((n, 2, 1, text(bytes(16)), 0), (s, 1, text(bytes(32)), 0), (s, 2, text(bytes(32)), 0))",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[22, 22, 22]"),
    },
    Attempt {
        // CVE-2007-4559, CVE-2025-4517: a library writes on an archive's word, through a link that it made itself.
        name: "no_archive_is_unpacked_outside",
        program: "import io, tarfile; made = io.BytesIO(); t = tarfile.open(fileobj=made, mode='w')\n\
            link = tarfile.TarInfo('there'); link.type = tarfile.SYMTYPE; link.linkname = facts['folder']; t.addfile(link)\n\
            name = 'unpacked-%d' % os.getpid(); file = tarfile.TarInfo('there/' + name); file.size = 1; t.addfile(file, io.BytesIO(b'x')); t.close()\n\
            made.seek(0); t = tarfile.open(fileobj=made)\n\
            how = {'filter': 'fully_trusted'} if hasattr(tarfile, 'fully_trusted_filter') else {}\n\
            try: t.extractall('.', **how)\n\
            except FileExistsError: raise PermissionError(13, 'its link leads nowhere')\n\
            open(os.path.join(facts['folder'], name)).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        // Python's own `open` may be watched; a database opens files by itself.
        name: "no_database_is_written_outside",
        program: "import sqlite3; d = sqlite3.connect(':memory:'); d.execute('create table t(x)'); d.commit()\n\
            d.execute(\"vacuum into '%s/base-%d'\" % (facts['folder'], os.getpid()))",
        control: Expect::Succeeds,
        confined: Expect::Raises("OperationalError"),
    },
    Attempt {
        name: "no_database_outside_is_joined",
        program: "import sqlite3; d = sqlite3.connect(':memory:')\n\
            try: d.execute(\"attach '%s' as other\" % facts['file']); d.execute('select * from other.sqlite_master')\n\
            except sqlite3.DatabaseError as e:\n\
            \x20   if 'not a database' not in str(e): raise",
        control: Expect::Succeeds,
        confined: Expect::Raises("OperationalError"),
    },
    Attempt {
        name: "no_library_outside_is_loaded",
        program: "ctypes.CDLL(facts['library'])",
        control: Expect::Succeeds,
        confined: Expect::Raises("OSError"),
    },
    Attempt {
        // Landlock before 6.18 and file servers alike: a folder that is moved while it is held open.
        name: "a_folder_moved_under_its_holder_leads_nowhere",
        program: "os.makedirs('a/b'); d = os.open('a/b', os.O_RDONLY); os.rename('a/b', 'c'); os.rmdir('a')\n\
            os.read(os.open('../../../../../../../..' + facts['file'], os.O_RDONLY, dir_fd=d), 1)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_folder_removed_under_its_holder_leads_nowhere",
        program: "top = os.getcwd(); os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n\
            os.read(os.open(facts['file'], os.O_RDONLY, dir_fd=os.open('/', os.O_PATH)), 1)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        // What exploits need first: addresses (/sys/kernel/notes, CVE-2024-26816), modules, connections of the machine.
        name: "the_kernel_tells_nothing_of_itself",
        program: "result = []\n\
            for path in ('/proc/kallsyms', '/proc/modules', '/proc/net/tcp', '/proc/net/unix', '/proc/interrupts', '/proc/version', \
            '/proc/sys/kernel/osrelease', '/proc/sys/kernel/random/boot_id', '/sys/kernel/notes', '/sys/class/net', '/sys/fs/cgroup/cgroup.procs'):\n\
            \x20   try: os.listdir(path) if path == '/sys/class/net' else open(path, 'rb').read(1)\n\
            \x20   except OSError: continue\n\
            \x20   result.append(path)",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        name: "no_folder_of_everybody_is_written",
        program: "result = []\n\
            for folder in ('/var/tmp', '/dev/shm', '/run/lock', '/dev/mqueue', '/var/lock', '/run/user/%d' % os.getuid()):\n\
            \x20   path = '%s/ptc-%d' % (folder, os.getpid())\n\
            \x20   try: open(path, 'x').close(); os.unlink(path)\n\
            \x20   except OSError: continue\n\
            \x20   result.append(folder)",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        // A terminal takes characters as if they had been typed (CVE-2023-28339, CVE-2017-5226).
        name: "no_terminal_is_made",
        program: "os.openpty()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "no_device_but_one_is_opened",
        program: "result = []\n\
            for name in ('full', 'random', 'urandom', 'tty', 'ptmx', 'fuse', 'net/tun', 'kvm', 'vsock', 'vhost-vsock', 'vhost-net', 'loop-control', \
            'userfaultfd', 'kmsg', 'mem', 'port', 'uinput', 'snd/timer', 'dri/card0', 'dma_heap/system', 'udmabuf', 'console', 'rtc0', 'hpet', 'zero'):\n\
            \x20   try: os.close(os.open('/dev/' + name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))\n\
            \x20   except OSError: continue\n\
            \x20   result.append(name)",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        // What is touched, though not written: a device that is shared with the machine.
        name: "the_one_device_keeps_its_times_and_mode",
        program: "before = os.stat('/dev/null'); own = os.open('own', os.O_CREAT | os.O_RDWR)\n\
            os.utime(own)\n\
            try: os.utime('/dev/null')\n\
            except OSError: pass\n\
            after = os.stat('/dev/null'); result = before.st_mtime_ns == after.st_mtime_ns and before.st_mode == after.st_mode",
        control: Expect::Gives("false"),
        confined: Expect::Gives("true"),
    },
];

/// Numbers and commands that only x86_64 has.
const OF_X86: &[Attempt] = &[
    Attempt {
        // Segments of one's own are where 16-bit code, and many a hole of the kernel's entry, came from.
        name: "no_segment_is_described",
        program: "result = codes((154, 0, text(bytes(64)), 64), (154, 0x11, text(bytes(16)), 16), (154, 1, text(bytes(16)), 16))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        // Registers, CPUID, tiles, shadow stacks, address masks.
        name: "no_feature_of_the_processor_is_switched",
        program: "result = unrefused((n, code_of(158, n, text(bytes(64)))) for n in (0x1001, 0x1003, 0x1004, 0x1011, 0x1012, 0x1021, 0x1022, 0x1023, 0x2001, 0x2003, 0x3001, 0x4001, 0x4002, 0x5001, 0x5005))",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        // sysfs, ustat, uselib, getpmsg and the like: old, seldom used, seldom looked at.
        name: "no_call_of_old_is_answered",
        program: "result = codes((139, 3, 0, 0), (136, os.stat('.').st_dev, text(bytes(64))), (253,), (160, 7, text(bytes(16))))",
        control: Expect::Differs("[1, 1, 1, 1]"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
];

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials("recent", ATTEMPTS);
    let of_x86 = trials("recent", OF_X86);
    if cfg!(target_arch = "x86_64") {
        all.extend(of_x86);
    } else {
        all.extend(of_x86.into_iter().map(|trial| {
            trial
                .with_kind("only x86_64 has them")
                .with_ignored_flag(true)
        }));
    }
    all
}
