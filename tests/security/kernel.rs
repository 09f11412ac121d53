//! The kernel offers a program little: no network, no other memory than its own, none of the seldom used interfaces.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use serde_json::json;

use crate::attempt::{Attempt, EACCES, EPERM, Expect, trials};
use crate::lab::{run, tiers};

const ABSENT: Expect = Expect::Errno(&[libc::ENOSYS]);
/// Nothing that a program without privileges does can succeed here.
const NO_CONTROL: Expect = Expect::OtherThan(&[]);
/// The kernel itself looked at the call.
const REACHES: Expect = Expect::OtherThan(&[libc::EPERM, libc::ENOSYS]);

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "a_port_is_not_reached",
        program: "import socket; socket.create_connection(('127.0.0.1', facts['port']), 5)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_socket_file_is_not_reached",
        program: "import socket; socket.socket(socket.AF_UNIX).connect(facts['socket'])",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "an_abstract_socket_is_not_reached",
        program: "import socket; socket.socket(socket.AF_UNIX).connect('\\0' + facts['abstract'])",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_stream_pair_works",
        program: "import socket; a, b = socket.socketpair(); a.send(b'x'); result = b.recv(1).decode()",
        control: Expect::Gives("\"x\""),
        confined: Expect::Gives("\"x\""),
    },
    Attempt {
        name: "a_datagram_pair_is_refused",
        program: "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_raw_pair_which_is_a_datagram_pair_is_refused",
        program: "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_packet_pair_is_refused",
        program: "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_pair_is_not_aimed_elsewhere",
        program: "import socket; a, b = socket.socketpair(); a.connect(facts['socket'])",
        control: Expect::Errno(&[libc::EISCONN]),
        confined: EPERM,
    },
    Attempt {
        name: "a_message_has_no_address",
        program: "import socket; a, b = socket.socketpair(); a.sendto(b'x', facts['socket'])",
        control: Expect::Errno(&[libc::EISCONN, libc::EOPNOTSUPP]),
        confined: EPERM,
    },
    Attempt {
        name: "an_address_above_four_gigabytes_is_an_address",
        program: "import socket; a, b = socket.socketpair(); t = ctypes.create_string_buffer(b'x')\n\
            n = {'x86_64': 44, 'aarch64': 206}[os.uname().machine]\n\
            syscall(n, a.fileno(), ctypes.addressof(t), 1, 0, 1 << 32, 16)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "no_descriptor_is_sent",
        program: "import socket, array; a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0])",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "no_message_out_of_band_is_sent",
        program: "import socket; a, b = socket.socketpair(); a.send(b'x', socket.MSG_OOB)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "a_pidfd_of_the_peer_is_not_had",
        program: "import socket; socket.socket(fileno=os.dup(3)).getsockopt(1, 77)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "the_peer_is_not_named",
        program: "import socket; socket.socket(fileno=os.dup(3)).getsockopt(1, socket.SO_PEERCRED, 12)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "names_are_not_resolved",
        program: "import socket\ntry: socket.getaddrinfo('localhost', 80)\n\
            except socket.gaierror: raise PermissionError(1, 'x')",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "memory_is_not_writable_and_executable",
        program: "import mmap; mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "memory_is_not_made_executable",
        program: "import mmap; m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
            a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
            syscall(facts['sys']['SYS_mprotect'], a, 4096, 5)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "memory_without_a_file_is_not_executable",
        program: "syscall(facts['sys']['SYS_mmap'], 0, 4096, 5, 0x22, -1, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "memory_that_grows_down_is_refused",
        program: "syscall(facts['sys']['SYS_mmap'], 0, 4096, 3, 0x122, -1, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "shared_memory_without_a_file_is_refused",
        program: "import mmap; mmap.mmap(-1, 4096)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "private_memory_and_file_mappings_work",
        program: "import mmap; m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[0] = 1\n\
            f = open('x', 'w+b'); f.write(b'x' * 4096); f.flush(); g = mmap.mmap(f.fileno(), 0); g[0] = 65; g.flush()\n\
            f.seek(0); result = f.read(1).decode()",
        control: Expect::Gives("\"A\""),
        confined: Expect::Gives("\"A\""),
    },
    Attempt {
        name: "memory_is_not_locked",
        program: "syscall(facts['sys']['SYS_mlock'], 0, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "memory_files_look_absent",
        program: "os.memfd_create('x')",
        control: Expect::Succeeds,
        confined: ABSENT,
    },
    Attempt {
        name: "openat2_looks_absent",
        program: "syscall(facts['sys']['SYS_openat2'], -1, 0, 0, 0)",
        control: REACHES,
        confined: ABSENT,
    },
    Attempt {
        name: "open_by_handle_is_refused",
        program: "syscall(facts['sys']['SYS_open_by_handle_at'], -1, 0, 0)",
        control: Expect::OtherThan(&[libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        // CVE-2022-1786 and CVE-2016-0728 grew from what these make.
        name: "keys_are_refused",
        program: "s = facts['sys']\n\
            result = codes((s['SYS_add_key'], text(b'user'), text(b'ptc'), text(b'x'), 1, -2), (s['SYS_keyctl'], 0, -2, 1), \
            (s['SYS_request_key'], text(b'user'), text(b'ptc'), 0, -2))",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        // The kernel itself refuses it to users (kernel.unprivileged_bpf_disabled); that the filter does so, too, is shown
        // by the sweep over all numbers only.
        name: "bpf_is_refused",
        program: "syscall(facts['sys']['SYS_bpf'], 0xffff, 0, 0)",
        control: NO_CONTROL,
        confined: EPERM,
    },
    Attempt {
        // CVE-2024-0582 and dozens more; sandboxes that filter calls do not see what a ring is asked.
        name: "io_uring_looks_absent",
        program: "syscall(facts['sys']['SYS_io_uring_setup'], 1, text(bytes(120)))",
        control: Expect::Succeeds,
        confined: ABSENT,
    },
    Attempt {
        name: "userfaultfd_is_refused",
        program: "syscall(facts['sys']['SYS_userfaultfd'], 1)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "perf_events_are_refused",
        program: "syscall(facts['sys']['SYS_perf_event_open'], 0, 0, -1, -1, 0)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "asynchronous_input_is_refused",
        program: "syscall(facts['sys']['SYS_io_setup'], 1, 0)",
        control: REACHES,
        confined: EPERM,
    },
    Attempt {
        name: "no_further_filter_or_ruleset_is_made",
        program: "s = facts['sys']; result = codes((s['SYS_seccomp'], 2, 0, text(bytes(4))), \
            (s['SYS_landlock_create_ruleset'], 0, 0, 1), (s['SYS_prctl'], 22, 2, 0))",
        control: Expect::Gives("[0, 0, 14]"),
        confined: Expect::Gives("[1, 1, 22]"),
    },
    Attempt {
        name: "the_personality_is_not_changed",
        program: "syscall(facts['sys']['SYS_personality'], 0xffffffff)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "mounts_are_refused",
        program: "enter(0x20000); s = facts['sys']; os.mkdir('m')\n\
            result = codes((s['SYS_mount'], 0, text(b'm'), text(b'tmpfs'), 0, 0), (s['SYS_open_tree'], -100, text(b'm'), 1))",
        control: Expect::Gives("[0, 0]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "old_interprocess_communication_is_refused",
        program: "enter(0x8000000); s = facts['sys']\n\
            result = codes((s['SYS_shmget'], 0, 4096, 0o1600), (s['SYS_semget'], 0, 1, 0o1600), \
            (s['SYS_mq_open'], text(b'ptc'), 0o102, 0o600, 0))",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "shared_memory_by_name_is_refused",
        program: "from multiprocessing import shared_memory as s, resource_tracker as t\n\
            t.register = t.unregister = print\n\
            m = s.SharedMemory(create=True, size=64); m.unlink()",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EACCES, libc::EPERM]),
    },
    Attempt {
        name: "watching_is_refused",
        program: "s = facts['sys']\n\
            result = codes((s['SYS_inotify_init1'], 0), (s['SYS_fanotify_init'], 0x200, 0), (s['SYS_signalfd4'], -1, text(bytes(8)), 8, 0))",
        control: Expect::Gives("[0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "timers_with_signals_are_refused",
        program: "t = ctypes.c_int(); syscall(facts['sys']['SYS_timer_create'], 1, 0, ctypes.addressof(t))",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "pages_are_not_spliced",
        program: "s = facts['sys']; result = [code_of(s['SYS_splice'], -1, 0, -1, 0, 1, 0), \
            code_of(s['SYS_vmsplice'], -1, 0, 0, 0)]",
        control: Expect::Gives("[9, 9]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "the_kernel_log_is_not_read",
        program: "syscall(facts['sys']['SYS_syslog'], 10, 0, 0)",
        control: Expect::OtherThan(&[libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        // Signals for a socket, their receiver, and a character typed into a terminal (CVE-2023-28339), which is none here.
        name: "a_descriptor_is_not_steered",
        program: "import fcntl, socket; a, b = socket.socketpair(); result = []\n\
            for number, value in ((0x5452, 1), (0x8901, 0), (0x5412, 0)):\n\
            \x20   try: fcntl.ioctl(a, number, value.to_bytes(4, 'little')); result.append(0)\n\
            \x20   except OSError as e: result.append(e.errno)",
        control: Expect::Gives("[0, 0, 25]"),
        confined: Expect::Gives("[25, 25, 25]"),
    },
    Attempt {
        name: "a_pipe_is_no_queue_of_notifications",
        program: "os.pipe2(os.O_EXCL)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
];

/// Every family of sockets but the stream pair is closed.
fn families() -> Result<(), Failed> {
    let program = "import socket\nfound = {}\n\
        for family in range(46):\n\
        \x20   for kind in (1, 2, 3, 5):\n\
        \x20       try: socket.socket(family, kind).close()\n\
        \x20       except OSError as error: found.setdefault(error.errno, []).append(family)\n\
        \x20       else: found.setdefault(0, []).append(family)\n\
        result = sorted(found)";
    let control = run(SandboxChoice::None, program);
    assert!(
        control.answer()["ok"]
            .as_array()
            .unwrap()
            .contains(&json!(0)),
        "{control:?}"
    );
    for tier in tiers() {
        assert_eq!(run(*tier, program).answer()["ok"], json!([libc::EPERM]));
    }
    Ok(())
}

/// Only the four descriptors a worker is given are open, and a list of them is not to be had.
fn descriptors() -> Result<(), Failed> {
    let program = "def is_open(n):\n    try: os.fstat(n)\n    except OSError: return False\n    return True\n\
        result = [n for n in range(1024) if is_open(n)]";
    for choice in [SandboxChoice::None].iter().chain(tiers()) {
        assert_eq!(run(*choice, program).answer()["ok"], json!([0, 1, 2, 3]));
    }
    let list = "os.listdir('/dev/fd')";
    Expect::Succeeds.check(run(SandboxChoice::None, list).answer())?;
    for tier in tiers() {
        // A container has a /proc, which shows a process its own descriptors.
        if *tier != SandboxChoice::Container {
            EACCES.holds_in(*tier, run(*tier, list).answer())?;
        }
    }
    Ok(())
}

/// x86_64's 32-bit numbers end the process: nothing else is known to make them.
fn other_numbers() -> Result<(), Failed> {
    for tier in tiers() {
        let confined = run(*tier, "syscall(0x40000000 | 39)");
        assert_eq!(
            (confined.answer, confined.exit.signal),
            (None, Some(libc::SIGSYS))
        );
    }
    let control = run(SandboxChoice::None, "syscall(0x40000000 | 39)");
    Expect::OtherThan(&[libc::EPERM]).check(control.answer())
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials("kernel", ATTEMPTS);
    all.push(Trial::test(
        "kernel::every_family_of_sockets_is_refused",
        families,
    ));
    all.push(Trial::test(
        "kernel::only_the_given_descriptors_are_open",
        descriptors,
    ));
    let other = Trial::test(
        "kernel::numbers_of_another_interface_end_the_worker",
        other_numbers,
    );
    all.push(if cfg!(target_arch = "x86_64") {
        other
    } else {
        other
            .with_kind("only x86_64 has them")
            .with_ignored_flag(true)
    });
    all
}
