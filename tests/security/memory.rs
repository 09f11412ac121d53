//! Memory is the program's own, holds no new code, and is asked for by named flags only.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;

use crate::attempt::{Attempt, EPERM, Expect, trials};
use crate::lab::{lack_of_full, run, tiers};

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        // Lists that name mprotect only are passed by this newer form of it.
        name: "the_form_with_keys_makes_no_code",
        program: "import mmap; m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
            a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
            syscall(facts['sys']['SYS_pkey_mprotect'], a, 4096, 5, -1)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // Where READ implies EXEC, no filter sees the code that a mapping becomes.
        name: "reading_does_not_come_to_imply_running",
        program: "syscall(facts['sys']['SYS_personality'], 0x400000)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // Writing to one's own memory by file passes every protection of pages.
        name: "own_memory_is_not_written_by_file",
        program: "open('/proc/self/mem', 'r+b').close()",
        control: Expect::Succeeds,
        confined: crate::attempt::EACCES,
    },
    Attempt {
        name: "mappings_take_only_named_flags",
        program: "flags = (0x2000, 0x8000, 0x100, 0x40000); m = facts['sys']['SYS_mmap']\n\
            result = [code_of(m, 0, 4096, 3, 0x22 | flag, -1, 0) for flag in flags]",
        // LOCKED, POPULATE, GROWSDOWN; the huge page may be lacking.
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
    Attempt {
        // MAP_DROPPABLE and MAP_SHARED_VALIDATE: kinds, not flags.
        name: "mappings_are_of_two_kinds_only",
        program: "f = os.open('f', os.O_CREAT | os.O_RDWR); os.ftruncate(f, 4096); m = facts['sys']['SYS_mmap']\n\
            result = codes((m, 0, 4096, 3, 3, f, 0), (m, 0, 4096, 3, 0x28, -1, 0), (m, 0, 4096, 3, 0x21, -1, 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "mappings_are_not_put_over_others_by_a_move",
        program: "import mmap; new = lambda: ctypes.addressof(ctypes.c_char.from_buffer(mmap.mmap(-1, 8192, flags=0x22)))\n\
            keep = [mmap.mmap(-1, 8192, flags=0x22) for _ in range(3)]\n\
            a, b, c = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in keep); s = facts['sys']['SYS_mremap']\n\
            result = codes((s, a, 4096, 4096, 3, b), (s, c, 4096, 4096, 5, 0))",
        control: Expect::Gives("[0, 0]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        // MERGEABLE shows by its timing what other processes hold; DONTFORK, REMOVE, COLLAPSE, POPULATE are nobody's need.
        name: "memory_is_advised_by_name",
        program: "import mmap; m = mmap.mmap(-1, 8192, flags=0x22); a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
            result = [code_of(facts['sys']['SYS_madvise'], a, 4096, n) for n in (12, 10, 16, 18, 22, 9, 25)]",
        control: Expect::Differs("[22, 22, 22, 22, 22, 22, 22]"),
        confined: Expect::Gives("[22, 22, 22, 22, 22, 22, 22]"),
    },
    Attempt {
        name: "memory_is_not_locked_by_any_call",
        program: "s = facts['sys']; p = text(bytes(8))\n\
            result = codes((s['SYS_mlock2'], p, 1, 1), (s['SYS_mlockall'], 4 | 1), (s['SYS_munlockall'],))",
        control: Expect::Differs("[1, 1, 1]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        // "Page Cache Attacks" (2019): which pages of a shared library others have just used.
        name: "the_page_cache_is_not_looked_into",
        program: "import mmap; m = mmap.mmap(-1, 4096, flags=0x22); a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
            f = os.open('f', os.O_CREAT | os.O_RDWR); s = facts['sys']\n\
            result = codes((s['SYS_mincore'], a, 4096, text(bytes(8))), (451, f, text(bytes(16)), text(bytes(40)), 0), \
            (s['SYS_readahead'], f, 0, 0))",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        // CVE-2023-4611 and CVE-2022-2586's kind: rarely used calls on memory policy.
        name: "memory_has_no_policy",
        program: "s = facts['sys']; p = text(bytes(8))\n\
            result = codes((s['SYS_set_mempolicy'], 0, 0, 0), (s['SYS_get_mempolicy'], 0, 0, 0, 0, 0), \
            (s['SYS_mbind'], 0, 0, 0, 0, 0, 0), (s['SYS_move_pages'], 0, 0, 0, 0, 0, 0), (s['SYS_migrate_pages'], 0, 0, 0, 0))",
        control: Expect::Differs("[1, 1, 1, 1, 1]"),
        confined: Expect::Gives("[1, 1, 1, 1, 1]"),
    },
    Attempt {
        name: "memory_is_not_sealed_or_shadowed",
        program: "import mmap; m = mmap.mmap(-1, 4096, flags=0x22); a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
            result = codes((462, a, 4096, 0), (453, 0, 4096, 0), (447, 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 38]"),
    },
    Attempt {
        name: "memory_of_another_is_not_reaped",
        program: "syscall(448, -1, 0)",
        control: Expect::Errno(&[libc::EBADF]),
        confined: EPERM,
    },
    Attempt {
        name: "pages_of_a_file_are_not_reordered",
        program: "f = os.open('f', os.O_CREAT | os.O_RDWR); os.ftruncate(f, 8192); s = facts['sys']\n\
            a = syscall(s['SYS_mmap'], 0, 8192, 3, 1, f, 0)\n\
            syscall(s['SYS_remap_file_pages'], a, 4096, 0, 1, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // Faults that a program handles itself hold the kernel still in the middle of a copy (CVE-2024-50066's kind).
        name: "faults_are_not_handled_by_the_program",
        program: "result = codes((facts['sys']['SYS_userfaultfd'], 1), (facts['sys']['SYS_openat'], -100, text(b'/dev/userfaultfd'), 2))",
        control: Expect::Begins("0"),
        confined: Expect::Differs("[0, 0]"),
    },
    Attempt {
        // Towelroot (CVE-2014-3153) and CVE-2021-3347: locks that lend priority.
        name: "locks_lend_no_priority",
        program: "f = text(bytes(8)); s = facts['sys']['SYS_futex']\n\
            result = [code_of(s, f, operation, 0, 0, 0, 0) for operation in (6, 7, 8, 11, 12, 13)]",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1, 1, 1, 1]"),
    },
    Attempt {
        name: "newer_locks_look_absent_or_are_refused",
        program: "f = text(bytes(8)); result = codes((449, 0, 0, 0, 0, 0), (454, f, 1, 1, 2), (455, f, 1, 1, 2, 0, 0), (456, 0, 0, 0, 0))",
        control: Expect::Differs("[38, 1, 1, 1]"),
        confined: Expect::Gives("[38, 1, 1, 1]"),
    },
    Attempt {
        // Lists that the kernel walks when a thread ends, areas it writes when it is scheduled.
        name: "the_kernel_writes_nowhere_when_a_thread_ends_or_moves",
        program: "s = facts['sys']\n\
            result = codes((s['SYS_set_robust_list'], text(bytes(24)), 24), (s['SYS_get_robust_list'], 0, text(bytes(8)), text(bytes(8))), \
            (s['SYS_rseq'], text(bytes(64)), 32, 0, 0), (s['SYS_membarrier'], 0, 0, 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
    Attempt {
        name: "randomness_is_asked_for_by_name",
        program: "syscall(facts['sys']['SYS_getrandom'], text(bytes(8)), 8, 4)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
];

/// On x86_64 the same kernel answers the numbers of 32-bit programs, at an instruction that stands by chance in any
/// library. Lists of numbers that do not look at the architecture are passed by it.
const OTHER_ENTRY: &str = "import struct, signal, re\n\
    class Info(ctypes.Structure): _fields_ = [('name', ctypes.c_char_p), ('base', ctypes.c_size_t), ('a', ctypes.c_char_p), ('b', ctypes.c_size_t)]\n\
    info = Info(); c = ctypes.CDLL(None)\n\
    c.dladdr(ctypes.cast(c.syscall, ctypes.c_void_p), ctypes.byref(info))\n\
    data = open(info.name.decode(), 'rb').read(); table = struct.unpack_from('<Q', data, 32)[0]; found = []\n\
    for n in range(struct.unpack_from('<H', data, 56)[0]):\n\
    \x20   kind, flags, at, where, _, size = struct.unpack_from('<IIQQQQ', data, table + n * 56)\n\
    \x20   if kind == 1 and flags & 1: found += [info.base + where + m.start() for m in re.finditer(b'\\xcd\\x80', data[at:at + size])]\n\
    enter32 = found[0]\n\
    def go():\n\
    \x20   signal.setitimer(signal.ITIMER_REAL, 2); signal.signal(signal.SIGALRM, signal.SIG_DFL)\n\
    \x20   class Call(ctypes._CFuncPtr): _flags_ = 1; _restype_ = ctypes.c_int\n\
    \x20   Call(enter32)()\n";

fn the_other_entry_ends_the_worker() -> Result<(), Failed> {
    // In a child, for what stands behind the instruction is no code.
    let control = format!(
        "{OTHER_ENTRY}pid = os.fork()\nif pid == 0: go(); os._exit(0)\nresult = os.waitpid(pid, 0)[1] & 127"
    );
    let outcome = run(SandboxChoice::None, &control);
    let answer = &outcome.answer()["ok"];
    assert!(
        answer
            .as_i64()
            .is_some_and(|signal| signal != i64::from(libc::SIGSYS)),
        "{outcome:?}"
    );
    for tier in tiers() {
        let outcome = run(*tier, &format!("{OTHER_ENTRY}go()"));
        assert_eq!(
            (outcome.answer, outcome.exit.signal),
            (None, Some(libc::SIGSYS)),
            "{tier:?}"
        );
    }
    Ok(())
}

/// A library in scratch is loaded without confinement, and not where scratch holds no code.
fn no_library_is_loaded_from_scratch() -> Result<(), Failed> {
    let program =
        "import _ctypes, shutil; shutil.copyfile(_ctypes.__file__, 'x.so'); ctypes.CDLL('./x.so')";
    Expect::Succeeds.check(run(SandboxChoice::None, program).answer())?;
    Expect::Raises("OSError").check(run(SandboxChoice::Full, program).answer())
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials("memory", ATTEMPTS);
    let entry = Trial::test(
        "memory::the_entry_of_32_bit_programs_ends_the_worker",
        the_other_entry_ends_the_worker,
    );
    all.push(if cfg!(target_arch = "x86_64") {
        entry
    } else {
        entry
            .with_kind("only x86_64 has it")
            .with_ignored_flag(true)
    });
    let library = Trial::test(
        "memory::no_library_is_loaded_from_scratch",
        no_library_is_loaded_from_scratch,
    );
    all.push(match lack_of_full() {
        None => library,
        Some(reason) => library.with_kind(reason).with_ignored_flag(true),
    });
    all
}
