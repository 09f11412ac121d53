//! What needs each call of the seccomp profile.

use Need::{Elsewhere, Exit, Fork, ForkWithout, Program, Start, Stop};

/// What fails where a call is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// The interpreter does not come up.
    Start,
    /// No worker is forked.
    Fork,
    /// No worker is forked where this call, by which it can be done in another way, is left out, too.
    ForkWithout(&'static str),
    /// It does not leave with its code.
    Exit,
    /// A wait that a stop interrupts is not gone on with.
    Stop,
    /// This program, which CPython and the C library of this machine make the call for.
    Program(&'static str),
    /// Nothing on this machine; what else makes the call, and a program that makes it by number.
    #[expect(dead_code, reason = "who makes the call is said to the reader")]
    Elsewhere(&'static str, &'static str),
}

/// Other C libraries.
const MUSL: &str = "musl makes the older form";
const NEWER: &str = "a newer C library makes it";
const NO_PAGE: &str = "the C library makes it where the kernel offers no page for the time";
/// By call, counted where several entries name it.
pub(crate) const NEEDS: &[(&str, Need)] = &[
    ("server clone", Fork),
    ("server clone:1", ForkWithout("server prctl")),
    ("server unshare", ForkWithout("server prctl")),
    ("server mount", Fork),
    ("server recvmsg", Fork),
    ("server setsid", Fork),
    ("server close_range", Fork),
    ("server capset", Fork),
    ("server prctl", ForkWithout("server clone:1")),
    ("server prctl:1", Fork),
    ("server prctl:2", Fork),
    ("server landlock_create_ruleset", Fork),
    ("server landlock_add_rule", Fork),
    ("server landlock_restrict_self", Fork),
    ("read", Start),
    (
        "readv",
        Program("r, w = os.pipe(); os.write(w, b'x'); os.readv(r, [bytearray(1)])"),
    ),
    (
        "pread64",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.pread(f, 1, 0)"),
    ),
    (
        "preadv",
        Elsewhere(
            MUSL,
            "f = os.open('f', os.O_RDWR | os.O_CREAT); code = code_of(295, f, 0, 0, 0, 0)\nif code: raise OSError(code, '')",
        ),
    ),
    ("write", Start),
    ("writev", Program("r, w = os.pipe(); os.writev(w, [b'x'])")),
    (
        "pwrite64",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x', 0)"),
    ),
    (
        "pwritev",
        Elsewhere(
            MUSL,
            "f = os.open('f', os.O_RDWR | os.O_CREAT); code = code_of(296, f, 0, 0, 0, 0)\nif code: raise OSError(code, '')",
        ),
    ),
    (
        "preadv2",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.preadv(f, [bytearray(1)], 0)"),
    ),
    (
        "pwritev2",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.pwritev(f, [b'x'], 0)"),
    ),
    (
        "lseek",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.lseek(f, 0, 0)"),
    ),
    ("openat", Start),
    (
        "open",
        Elsewhere(
            MUSL,
            "p = ctypes.create_string_buffer(b'.'); syscall(2, ctypes.addressof(p), 0, 0)",
        ),
    ),
    ("close", Start),
    ("dup3", Program("os.dup2(0, 9, inheritable=False)")),
    ("dup2", Program("os.dup2(0, 9)")),
    (
        "fstat",
        Elsewhere(
            NEWER,
            "b = ctypes.create_string_buffer(256); syscall(5, 0, ctypes.addressof(b))",
        ),
    ),
    ("newfstatat", Start),
    ("access", Program("assert os.access('.', os.R_OK)")),
    (
        "stat",
        Elsewhere(
            MUSL,
            "p = ctypes.create_string_buffer(b'.'); b = ctypes.create_string_buffer(256); syscall(4, ctypes.addressof(p), ctypes.addressof(b))",
        ),
    ),
    (
        "lstat",
        Elsewhere(
            MUSL,
            "p = ctypes.create_string_buffer(b'.'); b = ctypes.create_string_buffer(256); syscall(6, ctypes.addressof(p), ctypes.addressof(b))",
        ),
    ),
    (
        "faccessat2",
        Program("assert os.access('.', os.R_OK, effective_ids=True)"),
    ),
    ("statfs", Program("os.statvfs('.')")),
    ("fstatfs", Program("os.statvfs(os.open('.', 0))")),
    ("getdents64", Program("os.listdir('.')")),
    (
        "readlinkat",
        Program("os.symlink('x', 'l'); os.readlink('l', dir_fd=os.open('.', 0))"),
    ),
    (
        "readlink",
        Program("os.symlink('x', 'm'); os.readlink('m')"),
    ),
    ("getcwd", Program("os.getcwd()")),
    ("chdir", Program("os.chdir('.')")),
    ("fchdir", Program("os.chdir(os.open('.', 0))")),
    ("mkdirat", Program("os.mkdir('d1', dir_fd=os.open('.', 0))")),
    (
        "unlinkat",
        Program("open('u', 'w').close(); os.unlink('u', dir_fd=os.open('.', 0))"),
    ),
    (
        "symlinkat",
        Program("os.symlink('x', 'l2', dir_fd=os.open('.', 0))"),
    ),
    (
        "renameat",
        Program(
            "open('r', 'w').close(); d = os.open('.', 0); os.rename('r', 'r2', src_dir_fd=d, dst_dir_fd=d)",
        ),
    ),
    ("mkdir", Program("os.mkdir('d2')")),
    ("rmdir", Program("os.mkdir('d3'); os.rmdir('d3')")),
    (
        "unlink",
        Program("open('u2', 'w').close(); os.unlink('u2')"),
    ),
    ("symlink", Program("os.symlink('x', 'l3')")),
    (
        "rename",
        Program("open('r3', 'w').close(); os.rename('r3', 'r4')"),
    ),
    (
        "truncate",
        Program("open('t', 'w').close(); os.truncate('t', 1)"),
    ),
    (
        "ftruncate",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 1)"),
    ),
    (
        "fallocate",
        Program(
            "f = os.open('f', os.O_RDWR | os.O_CREAT); code = code_of(285, f, 0, 0, 1)\nif code: raise OSError(code, '')",
        ),
    ),
    (
        "fsync",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.fsync(f)"),
    ),
    (
        "fdatasync",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.fdatasync(f)"),
    ),
    (
        "fadvise64",
        Program(
            "f = os.open('f', os.O_RDWR | os.O_CREAT); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_NORMAL)",
        ),
    ),
    (
        "flock",
        Program(
            "import fcntl; f = os.open('f', os.O_RDWR | os.O_CREAT); fcntl.flock(f, fcntl.LOCK_SH)",
        ),
    ),
    (
        "copy_file_range",
        Program(
            "f = os.open('f', os.O_RDWR | os.O_CREAT); g = os.open('g', os.O_RDWR | os.O_CREAT); os.write(f, b'xx'); os.copy_file_range(f, g, 1, 0, 0)",
        ),
    ),
    (
        "sendfile",
        Program(
            "f = os.open('f', os.O_RDWR | os.O_CREAT); g = os.open('g', os.O_RDWR | os.O_CREAT); os.write(f, b'xx'); os.sendfile(g, f, 0, 1)",
        ),
    ),
    (
        "umask",
        Program("if os.umask(0o77) != 0o77: raise OSError(1, '')"),
    ),
    ("pipe2", Program("os.pipe()")),
    (
        "pselect6",
        Program("import select; select.select([], [], [], 0)"),
    ),
    ("poll", Program("import select; select.poll().poll(0)")),
    (
        "select",
        Elsewhere(
            MUSL,
            "t = (ctypes.c_long * 2)(0, 0); syscall(23, 0, 0, 0, 0, ctypes.addressof(t))",
        ),
    ),
    ("epoll_create1", Program("import select; select.epoll()")),
    (
        "epoll_ctl",
        Program("import select; e = select.epoll(); e.register(3)"),
    ),
    (
        "epoll_pwait",
        Elsewhere(
            MUSL,
            "import select; e = select.epoll(); b = ctypes.create_string_buffer(16); syscall(281, e.fileno(), ctypes.addressof(b), 1, 0, 0, 8)",
        ),
    ),
    (
        "epoll_wait",
        Program("import select; select.epoll().poll(0)"),
    ),
    ("eventfd2", Program("os.eventfd(0)")),
    (
        "socketpair",
        Program("import socket; a, b = socket.socketpair(); "),
    ),
    (
        "sendto",
        Program("import socket; a, b = socket.socketpair(); a.send(b'x')"),
    ),
    (
        "recvfrom",
        Program("import socket; a, b = socket.socketpair(); os.write(b.fileno(), b'x'); a.recv(1)"),
    ),
    (
        "getsockopt",
        Program(
            "import socket; a, b = socket.socketpair(); a.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)",
        ),
    ),
    (
        "getsockname",
        Program("import socket; a, b = socket.socketpair(); a.getsockname()"),
    ),
    (
        "getpeername",
        Program("import socket; a, b = socket.socketpair(); a.getpeername()"),
    ),
    (
        "shutdown",
        Program("import socket; a, b = socket.socketpair(); a.shutdown(socket.SHUT_RDWR)"),
    ),
    (
        "ioctl",
        Program("import socket; a, b = socket.socketpair(); a.setblocking(False)"),
    ),
    (
        "fcntl",
        Program("import fcntl; fcntl.fcntl(0, fcntl.F_GETFL)"),
    ),
    ("mmap", Start),
    (
        "mmap:1",
        Program(
            "import mmap; f = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 4096); mmap.mmap(f, 4096)",
        ),
    ),
    ("mmap:2", Start),
    ("mprotect", Start),
    (
        "munmap",
        Program(
            "import mmap\nfor _ in range(99): mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()",
        ),
    ),
    (
        "brk",
        Program(
            "c = ctypes.CDLL(None, use_errno=True); c.sbrk.restype = ctypes.c_long; assert c.sbrk(4096) != -1",
        ),
    ),
    (
        "mremap",
        Program(
            "import mmap; f = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 4096); m = mmap.mmap(f, 4096); m.resize(8192)",
        ),
    ),
    (
        "msync",
        Program(
            "import mmap; f = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 4096); mmap.mmap(f, 4096).flush()",
        ),
    ),
    (
        "madvise",
        Program(
            "import mmap; f = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 4096); mmap.mmap(f, 4096).madvise(mmap.MADV_NORMAL)",
        ),
    ),
    (
        "clone",
        Program("import threading; t = threading.Thread(target=int); t.start(); t.join()"),
    ),
    (
        "set_tid_address",
        Program("import time, threading; time.pthread_getcpuclockid(threading.get_ident())"),
    ),
    ("arch_prctl", Start),
    (
        "futex",
        Program(
            "import threading, time\ng = threading.Event(); t = threading.Thread(target=lambda: (time.sleep(0.1), g.set())); t.start(); g.wait(); t.join()",
        ),
    ),
    (
        "exit",
        Program(
            "import threading\nfor _ in range(99): t = threading.Thread(target=int); t.start(); t.join()",
        ),
    ),
    ("exit_group", Exit),
    ("restart_syscall", Stop),
    (
        "rt_sigaction",
        Program("import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)"),
    ),
    (
        "rt_sigprocmask",
        Program("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])"),
    ),
    (
        "rt_sigreturn",
        Program(
            "import signal, time\nhit = []; signal.signal(signal.SIGALRM, lambda *a: hit.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile not hit: time.sleep(0.01)",
        ),
    ),
    (
        "rt_sigpending",
        Program("import signal; signal.sigpending()"),
    ),
    (
        "rt_sigtimedwait",
        Program("import signal; signal.sigtimedwait([signal.SIGUSR2], 0)"),
    ),
    (
        "sigaltstack",
        Program("import faulthandler; faulthandler.enable(file=2)"),
    ),
    (
        "pause",
        Program(
            "import signal; hit = []; signal.signal(signal.SIGALRM, lambda *a: hit.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.2); signal.pause(); assert hit",
        ),
    ),
    (
        "alarm",
        Program("import signal; signal.alarm(100); assert signal.alarm(0) == 100"),
    ),
    (
        "getitimer",
        Program("import signal; signal.getitimer(signal.ITIMER_REAL)"),
    ),
    (
        "setitimer",
        Program("import signal; signal.setitimer(signal.ITIMER_REAL, 0)"),
    ),
    (
        "nanosleep",
        Elsewhere(
            MUSL,
            "t = (ctypes.c_long * 2)(0, 1); syscall(35, ctypes.addressof(t), 0)",
        ),
    ),
    (
        "clock_gettime",
        Program("import time; time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)"),
    ),
    (
        "clock_getres",
        Program("import time; time.clock_getres(time.CLOCK_PROCESS_CPUTIME_ID)"),
    ),
    ("clock_nanosleep", Program("import time; time.sleep(0.001)")),
    (
        "gettimeofday",
        Elsewhere(
            NO_PAGE,
            "t = (ctypes.c_long * 2)(); syscall(96, ctypes.addressof(t), 0)",
        ),
    ),
    ("times", Program("assert os.times().elapsed > 0")),
    (
        "getrusage",
        Program("import resource; resource.getrusage(resource.RUSAGE_SELF)"),
    ),
    ("getrandom", Program("os.getrandom(1)")),
    ("getpid", Program("assert 0 <= os.getpid() < 2**31")),
    ("getppid", Program("assert 0 <= os.getppid() < 2**31")),
    (
        "gettid",
        Program("import threading; assert threading.get_native_id() < 2**31"),
    ),
    ("getuid", Program("assert 0 <= os.getuid() < 2**31")),
    ("geteuid", Program("assert 0 <= os.geteuid() < 2**31")),
    ("getgid", Program("assert 0 <= os.getgid() < 2**31")),
    ("getegid", Program("assert 0 <= os.getegid() < 2**31")),
    ("getresuid", Program("os.getresuid()")),
    ("getresgid", Program("os.getresgid()")),
    ("getgroups", Program("os.getgroups()")),
    ("getpgrp", Program("assert os.getpgrp() > 0")),
    ("getpgid", Program("os.getpgid(0)")),
    ("getsid", Program("os.getsid(0)")),
    ("uname", Program("os.uname()")),
    // os.sysconf asks for it, and takes what a refusal leaves for an answer.
    (
        "sysinfo",
        Program("assert ctypes.CDLL(None).sysinfo(ctypes.create_string_buffer(256)) == 0"),
    ),
    (
        "prlimit64",
        Program("import resource; resource.getrlimit(resource.RLIMIT_DATA)"),
    ),
    ("sched_getaffinity", Program("os.sched_getaffinity(0)")),
    ("sched_yield", Program("os.sched_yield()")),
    (
        "prctl",
        Program(
            "c = ctypes.CDLL(None); c.pthread_self.restype = ctypes.c_void_p; assert c.pthread_setname_np(ctypes.c_void_p(c.pthread_self()), b'x') == 0",
        ),
    ),
    (
        "wait4",
        Program("try: os.waitpid(-1, 0)\nexcept ChildProcessError: pass"),
    ),
    ("execve", Start),
    ("seccomp", Start),
    (
        "fchmod",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.fchmod(f, 0o600)"),
    ),
    (
        "fchmodat",
        Program(
            "f = os.open('f', os.O_RDWR | os.O_CREAT); os.chmod('f', 0o600, dir_fd=os.open('.', 0))",
        ),
    ),
    (
        "fchmodat2",
        Elsewhere(
            NEWER,
            "f = os.open('f', os.O_RDWR | os.O_CREAT); p = ctypes.create_string_buffer(b'f'); syscall(452, -100, ctypes.addressof(p), 0o600, 0)",
        ),
    ),
    (
        "utimensat",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.utime('f')"),
    ),
    (
        "chmod",
        Program("f = os.open('f', os.O_RDWR | os.O_CREAT); os.chmod('f', 0o600)"),
    ),
];
