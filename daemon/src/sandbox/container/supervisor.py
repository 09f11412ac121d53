"""Starts a worker inside a container: a supervisor that stays, and a child that goes on with the text behind this one.

The supervisor is the container's first process. It carries records between ptcd, on descriptors 0 and 1, and the
child, whose descriptors are those of every worker: 0 reads nothing, 1 and 2 are pipes, 3 is the channel. It ends, and
the kernel ends the child with it, as soon as ptcd has gone. A record is a letter, a little-endian u32 length and bytes:
to here `c` (channel), `i` (print where the program is), `k` (end); from here `c`, `1`, `2` (what was written past the
channel), `z` (the channel is closed), `x` (how the child ended).
"""


def start(gate, limits, bounds):
    """Gives back in the child, confined; the supervisor never gives back."""
    import ctypes
    import os
    import resource
    import signal
    import socket

    libc = ctypes.CDLL(None, use_errno=True)

    def refuse(what):
        os.write(2, ("ptcd: " + what + "\n").encode())
        os._exit(71)

    def status():
        with open("/proc/self/status") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)

    def check():
        """The container must be what its flags say."""
        found = status()
        if found.get("NoNewPrivs") != "1" or found.get("Seccomp") != "2":
            refuse("the engine set no filter, or lets programs gain privileges")
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            if found.get(kind) != "0" * 16:
                refuse("the engine left the capabilities %s %s" % (kind, found.get(kind)))
        if os.getuid() == 0 or os.geteuid() == 0 or os.getpid() != 1:
            refuse("the engine ignored --user, or shares its processes")
        if any(not line.split()[0].startswith("lo:") for line in list(open("/proc/net/dev"))[2:]):
            refuse("the container has a network")

        for bound, names in zip(bounds, (("memory.max", "memory/memory.limit_in_bytes"), ("pids.max", "pids/pids.max"))):
            if not any(holds(bound, name) for name in names):
                refuse("the engine ignores %s (as one without root does under control groups 1)" % names[0])

    def holds(bound, name):
        """Whether a limit of the container as a whole is there; some engines only warn that it is not."""
        try:
            with open("/sys/fs/cgroup/" + name) as file:
                return int(file.read()) <= bound
        except (OSError, ValueError):
            return False

    def limit(name, wanted):
        hard = resource.getrlimit(name)[1]
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(name, (wanted, wanted))

    def confine(channel, out, err):
        null = os.open("/dev/null", os.O_RDWR)
        for place, fd in enumerate((null, out, err, channel)):
            os.dup2(fd, place)
        os.closerange(4, 256)
        os.chdir("/tmp")
        os.umask(0o077)
        os.environ.clear()
        memory, file, cpu = limits
        limit(resource.RLIMIT_DATA, memory)
        limit(resource.RLIMIT_AS, max(4 << 30, 2 * memory))
        limit(resource.RLIMIT_STACK, 8 << 20)
        limit(resource.RLIMIT_CPU, cpu)
        limit(resource.RLIMIT_FSIZE, file)
        limit(resource.RLIMIT_NOFILE, 128)
        text = bytes.fromhex(gate)
        code = ctypes.create_string_buffer(text, len(text))

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

        program = Program(len(text) // 8, ctypes.addressof(code))
        number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
        if number is None:
            refuse("there is no seccomp profile for " + os.uname().machine)
        arguments = (ctypes.c_long(1), ctypes.c_long(0), ctypes.byref(program))
        if libc.syscall(ctypes.c_long(number), *arguments) != 0:
            refuse("the second filter cannot be installed: " + os.strerror(ctypes.get_errno()))

    check()
    # From here on the memory of both processes and what /proc shows of them is closed to each other.
    if libc.prctl(4, 0, 0, 0, 0) != 0:
        refuse("the memory of the container cannot be hidden: " + os.strerror(ctypes.get_errno()))
    here, there = socket.socketpair()
    outs = [os.pipe(), os.pipe()]
    waker, wake = os.pipe()
    for fd in (waker, wake):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            confine(there.fileno(), outs[0][1], outs[1][1])
        except BaseException as error:
            refuse("the worker cannot be confined: %r" % error)
        # What the channel was before is closed already.
        there.detach()
        here.detach()
        return
    there.close()
    for _, end in outs:
        os.close(end)
    try:
        supervise(child, here.detach(), [outs[0][0], outs[1][0]], waker)
    finally:
        os._exit(72)


def supervise(child, channel, pipes, waker):
    """Carries records until the child, or ptcd, has gone. Does not give back."""
    import json
    import os
    import select
    import signal
    import struct

    # What one side may be ahead of the other.
    most = 1 << 20
    part = 1 << 16
    header = struct.Struct("<cI")
    incoming, to_child, to_host = bytearray(), bytearray(), bytearray()
    names = dict(zip(pipes, (b"1", b"2")))
    ended = None
    for fd in (0, 1, channel, *pipes):
        os.set_blocking(fd, False)

    def read(fd):
        """Bytes, b"" at the end, None where there is nothing yet."""
        try:
            return os.read(fd, part)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write(fd, data):
        try:
            del data[: os.write(fd, memoryview(data)[:part])]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def tell(kind, data=b""):
        to_host.extend(header.pack(kind, len(data)) + data)

    def drain(fd):
        """Takes what lies in a pipe; forgets it at its end."""
        while fd in names and len(to_host) < most:
            data = read(fd)
            if data is None:
                return
            if data:
                tell(names[fd], data)
            else:
                del names[fd]

    def stop(number):
        try:
            os.kill(child, number)
        except OSError:
            pass

    def obey():
        while len(incoming) >= header.size:
            kind, length = header.unpack_from(incoming)
            if length > most or kind not in b"cik":
                os._exit(73)
            if len(incoming) < header.size + length:
                return
            if kind == b"c":
                to_child.extend(memoryview(incoming)[header.size : header.size + length])
            else:
                stop(signal.SIGUSR1 if kind == b"i" else signal.SIGKILL)
            del incoming[: header.size + length]

    while True:
        poll = select.poll()
        room = len(to_host) < most
        poll.register(0, (select.POLLIN if len(to_child) < most else 0) | select.POLLRDHUP)
        poll.register(1, select.POLLOUT if to_host else 0)
        poll.register(waker, select.POLLIN)
        if channel is not None:
            poll.register(channel, (select.POLLIN if room else 0) | (select.POLLOUT if to_child else 0))
        if room:
            for fd in names:
                poll.register(fd, select.POLLIN)
        events = dict(poll.poll())
        happened = events.get(0, 0)
        if happened & select.POLLIN:
            data = read(0)
            if data == b"":
                os._exit(0)
            incoming += data or b""
            obey()
        elif happened or events.get(1, 0) & ~select.POLLOUT:
            # Nobody is there any more.
            os._exit(0)
        if events.get(waker):
            read(waker)
            pid, code, used = os.wait4(child, os.WNOHANG)
            if pid == child:
                ended = {
                    "code": os.WEXITSTATUS(code) if os.WIFEXITED(code) else None,
                    "signal": os.WTERMSIG(code) if os.WIFSIGNALED(code) else None,
                    "cpu_micros": int((used.ru_utime + used.ru_stime) * 1000000),
                    "peak_memory_bytes": used.ru_maxrss * 1024,
                }
        if channel is not None:
            happened = events.get(channel, 0)
            if to_child and happened & select.POLLOUT and not write(channel, to_child):
                to_child.clear()
            if happened & (select.POLLIN | select.POLLHUP | select.POLLERR) and room:
                data = read(channel)
                # What was written past the channel before comes before.
                for fd in pipes:
                    drain(fd)
                if data:
                    tell(b"c", data)
                elif data == b"":
                    os.close(channel)
                    channel = None
                    to_child.clear()
                    tell(b"z")
        if room:
            for fd in pipes:
                if events.get(fd):
                    drain(fd)
        if to_host and not write(1, to_host):
            os._exit(0)
        if ended is not None and channel is None and not to_host:
            for fd in pipes:
                drain(fd)
            if not to_host:
                tell(b"x", json.dumps(ended).encode())
                os.set_blocking(1, True)
                while to_host and write(1, to_host):
                    pass
                os._exit(0)


