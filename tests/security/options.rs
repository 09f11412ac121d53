//! A descriptor offers what was named and no more: options, commands and flags of calls that are allowed.

use libtest_mimic::Trial;

use crate::attempt::{Attempt, EPERM, Expect, trials};

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        // PASSCRED, PASSPIDFD, ATTACH_FILTER (a program for the kernel), REUSEPORT and the rest.
        name: "no_option_of_a_socket_is_set",
        program: "import socket; a, b = socket.socketpair()\n\
            result = [code_of(facts['sys']['SYS_setsockopt'], a.fileno(), 1, o, text((1).to_bytes(4, 'little')), 4) for o in (16, 76, 7, 2)]",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
    Attempt {
        // PEERCRED, PEERSEC, PEERGROUPS, PEERPIDFD, COOKIE, and options of every other level.
        name: "only_named_options_of_a_socket_are_asked",
        program: "import socket; a, b = socket.socketpair(); named = (3, 4, 7, 8, 30, 38, 39); s = facts['sys']['SYS_getsockopt']\n\
            size = text((64).to_bytes(4, 'little'))\n\
            result = [o for o in range(1, 90) if o not in named and code_of(s, a.fileno(), 1, o, text(bytes(64)), text((64).to_bytes(4, 'little'))) != 1]",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        // CVE-2021-0920, CVE-2024-26923: the collector of sockets in flight. recvmsg would take a descriptor.
        name: "no_message_with_extras_is_sent_or_received",
        program: "import socket; a, b = socket.socketpair(); s = facts['sys']; data = text(b'x' * 8)\n\
            v = text(data.to_bytes(8, 'little') + (1).to_bytes(8, 'little'))\n\
            m = text(bytes(16) + v.to_bytes(8, 'little') + (1).to_bytes(8, 'little') + bytes(32))\n\
            result = codes((s['SYS_sendmsg'], a.fileno(), m, 0), (s['SYS_recvmsg'], b.fileno(), m, 0x40), \
            (s['SYS_sendmmsg'], a.fileno(), m, 1, 0), (s['SYS_recvmmsg'], b.fileno(), m, 1, 0x40, 0))",
        control: Expect::Gives("[0, 0, 0, 0]"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
    Attempt {
        // CVE-2025-38236: a byte out of band in a stream of this family, by the receiving side.
        name: "no_byte_out_of_band_is_received",
        program: "import socket; a, b = socket.socketpair()\n\
            try: a.send(b'xy', 1)\n\
            except OSError: a.send(b'x')\n\
            syscall({'x86_64': 45, 'aarch64': 207}[os.uname().machine], b.fileno(), text(bytes(8)), 1, 1, 0, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_pair_does_not_become_a_listener",
        program: "import socket; a, b = socket.socketpair(); s = facts['sys']\n\
            result = codes((s['SYS_bind'], a.fileno(), text(b'\\1\\0'), 2), (s['SYS_listen'], a.fileno(), 1), \
            (s['SYS_accept4'], a.fileno(), 0, 0, 0), (s['SYS_connect'], a.fileno(), text(b'\\1\\0x\\0'), 4))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1, 1]"),
    },
    Attempt {
        // CVE-2026-31431: the kernel's ciphers by socket, as default profiles of containers allowed for long.
        name: "the_kernels_ciphers_are_not_used",
        program: "import socket; s = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET); s.bind(('hash', 'sha256'))",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "the_host_of_the_machine_is_not_reached",
        program: "import socket; socket.socket(40, socket.SOCK_STREAM)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        // CVE-2024-1086, CVE-2023-32233: the tables of the packet filter, by way of a network namespace of one's own.
        name: "the_packet_filter_is_not_reached",
        program: "enter(0x40000000); import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: EPERM,
    },
    Attempt {
        name: "an_event_loop_has_no_commands",
        program: "import select, fcntl; e = select.epoll(); fcntl.ioctl(e.fileno(), 0x40088a01, bytes(8))",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::ENOTTY]),
    },
    Attempt {
        // Size of a block, flags, map of extents, sharing of extents (CVE-2016-1575's kind), freezing.
        name: "a_file_has_no_commands",
        program: "import fcntl; f = os.open('f', os.O_CREAT | os.O_RDWR); result = []\n\
            for number in (2, 0x80086601, 0xc020660b, 0x40049409, 0xc0189436, 0xc0045877):\n\
            \x20   try: fcntl.ioctl(f, number, bytes(64)); result.append(0)\n\
            \x20   except OSError as e: result.append(e.errno)",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[25, 25, 25, 25, 25, 25]"),
    },
    Attempt {
        name: "commands_of_the_upper_half_are_not_taken_for_others",
        // The kernel looks at 32 bits of the command, and so does the filter: the upper half changes nothing.
        program: "s = facts['sys']['SYS_ioctl']; r, w = os.pipe()\n\
            result = codes((s, r, (1 << 32) | 0x5452, text((1).to_bytes(4, 'little'))), (s, r, 0x5452, text((1).to_bytes(4, 'little'))))",
        control: Expect::Gives("[0, 0]"),
        confined: Expect::Gives("[25, 25]"),
    },
    Attempt {
        // Leases, notices, seals, hints, owners, and queries that compare descriptors.
        name: "only_named_commands_of_a_descriptor",
        program: "f = os.open('f', os.O_CREAT | os.O_RDWR); s = facts['sys']['SYS_fcntl']; p = text(bytes(64))\n\
            result = unrefused((n, code_of(s, f, n, p)) for n in (8, 9, 10, 11, 15, 16, 17, 1024, 1025, 1026, 1027, 1028, 1033, 1034, 1035, 1036, 1037, 1038))",
        control: Expect::Differs("[]"),
        confined: Expect::Gives("[]"),
    },
    Attempt {
        name: "holes_are_not_punched",
        program: "f = os.open('f', os.O_CREAT | os.O_RDWR); os.write(f, bytes(8192)); s = facts['sys']['SYS_fallocate']\n\
            result = [code_of(s, f, mode, 0, 4096) for mode in (3, 0x10, 8, 0x20, 0x40)]",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[95, 95, 95, 95, 95]"),
    },
    Attempt {
        // Dirty Pipe (CVE-2022-0847) and what followed: pages of a file that may be read, moved into a pipe.
        name: "no_page_is_moved_between_files_and_pipes",
        program: "r, w = os.pipe(); f = os.open(os.__file__, os.O_RDONLY); s = facts['sys']; r2, w2 = os.pipe(); os.write(w, b'x')\n\
            result = codes((s['SYS_tee'], r, w2, 1, 0), (s['SYS_splice'], f, 0, w, 0, 1, 0), (s['SYS_vmsplice'], w, text(bytes(16)), 1, 0))",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "what_may_be_read_is_not_written_by_a_copy",
        program: "open('x', 'wb').write(b'xx'); f = os.open(os.__file__, os.O_RDONLY); x = os.open('x', os.O_RDONLY); result = []\n\
            for copy in (lambda: os.copy_file_range(x, f, 1, 0, 0), lambda: os.sendfile(f, x, 0, 1), lambda: os.pwrite(f, b'x', 0)):\n\
            \x20   try: copy(); result.append(0)\n\
            \x20   except OSError as e: result.append(e.errno)",
        // A descriptor for reading stays one, for everybody.
        control: Expect::Gives("[9, 9, 9]"),
        confined: Expect::Gives("[9, 9, 9]"),
    },
    Attempt {
        // Polling for the device's answer, and flags that come later.
        name: "reads_and_writes_take_named_flags",
        program: "f = os.open('f', os.O_CREAT | os.O_RDWR); s = facts['sys']; v = text(text(bytes(8)).to_bytes(8, 'little') + (1).to_bytes(8, 'little'))\n\
            result = codes((s['SYS_preadv2'], f, v, 1, 0, 0, 1), (s['SYS_pwritev2'], f, v, 1, 0, 0, 0x20))",
        control: Expect::Differs("[1, 1]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "a_counter_takes_named_flags",
        program: "result = codes((facts['sys']['SYS_eventfd2'], 0, 0x80800), (facts['sys']['SYS_eventfd2'], 0, 0x10))",
        control: Expect::Gives("[0, 22]"),
        confined: Expect::Gives("[0, 1]"),
    },
    Attempt {
        name: "a_file_behind_the_channel_is_not_opened_anew",
        program: "open('/dev/fd/3', 'rb+', buffering=0)",
        // A socket is opened by nobody.
        control: Expect::Errno(&[libc::ENXIO]),
        confined: Expect::Errno(&[libc::EACCES, libc::ENXIO]),
    },
    Attempt {
        // Of a pair of 64-bit values both halves count.
        name: "an_upper_half_is_not_overlooked",
        // A thread made so runs on the stack of its maker, so where it is made that happens in a process of its own.
        program: "s = facts['sys']; f = os.open('f', os.O_CREAT | os.O_RDWR); os.ftruncate(f, 4096)\n\
            def apart(*call):\n\
            \x20   reader, writer = os.pipe()\n\
            \x20   try: child = os.fork()\n\
            \x20   except OSError: return code_of(*call)\n\
            \x20   if child == 0: os.write(writer, bytes([code_of(*call)])); os._exit(0)\n\
            \x20   os.close(writer); told = os.read(reader, 1); os.waitpid(child, 0)\n\
            \x20   return told[0] if told else 'it crashed'\n\
            result = [code_of(s['SYS_mmap'], 0, 4096, (1 << 32) | 1, 2, f, 0), apart(s['SYS_clone'], (1 << 32) | 0x3d0f00, 0, 0, 0, 0), \
            code_of(s['SYS_mprotect'], 0, 0, 1 << 33)]",
        control: Expect::Differs("[1, 1, 1]"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
];

pub(crate) fn all() -> Vec<Trial> {
    trials("options", ATTEMPTS)
}
