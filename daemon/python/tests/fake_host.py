"""Plays the daemon for one worker: starts it, sends frames, answers calls, collects what comes.

No sandbox of ptcd is around the program; `unharmful` says what keeps it from doing harm.

    with FakeHost() as host:
        end = host.run("print(await mcp__h__echo(a=1))", tools={"mcp__h__echo": ["a"]}, answer=lambda tool, a: a)
    end.ok, end.text, end.error["text"], end.calls, end.emitted
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

import unharmful

RUNTIME = Path(__file__).resolve().parent.parent / "ptc_child"
sys.path.insert(0, str(RUNTIME.parent))
sys.set_int_max_str_digits(0)
# The order in which the modules need each other; daemon/src/pool/runtime.rs has the same.
MODULES = "preload frames encoding source values syntax awaiting shapes hints absent tools report channel output helpers loops waiting leftovers repeat runner".split()
LIMITS = {"max_emit_bytes": 65536, "max_call_bytes": 4 * 1024 * 1024}
DEADLINE_SECONDS = 120
NO_ANSWER = object()


def boot_text():
    """The text a worker's interpreter is started with, as runtime.rs makes it."""
    sources = {name: (RUNTIME / (name + ".py")).read_text("utf-8") for name in MODULES}
    return "SOURCES = %s\n%s" % (json.dumps(sources), (RUNTIME / "bootstrap.py").read_text("utf-8"))


class Failure(Exception):
    """An answer that makes a call fail: Failure(kind="timeout", message="...")."""

    def __init__(self, message, kind="tool_failed", server="h", retryable=False, data=None):
        super().__init__(message)
        self.error = dict(kind=kind, message=message, server=server, retryable=retryable, data=data)


class End:
    """Everything one run left."""

    def __init__(self):
        self.framed = []
        self.written = ""
        self.emits = []
        self.calls = []
        self.queries = []
        self.where = None
        self.done = None

    @property
    def ok(self):
        return self.done["ok"]

    @property
    def error(self):
        return self.done["error"]

    @property
    def text(self):
        """What was printed: through the pipe, then where there was none, by frames."""
        return self.written + "".join(text for _, text in self.framed)

    @property
    def unawaited(self):
        return self.done["unawaited"]


