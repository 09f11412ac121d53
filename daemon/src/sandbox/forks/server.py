"""Keeps one interpreter warm and forks a confined worker from it for each request of the warden.

It is confined as workers are, but for what makes a worker of its child, and never sees a program: what a child needs
comes to the child itself. Its arguments are the text of a worker, the text of the program that tries to get out, and
what confines a child, as JSON. Descriptor 3 is the warden.
"""

import ctypes
import errno
import gc
import json
import os
import socket
import sys
import threading

CONTROL = 3
SECCOMP_SET_MODE_FILTER = 1
LANDLOCK_RULE_PATH_BENEATH = 1
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 24, 47, 4
PR_GET_TID_ADDRESS = 40
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, SIGCHLD = 0x8000, 0x200000, 0x1000000, 17
CAPABILITY_VERSION_3 = 0x20080522
LAST_DESCRIPTOR = 0xFFFFFFFF
SIGKILL = 9
FAILED = 70


class Filter(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Handled(ctypes.Structure):
    """The kernel's `struct landlock_ruleset_attr`; what an older kernel does not know is zero."""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class Place(ctypes.Structure):
    """The kernel's `struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("fd", ctypes.c_int32))


class Limit(ctypes.Structure):
    """The kernel's `struct rlimit`."""

    _fields_ = (("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64))


def refuse(result, _function, _arguments):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def of_c(name, result, *arguments):
    """A function of the C library that raises OSError."""
    function = getattr(LIBC, name)
    function.restype, function.argtypes, function.errcheck = result, arguments, refuse
    return function


INT, LONG, POINTER, TEXT = ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_char_p
LIBC = ctypes.CDLL(None, use_errno=True)
unshare = of_c("unshare", INT, INT)
mount = of_c("mount", INT, TEXT, TEXT, TEXT, LONG, TEXT)
prctl = of_c("prctl", INT, INT, LONG, LONG, LONG, LONG)
prlimit = of_c("prlimit", INT, INT, INT, POINTER, POINTER)
capset = of_c("capset", INT, POINTER, POINTER)
syscall = of_c("syscall", ctypes.c_long, ctypes.c_long, LONG, LONG, LONG, LONG)
# The same, which gives a failure back: of what is called hundreds of times raising is a good part.
quick_syscall = ctypes.CDLL(None, use_errno=True).syscall
quick_syscall.restype, quick_syscall.argtypes = syscall.restype, syscall.argtypes


class Confinement:
    """What makes a worker of a child, laid out so that a child has only to make the calls."""

    def __init__(self, setup):
        self.setup = setup
        self.numbers = setup["calls"]
        self.kept = [ctypes.create_string_buffer(bytes.fromhex(code)) for code in setup["filters"]]
        self.filters = [Filter((len(code) - 1) // 8, ctypes.addressof(code)) for code in self.kept]
        self.landlock = setup["landlock"]
        places = [] if self.landlock is None else list(self.open_places())
        # In one piece: each page that a worker writes is copied first, and an object that is looked at is written.
        self.places = (Place * len(places))(*places)

    def open_places(self):
        of_files = self.landlock["of_files"]
        for path, access, needed in self.landlock["places"]:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                if needed:
                    raise
                continue
            folder = os.path.isdir(fd)
            yield Place(access if folder else access & of_files, fd)

    def part(self):
        """Goes into namespaces of its own: they are the next child's, and its user is whom the warden says."""
        if self.setup["spaces"]:
            unshare(self.setup["spaces"])

    def settle(self, line, at):
        """Turns this process into a worker; `at` is told each step. Gives the warden's words."""
        setup = self.setup
        warden = socket.socket(fileno=line)
        text, beside, _, _ = warden.recvmsg(16384, socket.CMSG_SPACE(12), socket.MSG_CMSG_CLOEXEC)
        warden.detach()
        task = json.loads(text)
        channel, stdout, stderr = descriptors(beside)
        at("scratch")
        if task["options"] is not None:
            flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
            mount(b"scratch", os.fsencode(task["scratch"]), b"tmpfs", flags, task["options"].encode())
        at("session")
        os.setsid()
        os.umask(0o077)
        os.chdir(task["scratch"])
        at("descriptors")
        null = os.open("/dev/null", os.O_RDONLY)
        for number, fd in enumerate((null, stdout, stderr, channel)):
            os.dup2(fd, number)
        at("bounding_set")
        if setup["bounding_set"]:
            drop_bounding_set()
        at("capabilities")
        if setup["capabilities"]:
            drop_capabilities()
        at("parent_death")
        if setup["parent_death"]:
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
            # One that ended before that sends nothing any more.
            if setup["warden"] and os.getppid() != setup["warden"]:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        at("landlock")
        if self.landlock is not None:
            self.restrict(task["scratch"])
        at("descriptors")
        if setup["descriptors"]:
            for first, last in ((CONTROL + 1, line - 1), (line + 1, LAST_DESCRIPTOR)):
                if first <= last:
                    syscall(self.numbers["close_range"], first, last, 0, 0)
        at("limits")
        for resource, most in task["limits"]:
            lower(resource, most)
        at("seccomp")
        for program in self.filters:
            syscall(self.numbers["seccomp"], SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(program), 0)
        return task

    def restrict(self, scratch):
        numbers = self.numbers
        handled = Handled(*self.landlock["handled"])
        create = numbers["landlock_create_ruleset"]
        ruleset = syscall(create, ctypes.addressof(handled), ctypes.sizeof(handled), 0, 0)
        own = Place(self.landlock["scratch"], os.open(scratch, os.O_PATH | os.O_CLOEXEC))
        add, first = numbers["landlock_add_rule"], ctypes.addressof(self.places)
        size = ctypes.sizeof(Place)
        for place in (ctypes.addressof(own), *range(first, first + size * len(self.places), size)):
            if quick_syscall(add, ruleset, LANDLOCK_RULE_PATH_BENEATH, place, 0) < 0:
                refuse(-1, None, None)
        syscall(numbers["landlock_restrict_self"], ruleset, 0, 0, 0)


def failure(step, error):
    """What the warden is told of a step that failed."""
    return ("%s\n%s" % (step, error)).encode("utf-8", "replace")[:1000]


def descriptors(beside):
    """The descriptors that came beside a message."""
    found = []
    for level, kind, data in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += memoryview(data).cast("i")
    return found


def drop_bounding_set():
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The kernel knows no capability of this number.
            return


def drop_capabilities():
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    capset(header, none)


def lower(resource, most):
    """Lowers a limit; what is stricter already stays."""
    limit = Limit()
    prlimit(0, resource, None, ctypes.byref(limit))
    limit.hard = min(limit.hard, most)
    limit.soft = limit.hard
    prlimit(0, resource, ctypes.byref(limit), None)


class AtOnce:
    """Makes a child that is the warden's own and in its own namespaces from its first moment, by one call of the kernel.

    The C library has no function for that, so CPython's part of a fork is called here, and of the C library's part
    only this is needed: the number that it keeps of its thread, by which its recursive locks know their owner. The rest
    has nothing to do: handlers (of the libraries that are loaded OpenSSL alone has had any, and it goes by the process's
    number), and the locks, stacks and lists of other threads, of which a server has none. The list of robust locks it
    could not register anew anyway, for the filters refuse that.
    """

    def __init__(self, setup):
        python, kernel = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
        self.around = [getattr(python, "PyOS_" + name) for name in ("BeforeFork", "AfterFork_Parent", "AfterFork_Child")]
        for function in self.around:
            function.restype, function.argtypes = None, ()
        # It keeps hold of the interpreter's lock: that is the child's, too, then.
        self.call = kernel.syscall
        self.call.restype, self.call.argtypes = ctypes.c_long, (ctypes.c_long, *[LONG] * 5)
        self.number = setup["calls"]["clone"]
        flags = CLONE_PARENT | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD
        self.arguments = (self.number, flags | setup["spaces"], 0, 0)
        self.step = "namespaces" if setup["spaces"] else "fork"
        self.own = own_number()

    def fork(self):
        """Like os.fork. May raise OSError."""
        before, in_parent, in_child = self.around
        before()
        # Processors do not agree which of the two is the address.
        child = self.call(*self.arguments, self.own, self.own)
        if child == 0:
            in_child()
            return 0
        error = ctypes.get_errno()
        in_parent()
        if child < 0:
            raise OSError(error, os.strerror(error))
        return child


def own_number():
    """Where the C library keeps the number of this thread. Raises OSError where that cannot be found out."""
    found = ctypes.c_ulong()
    prctl(PR_GET_TID_ADDRESS, ctypes.addressof(found), 0, 0, 0)
    # Another C library has something else there.
    if not found.value or ctypes.c_int.from_address(found.value).value != threading.get_native_id():
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    return found.value


class Server:
    """Waits for requests; each child leaves its loop as a worker."""

    def __init__(self, confinement, canary):
        self.confinement = confinement
        self.canary = canary
        self.control = socket.socket(fileno=CONTROL)
        try:
            self.at_once = AtOnce(confinement.setup)
        except OSError:
            self.at_once = None

    def fork_point(self):
        """Called where the text of a worker is warm: returns in each worker, and never in the server."""
        gc.freeze()
        self.control.send(b'"ready"')
        while True:
            text, beside, _, _ = self.control.recvmsg(64, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
            if not text:
                # The warden has gone, or wants another server.
                os._exit(0)
            (line,) = descriptors(beside)
            forked = self.fork(line) if self.at_once is None else self.fork_at_once(line)
            if forked is None:
                break
            os.close(line)
            self.control.send(b'"forked"' if forked else b'"failed"')
        task = self.become_worker(line)
        if task["canary"]:
            exec(compile(self.canary, "<string>", "exec"), {"__name__": "__main__"})
            os._exit(0)

    def fork_at_once(self, line):
        """Gives whether a child was made; None in the child."""
        try:
            child = self.at_once.fork()
        except OSError as error:
            os.write(line, failure(self.at_once.step, error))
            return False
        if child == 0:
            return None
        os.write(line, b"%d" % child)
        return True

    def fork(self, line):
        """The same by two forks: the first child ends, so that the second is the warden's."""
        try:
            child = os.fork()
        except OSError as error:
            os.write(line, failure("fork", error))
            return False
        if child:
            return os.waitpid(child, 0)[1] == 0
        step = "namespaces"
        try:
            self.confinement.part()
            step = "fork"
            worker = os.fork()
            if worker:
                os.write(line, b"%d" % worker)
                os._exit(0)
        except BaseException as error:
            give_up(line, step, error)
        return None

    def become_worker(self, line):
        """Confines this process, a child."""
        steps = ["descriptors"]
        try:
            self.control.detach()
            task = self.confinement.settle(line, steps.append)
        except BaseException as error:
            give_up(line, steps[-1], error)
        # What follows is hello: the warden takes this end for the word that all is done.
        os.close(line)
        return task


def give_up(line, step, error):
    """Tells the warden and ends: nothing else of this process is ever to run."""
    try:
        os.write(line, failure(step, error))
    finally:
        os._exit(FAILED)


def main():
    _, text, canary, setup = sys.argv
    # With an empty environment the interpreter gives itself this one.
    os.environ.pop("LC_CTYPE", None)
    if os.environ:
        sys.exit("it has a variable")
    server = Server(Confinement(json.loads(setup)), canary)
    exec(compile(text, "<string>", "exec"), {"__name__": "__main__", "fork_point": server.fork_point})


main()
