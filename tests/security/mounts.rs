//! What a program sees of the file systems is not rearranged: no namespace, no mount, no other root.

use libtest_mimic::Trial;

use crate::attempt::{Attempt, EPERM, Expect, trials};

/// A mount namespace, in which an unprivileged user may mount.
/// Each attempt first makes one for itself, so that without confinement it succeeds.
const ATTEMPTS: &[Attempt] = &[
    Attempt {
        // CVE-2022-0492 and most container escapes of a user without privileges begin here.
        name: "no_namespace_of_any_kind_is_made",
        program: "enter(0)\n\
            result = codes(*[(facts['sys']['SYS_unshare'], kind) for kind in \
            (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x40000000, 0x80)])",
        control: Expect::Gives("[0, 0, 0, 0, 0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1, 1, 1, 1, 1]"),
    },
    Attempt {
        // Not a namespace, but sharing undone: descriptors, working folder, semaphores.
        name: "nothing_shared_is_undone",
        program: "result = codes(*[(facts['sys']['SYS_unshare'], kind) for kind in (0x400, 0x200, 0x40000)])",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "no_namespace_is_joined",
        program: "enter(0x20000)\n\
            try: n = os.open('/proc/self/ns/mnt', os.O_RDONLY)\n\
            except OSError: n = 0\n\
            syscall(facts['sys']['SYS_setns'], n, 0x20000)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // The oldest escape: a root below the working folder, then upwards.
        name: "no_other_root_is_taken",
        program: "enter(0x20000); os.mkdir('r'); os.chroot('r')",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "no_root_is_pivoted",
        program: "enter(0x20000); syscall(facts['sys']['SYS_pivot_root'], text(b'.'), text(b'.'))",
        control: Expect::Errno(&[libc::EINVAL, libc::EBUSY]),
        confined: EPERM,
    },
    Attempt {
        // CVE-2022-0185: the heap overflow of the new mount interface. CVE-2023-0386 and CVE-2023-2640 need an overlay.
        name: "no_file_system_is_configured",
        program: "enter(0x20000); result = codes((430, text(b'tmpfs'), 0), (430, text(b'overlay'), 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "no_file_system_is_made_of_a_configuration",
        program: "enter(0x20000)\n\
            try: f = syscall(430, text(b'tmpfs'), 0)\n\
            except OSError: f = -1\n\
            result = codes((431, f, 6, 0, 0, 0), (432, f, 0, 0))",
        control: Expect::Gives("[0, 0]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "no_mount_is_picked_up",
        program: "enter(0x20000); syscall(433, -100, text(b'/'), 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "no_tree_of_mounts_is_copied",
        program: "enter(0x20000); result = codes((428, -100, text(b'.'), 0x8001), (467, -100, text(b'.'), 1, 0, 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "no_mount_is_moved",
        program: "enter(0x20000); os.mkdir('to')\n\
            try: t = syscall(428, -100, text(b'.'), 1)\n\
            except OSError: t = -1\n\
            syscall(429, t, text(b''), -100, text(b'to'), 4)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        // A read-only mount would be one no more.
        name: "no_mount_is_made_writable",
        program: "enter(0x20000)\n\
            try: t = syscall(428, -100, text(b'.'), 1)\n\
            except OSError: t = -1\n\
            syscall(442, t, text(b''), 0x1000, text(bytes(32)), 32)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "what_is_mounted_over_is_not_laid_bare",
        program: "enter(0x20000); s = facts['sys']; os.mkdir('over')\n\
            code_of(s['SYS_mount'], 0, text(b'over'), text(b'tmpfs'), 0, 0)\n\
            result = codes((s['SYS_umount2'], text(b'over'), 2), (s['SYS_umount2'], text(b'/tmp'), 2))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "mounts_are_not_listed",
        program: "result = codes((457, text(bytes(64)), text(bytes(512)), 512, 0), (458, text(bytes(64)), text(bytes(512)), 8, 0), \
            (470, text(bytes(64)), text(bytes(512)), 8, 0))",
        control: Expect::Differs("[38, 38, 1]"),
        confined: Expect::Gives("[38, 38, 1]"),
    },
    Attempt {
        // The `shocker` of 2014: a file by the number of its inode, whatever path may be seen.
        name: "a_handle_opens_no_file_of_another_root",
        program: "s = facts['sys']; h = text((128).to_bytes(4, 'little') + bytes(132)); m = text(bytes(8))\n\
            made = code_of(s['SYS_name_to_handle_at'], -100, text(b'/'), h, m, 0)\n\
            result = [made, code_of(s['SYS_open_by_handle_at'], os.open('.', 0), h, 0)]",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "quotas_are_not_asked",
        program: "result = codes((443, os.open('.', 0), 0x800004 << 8, 0, 0))",
        control: Expect::Differs("[1]"),
        confined: Expect::Gives("[1]"),
    },
    Attempt {
        name: "the_machine_is_not_named",
        program: "enter(0x4000000); import socket; socket.sethostname('x')",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "file_systems_are_not_flushed",
        program: "s = facts['sys']; d = os.open('.', 0)\n\
            result = codes((s['SYS_sync'],), (s['SYS_syncfs'], d), (s['SYS_sync_file_range'], os.open('f', os.O_CREAT | os.O_RDWR), 0, 0, 0))",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "security_modules_are_not_asked",
        program: "result = codes((461, text(bytes(64)), text((64).to_bytes(4, 'little')), 0), (459, 100, 0, text(bytes(4)), 0), (460, 100, 0, 0, 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
];

pub(crate) fn all() -> Vec<Trial> {
    trials("mounts", ATTEMPTS)
}
