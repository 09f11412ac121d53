"""Tries, inside a worker, what no program may do, and answers how each attempt ended.

An attempt that is refused gives its error number, one that succeeds gives null, one that cannot be made gives a text.
"""

import json
import os
import socket
import sys

CHANNEL = 3


def receive():
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(CHANNEL, 65536)
        if not part:
            os._exit(1)
        text += part
    return json.loads(text)


def send(answer):
    text = json.dumps(answer).encode() + b"\n"
    while text:
        text = text[os.write(CHANNEL, text):]


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def write(path):
    with open(path, "wb") as file:
        file.write(b"x")


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(2)
        connection.connect(address)


def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def trace(pid):
    import ctypes

    if sys.platform == "darwin":
        # Here an attempt that succeeds would stop the other process.
        raise ImportError
    libc = ctypes.CDLL(None, use_errno=True)
    # PTRACE_SEIZE stops nothing, so an attempt that succeeds does no harm.
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(0x4206, pid, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def others():
    found = []
    for number in range(CHANNEL + 1, 1024):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


def look_into(pid):
    """Reads what the system shows of a process: its environment."""
    if sys.platform != "darwin":
        return read("/proc/%s/environ" % pid)
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    # CTL_KERN, KERN_PROCARGS2.
    name = (ctypes.c_int * 3)(1, 49, os.getpid() if pid == "self" else pid)
    room = ctypes.create_string_buffer(1 << 20)
    size = ctypes.c_size_t(len(room))
    if libc.sysctl(name, 3, room, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return error.errno
    except ImportError:
        return "left out"
    except BaseException as error:
        return repr(error)
    return None


# With an empty environment the interpreter gives itself this one, in its own memory.
os.environ.pop("LC_CTYPE", None)
task = receive()
answers = {
    "read a file": attempt(read, task["file"]),
    "write a file": attempt(write, task["beside"]),
    "connect to a port": attempt(connect, socket.AF_INET, ("127.0.0.1", task["port"])),
    "connect to a socket": attempt(connect, socket.AF_UNIX, task["socket"]),
    "start a process": attempt(fork),
    "signal its parent": attempt(os.kill, os.getppid(), 0),
    "signal ptcd": attempt(os.kill, task["pid"], 0),
    "read the environment of ptcd": attempt(look_into, task["pid"]),
    "read its own environment file": attempt(look_into, "self"),
    "trace its parent": attempt(trace, os.getppid()),
    "see a file": attempt(os.stat, task["file"]),
    "see ptcd": attempt(os.stat, "/proc/%d" % task["pid"]),
    "have a variable": None if os.environ else 13,
    "have another descriptor": None if others() else 13,
    "list the root": attempt(os.listdir, "/"),
    "version": "%d.%d.%d" % sys.version_info[:3],
    # Last: a program that takes this one's place answers nothing.
    "run a program": attempt(os.execv, sys.executable, [sys.executable, "-I", "-S", "-c", ""]),
}
send(answers)
os.read(CHANNEL, 1)
