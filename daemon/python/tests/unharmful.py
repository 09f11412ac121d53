"""Starts the interpreter of a test's program so that the program can do no harm to the machine.

The tests of the runtime have no sandbox around them, so that what they see is the runtime's doing. A program gets an
empty folder and small limits. Where the tests run as root it runs as a user that owns nothing; where that cannot be,
it does not run. Where the kernel has Landlock, it can change no file outside its folder, whoever runs the tests.
"""

import atexit
import ctypes
import functools
import os
import resource
import shutil
import struct
import sys
import tempfile
from pathlib import Path

NOBODY = 65534
MAX_FILE_BYTES = 64 * 1024 * 1024
LEFT_OUT = ("site-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "config-*")
PR_SET_NO_NEW_PRIVS = 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
# What changes files, by the version of Landlock that came with it; looking and running stay free.
CHANGES = {1: 0x1FF2, 2: 0x2000, 3: 0x4000}
IN_A_FILE = 0x4002
SIGNALS = 2


def start(argv, descriptors, folder):
    """Starts `argv` in `folder` with an empty environment and these descriptors as 0, 1, ...; gives its pid."""
    argv = [within_reach(argv[0]), *argv[1:]]
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    landlock = _Landlock(folder)
    pid = os.fork()
    if pid:
        landlock.close()
        return pid
    # In the child nothing may come back to the test.
    try:
        for at, fd in enumerate(descriptors):
            os.dup2(fd, at)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        drop_root()
        landlock.enter()
        os.execve(argv[0], argv, {})
    except BaseException as error:
        os.write(2, ("not started: %r\n" % error).encode())
    os._exit(71)


def drop_root():
    """Becomes a user that owns nothing, for good; raises where it cannot."""
    if os.geteuid() == 0 or os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    if 0 in (os.getuid(), os.geteuid()):
        raise PermissionError("a program of a test must not run as root")


class _Landlock:
    """Rules by which nothing changes but what is in one folder; made before the fork, since they need memory."""

    def __init__(self, folder):
        self._rules = None
        if sys.platform != "linux":
            return
        self._libc = ctypes.CDLL(None, use_errno=True)
        version = self._libc.syscall(ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(1))
        if version < 1:
            return
        changes = sum(bits for since, bits in CHANGES.items() if since <= version)
        handled = struct.pack("<QQQ", changes, 0, SIGNALS if version >= 6 else 0)
        size = 24 if version >= 6 else 8
        self._rules = self._checked(CREATE_RULESET, handled, ctypes.c_size_t(size), ctypes.c_uint32(0))
        for path, allowed in ((folder, changes), (os.devnull, changes & IN_A_FILE)):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            self._checked(ADD_RULE, ctypes.c_int(self._rules), ctypes.c_int(1), struct.pack("<Qi", allowed, fd), ctypes.c_uint32(0))
            os.close(fd)

    @property
    def there(self):
        """Whether this kernel has it."""
        return self._rules is not None

    def _checked(self, number, *arguments):
        result = self._libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "Landlock: %d" % number)
        return result

    def enter(self):
        """Lays the rules on this process and what it becomes."""
        if self._rules is not None:
            none = ctypes.c_ulong(0)
            if self._libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), none, none, none) != 0:
                raise OSError(ctypes.get_errno(), "no_new_privs")
            self._checked(RESTRICT_SELF, ctypes.c_int(self._rules), ctypes.c_uint32(0))

    def close(self):
        """Lets the rules go here."""
        if self._rules is not None:
            os.close(self._rules)
            self._rules = None


def has_landlock():
    """Whether programs can change nothing outside their folder, whoever runs the tests."""
    with tempfile.TemporaryDirectory() as folder:
        rules = _Landlock(folder)
        there = rules.there
        rules.close()
    return there


def _link(source, target):
    """Puts a file at another place, without copying its bytes where that can be."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


@functools.cache
def within_reach(python):
    """The real file of this Python, or a copy that the user of programs can reach; the copy ends with the tests."""
    real = Path(os.path.realpath(python))
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in real.parents):
        return str(python)
    if real != Path(os.path.realpath(sys._base_executable)):
        raise PermissionError("%s is closed to the user of programs" % real)
    folder = Path(tempfile.mkdtemp(prefix="ptc-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    prefix, name = Path(sys.base_prefix), "python%d.%d" % sys.version_info[:2]
    (folder / "bin").mkdir()
    # CPython finds its library by its own place.
    shutil.copytree(prefix / "lib" / name, folder / "lib" / name, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True, copy_function=_link)
    for library in (prefix / "lib").glob("libpython*.so*"):
        _link(library, folder / "lib" / library.name)
    text, old, new = real.read_bytes(), b"%s/lib\0" % os.fsencode(prefix), b"$ORIGIN/../lib\0"
    if len(old) >= len(new):
        # The texts of an executable end with a zero, so a shorter one fits in the place of a longer.
        text = text.replace(old, new.ljust(len(old), b"\0"), 1)
    copy = folder / "bin" / name
    copy.write_bytes(text)
    copy.chmod(0o755)
    return str(copy)