class FakeHost:
    """One worker and the daemon's end of its channel."""

    def __init__(self, python=sys.executable):
        self.scratch = tempfile.TemporaryDirectory()
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(DEADLINE_SECONDS)
        self.pipes = []
        ends = []
        for fd in (1, 2):
            ours, child = os.pipe()
            os.set_blocking(ours, False)
            self.pipes.append(ours)
            ends.append(child)
        # Moved up first, so that no end lies where another is to go.
        null = os.open(os.devnull, os.O_RDONLY)
        high = [_above(os.dup(fd)) for fd in (null, *ends, theirs.fileno())]
        self.pid = unharmful.start([python, "-I", "-S", "-B", "-X", "utf8", "-c", boot_text()], high, self.scratch.name)
        for fd in (null, *high, *ends):
            os.close(fd)
        theirs.close()
        self.status = None
        self.usage = None
        self.hello = None
        self.written = bytearray()

    def __enter__(self):
        self.warm()
        return self

    def __exit__(self, *_error):
        self.end()

    def warm(self):
        """Waits for hello."""
        if self.hello is None:
            try:
                kind, self.hello = self.receive()
            except EOFError:
                raise RuntimeError("the worker did not get warm: " + (self.written + self.drain()).decode()) from None
            assert kind == "H", kind

    def send(self, kind, value):
        """Sends one frame."""
        self.send_raw(kind, json.dumps(value, ensure_ascii=False).encode("utf-8"))

    def send_raw(self, kind, body):
        """Sends one frame whose body is given as bytes."""
        self.channel.sendall(struct.pack("<IB", len(body) + 1, ord(kind)) + body)

    def receive(self):
        """The next frame: (kind, value); raises EOFError when the worker is gone."""
        kind, body = self.receive_raw()
        return kind, json.loads(body)

    def receive_raw(self):
        """The next frame: (kind, body bytes)."""
        length, kind = struct.unpack("<IB", self._exactly(5))
        return chr(kind), self._exactly(length - 1)

    def _exactly(self, size):
        parts = []
        while size:
            self._await_channel()
            part = self.channel.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _await_channel(self):
        """Takes what is printed for as long as nothing comes on the channel."""
        poll = select.poll()
        for fd in (self.channel.fileno(), *self.pipes):
            poll.register(fd, select.POLLIN)
        until = time.monotonic() + self.channel.gettimeout()
        while True:
            happened = dict(poll.poll(200))
            for fd in self.pipes:
                if happened.get(fd, 0) & select.POLLIN:
                    self.written += self._read(fd)
                elif fd in happened:
                    poll.unregister(fd)
            if self.channel.fileno() in happened:
                return
            if time.monotonic() > until:
                raise TimeoutError

    def until_printed(self, part):
        """Waits until the program has printed this."""
        until = time.monotonic() + DEADLINE_SECONDS
        while part.encode() not in self.written:
            if time.monotonic() > until:
                raise TimeoutError(bytes(self.written))
            select.select(self.pipes, (), (), 1)
            self.written += self.drain()

    def start(self, program, tools=None, limits=None, seed=None, apart=False):
        """Sends the program."""
        body = {"program": program, "tools": tools or {}, "limits": {**LIMITS, **(limits or {})}}
        if apart:
            body["apart"] = True
        if seed is not None:
            body["seed"] = seed
        self.send("R", body)

    def run(self, program, tools=None, answer=None, helper=None, limits=None, each=None):
        """Runs a program to its end; `answer(tool, arguments)` gives a value or NO_ANSWER, or raises a Failure."""
        self.start(program, tools, limits)
        return self.collect(answer, helper, each)

    def collect(self, answer=None, helper=None, each=None):
        """Takes frames until D, W or the end of the channel."""
        end = End()
        while True:
            try:
                kind, value = self.receive()
            except (EOFError, ConnectionResetError):
                break
            if each is not None:
                each(kind, value)
            self._take(end, kind, value, answer, helper)
            if kind in "DW":
                break
        self.written += self.drain()
        end.written = self.written.decode("utf-8", "replace")
        return end

    def _take(self, end, kind, value, answer, helper):
        if kind == "O":
            end.framed.append((value["stream"], value["text"]))
        elif kind == "E":
            end.emits.append(value["value"])
        elif kind == "D":
            end.done = value
        elif kind == "W":
            end.where = value["lines"]
        elif kind == "C":
            end.calls.append((value["tool"], value["arguments"]))
            if answer is not None:
                self.reply(value["id"], value["tool"], lambda: answer(value["tool"], value["arguments"]))
        elif kind == "Q":
            end.queries.append((value["helper"], value["arguments"]))
            self.reply(value["id"], value["helper"], lambda: helper(value["helper"], value["arguments"]))

    def reply(self, number, tool, compute):
        """Answers one call with what `compute` gives or raises."""
        try:
            value = compute()
            if value is NO_ANSWER:
                return
            answer = {"id": number, "ok": True, "value": value}
        except Failure as failure:
            answer = {"id": number, "ok": False, "error": {"tool": tool, **failure.error}}
        try:
            self.send("r", answer)
        except (BrokenPipeError, ConnectionResetError):
            # The worker has ended meanwhile; what it sent is still there to be read.
            return

    def drain(self):
        """What lies in the pipes now."""
        parts = []
        for fd in self.pipes:
            while part := self._read(fd):
                parts.append(part)
        return b"".join(parts)

    def _read(self, fd):
        try:
            return os.read(fd, 65536)
        except BlockingIOError:
            return b""

    def interrupt_until(self, part):
        """Asks for dumps of the stack (SIGUSR1, fd 2) until one holds `part`; gives all of them."""
        text, until = "", time.monotonic() + DEADLINE_SECONDS
        while part not in text:
            if time.monotonic() > until:
                raise TimeoutError(text)
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.02)
            text += self.drain().decode("utf-8", "replace")
        return text

    def wait(self, seconds=DEADLINE_SECONDS):
        """The worker's exit code (negative: signal), or None if it still lives at the deadline."""
        until = time.monotonic() + seconds
        while self.status is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.status, self.usage = os.waitstatus_to_exitcode(status), usage
            elif time.monotonic() > until:
                return None
            else:
                time.sleep(0.002)
        return self.status

    def end(self):
        """Kills what is left and removes it."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.channel.close()
        for fd in self.pipes:
            os.close(fd)
        self.scratch.cleanup()


def _above(fd):
    """The same file at a number no target has."""
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(fd)


def run(program, **kwargs):
    """Runs one program in one worker."""
    with FakeHost() as host:
        return host.run(program, **kwargs)
