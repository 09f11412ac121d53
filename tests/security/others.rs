//! Other processes are neither reached nor learned of, and the program stays who it is.

use libtest_mimic::Trial;

use crate::attempt::{Attempt, DENIED, EACCES, EPERM, Expect, trials};

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        // Copies of a process by flags that a list of a few may have forgotten.
        name: "a_process_by_unusual_flags_is_refused",
        program: "s = facts['sys']['SYS_clone']; result = []\n\
            for flags in (0x8000 | 17, 0x800000 | 17, 0x200000 | 17, 0x80000000 | 17, 0):\n\
            \x20   try:\n\
            \x20       pid = syscall(s, flags, 0, 0, 0, 0)\n\
            \x20       if pid == 0: os._exit(0)\n\
            \x20       result.append(0)\n\
            \x20   except OSError as e: result.append(e.errno)",
        control: Expect::Gives("[0, 0, 0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1, 1, 1]"),
    },
    Attempt {
        // The flags of a thread and one more, or one less: only the exact sets are threads.
        name: "a_thread_by_other_flags_is_refused",
        program: "s = facts['sys']['SYS_clone']\n\
            result = [code_of(s, flags, 0, 0, 0, 0) for flags in (0x3d0f00 | 0x10000000, 0x3d0f00 | 0x1000, 0x3d0f00 & ~0x800)]",
        control: Expect::Gives("[22, 22, 22]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        // PIDFD_SELF, a name for oneself that needs no descriptor.
        name: "no_signal_by_the_names_of_oneself",
        program: "result = codes((424, -10002, 0, 0, 0), (424, -10001, 0, 0, 0))",
        control: Expect::Differs("[1, 1]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "a_queued_signal_for_a_thread_is_refused",
        program: "b = text(b'\\x1c\\0\\0\\0' + bytes(4) + (-1).to_bytes(4, 'little', signed=True) + bytes(116)); p = os.getpid()\n\
            syscall(facts['sys']['SYS_rt_tgsigqueueinfo'], p, p, 28, b)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_process_of_the_same_user_is_not_looked_into",
        program: "open('/proc/%d/environ' % facts['peer']).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_process_of_the_same_user_is_not_traced",
        program: "syscall(facts['sys']['SYS_ptrace'], 0x4206, facts['peer'], 0, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "memory_of_another_is_not_read_or_written",
        program: "b = text(bytes(8)); v = text(b.to_bytes(8, 'little') + (8).to_bytes(8, 'little')); s = facts['sys']\n\
            result = codes((s['SYS_process_vm_readv'], facts['peer'], v, 1, v, 1, 0), (s['SYS_process_vm_writev'], facts['peer'], v, 1, v, 1, 0))",
        // The address is not mapped there.
        control: Expect::Gives("[14, 14]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "descriptors_of_another_are_not_taken",
        program: "s = facts['sys']\n\
            try: p = syscall(s['SYS_pidfd_open'], facts['peer'], 0)\n\
            except OSError: p = 0\n\
            syscall(s['SYS_pidfd_getfd'], p, 3, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "files_and_root_of_another_are_not_entered",
        program: "os.listdir('/proc/%d/root/' % facts['peer'])",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        // CVE-2024-21626: a descriptor that leads out of the root, through a link of /proc.
        name: "links_of_descriptors_lead_nowhere",
        program: "d = os.open('.', os.O_RDONLY)\n\
            open('/proc/self/fd/%d/../../../../../..%s' % (d, facts['file'])).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "the_own_root_has_no_other_name",
        program: "open('/proc/self/root' + facts['file']).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "threads_have_no_other_name_for_it",
        program: "open('/proc/thread-self/cwd/../../../../..' + facts['file']).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        // Landlock looks at no opening of a path alone; what opens it anew is looked at.
        name: "a_path_alone_opens_nothing",
        program: "f = os.open(facts['file'], os.O_PATH); open('/proc/self/fd/%d' % f).read()",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "a_path_alone_is_not_read_itself",
        program: "try: f = os.open(facts['file'], os.O_PATH)\n\
            except OSError: f = None\n\
            if f is None: raise PermissionError(13, 'not even that')\n\
            try: os.read(f, 1)\n\
            except OSError: os.close(f); f = os.open(facts['file'], os.O_RDONLY)",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "own_settings_in_proc_are_not_changed",
        program: "open('/proc/self/oom_score_adj', 'w').write('900')",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        name: "groups_of_control_are_not_listed",
        program: "os.listdir('/sys/fs')",
        control: Expect::Succeeds,
        confined: EACCES,
    },
    Attempt {
        // A supervisor of one's own calls (CVE-2022-30594's kind) would answer them in place of the kernel.
        name: "no_call_is_supervised",
        program: "f = text(b'\\x06\\0\\0\\0\\0\\0\\xff\\x7f'); p = text((1).to_bytes(8, 'little') + f.to_bytes(8, 'little'))\n\
            syscall(facts['sys']['SYS_seccomp'], 1, 8, p)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // A filter that answers success without the call makes the library believe what did not happen.
        name: "calls_are_not_made_to_lie",
        program: "f = text(b'\\x06\\0\\0\\0\\0\\0\\xff\\x7f'); p = text((1).to_bytes(8, 'little') + f.to_bytes(8, 'little'))\n\
            syscall(facts['sys']['SYS_seccomp'], 1, 0, p)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "no_narrower_rule_is_laid_on_oneself",
        program: "try: r = syscall(facts['sys']['SYS_landlock_create_ruleset'], text((4).to_bytes(8, 'little')), 8, 0)\n\
            except OSError: r = 0\n\
            syscall(facts['sys']['SYS_landlock_restrict_self'], r, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // DUMPABLE, KEEPCAPS, SECCOMP, TSC, SECUREBITS, MM, SUBREAPER, AMBIENT, SYSCALL_USER_DISPATCH, SCHED_CORE,
        // MDWE, MEMORY_MERGE, TIMER_CREATE_RESTORE_IDS, FUTEX_HASH and what comes later.
        name: "two_options_of_prctl_and_no_other",
        program: "result = unrefused((n, code_of(facts['sys']['SYS_prctl'], n, -1, -1, -1, -1)) for n in range(1, 130) if n not in (15, 16))",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        name: "calls_are_not_dispatched_to_the_program",
        program: "syscall(facts['sys']['SYS_prctl'], 59, 0, 0, 0, 0)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "orphans_are_not_adopted",
        program: "syscall(facts['sys']['SYS_prctl'], 36, 1, 0, 0, 0)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "the_processor_is_not_asked_for_favours",
        program: "s = facts['sys']; p = text(bytes(8))\n\
            result = codes((s['SYS_sched_setscheduler'], 0, 3, p), (s['SYS_sched_setattr'], 0, text(b'\\x30\\0\\0\\0\\3' + bytes(11) + b'\\x13' + bytes(31)), 0), \
            (s['SYS_ioprio_set'], 1, 0, 3 << 13), (s['SYS_sched_setparam'], 0, p))",
        control: Expect::Gives("[0, 0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
    Attempt {
        name: "others_are_not_asked_after",
        program: "s = facts['sys']; p = text(bytes(64)); n = facts['peer']\n\
            result = codes((s['SYS_getpriority'], 0, n), (s['SYS_ioprio_get'], 1, n), (s['SYS_sched_getscheduler'], n), \
            (s['SYS_sched_getaffinity'], n, 8, p), (s['SYS_getsid'], n), (s['SYS_prlimit64'], n, 7, 0, p), (s['SYS_capget'], text(b'\\x22\\x05\\x08\\x20' + n.to_bytes(4, 'little')), p))",
        control: Expect::Gives("[0, 0, 0, 0, 0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1, 1, 1, 1, 1]"),
    },
    Attempt {
        name: "nothing_is_given_away",
        program: "open('f', 'w').close(); os.chown('f', os.getuid(), os.getgid())",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_session_or_group_is_not_changed",
        program: "os.setpgid(0, os.getsid(0))",
        // It leads its session already.
        control: Expect::Errno(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "time_is_not_adjusted",
        program: "s = facts['sys']; result = codes((s['SYS_adjtimex'], text(bytes(256))), (s['SYS_clock_adjtime'], 0, text(bytes(256))), (s['SYS_timerfd_create'], 1, 0))",
        control: Expect::Differs("[1, 1, 1]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "no_device_is_made_even_of_no_kind",
        // A whiteout: the one device that every user may make.
        program: "os.mknod('w', 0o020600, 0)",
        control: Expect::Succeeds,
        confined: DENIED,
    },
    Attempt {
        name: "no_socket_file_is_made",
        program: "os.mknod('s', 0o140600)",
        control: Expect::Succeeds,
        confined: DENIED,
    },
    Attempt {
        name: "no_nameless_file_gets_a_name",
        program: "f = os.open('.', os.O_TMPFILE | os.O_RDWR)\n\
            n = {'x86_64': 265, 'aarch64': 37}[os.uname().machine]\n\
            syscall(n, -100, text(b'/proc/self/fd/%d' % f), -100, text(b'named'), 0x400)",
        control: Expect::Succeeds,
        confined: DENIED,
    },
    Attempt {
        name: "attributes_by_any_call_are_not_there",
        program: "open('f', 'w').close()\n\
            result = codes((468, -100, text(b'f'), text(bytes(24)), 24, 0), (469, -100, text(b'f'), text(bytes(24)), 24, 0), (464, -100, text(b'f'), 0, 0, 0, 0))",
        control: Expect::Differs("[1, 1, 1]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
];

pub(crate) fn all() -> Vec<Trial> {
    trials("others", ATTEMPTS)
}
