"""Runs one program from its R frame to its D frame, and then ends the process."""

import builtins
import faulthandler
import gc
import mmap
import os
import signal
import sys
from asyncio import current_task
from io import TextIOWrapper
from threading import get_ident
from types import ModuleType

from ptc_child import absent, frames, helpers, leftovers, loops, preload, repeat, report, waiting
from ptc_child.channel import LOST_CODE, Channel
from ptc_child.hints import Seen
from ptc_child.output import Sink, Stream, join_pipes, printer
from ptc_child.source import Source
from ptc_child.steps import Steps
from ptc_child.tools import ToolError, Tools, outcome

CHANNEL_FD = 3
CO_COROUTINE = 0x80
# Given back to a program that ran out of memory, so that its end can be told.
RESERVE_BYTES = 4 * 1024 * 1024
MAX_UNAWAITED = 50
MAX_NAME_BYTES = 512
# The ends of a program of which nothing more can be told.
LAST_WORDS = (
    b'{"ok":false,"unawaited":[],"error":{"type":"Exception","message":"",'
    b'"text":"the program ended and its error cannot be shown","line":null,"name":null}}'
)
OUT_OF_MEMORY = (
    b'{"ok":false,"unawaited":[],"error":{"type":"MemoryError","message":"",'
    b'"text":"MemoryError","line":null,"name":null}}'
)
WELL = b'{"ok":true,"unawaited":[]}'
_exit = os._exit
_eval = eval
_settrace = sys.settrace


class Worker:
    """One worker, from warm to its end."""

    def __init__(self, channel):
        self._channel = channel
        self._sink = Sink(channel)
        self._loop = None
        self._reserve = mmap.mmap(-1, RESERVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._source = None
        self._tools = None
        self._task = None
        self._thread = get_ident()
        self._seen = Seen()
        self._absent = {}
        self._builtins = _own_builtins()
        self._steps = Steps(None)
        self._error, self._over = None, False
        channel.on_failure = self._finish
        channel.on_stop = self._stop
        channel.on_result = self._result
        loops.install(channel)

    def open(self):
        """Takes what each worker has for itself: the channel, an event loop."""
        self._channel.open()
        self._loop = loops.new_loop()

    def serve(self):
        """Says hello, waits for the program, runs it; does not return."""
        version = "%d.%d.%d" % sys.version_info[:3]
        self._channel.send(b"H", b'{"protocol":%d,"python":"%s"}' % (frames.PROTOCOL, version.encode()))
        try:
            kind, run = self._channel.receive()
        except (EOFError, OSError, frames.FrameError):
            _exit(LOST_CODE)
        if kind != "R":
            _exit(LOST_CODE)
        if run.get("apart"):
            self._sink.by_frame = True
        else:
            join_pipes()
        self._source = Source(run["program"])
        namespace = self._namespace(run)
        try:
            self._loop.run_until_complete(self._run(namespace))
        except BaseException as error:
            # A task left with SystemExit, or the program stopped or broke its loop, or memory was short on the way.
            self._finish(self._error if self._over else error)
        _exit(LOST_CODE)

    def _namespace(self, run):
        """The program's module, with its tools and helpers in it."""
        limits = run["limits"]
        self._budget = limits.get("steps")
        repeat.settle(run)
        self._tools = Tools(self._channel, limits["max_call_bytes"])
        module = ModuleType("__main__")
        names = module.__dict__
        names["__file__"] = "<program>"
        names["__builtins__"] = sys.modules["builtins"] = self._builtins
        names["ToolError"] = ToolError
        names["emit"] = helpers.make_emit(self._channel, limits["max_emit_bytes"])
        names.update(helpers.helpers(self._tools))
        self._absent = run.get("absent", {})
        self._seen.tools = run["tools"]
        for name, parameters in run["tools"].items():
            names[name] = self._tools.function(name, parameters)
        sys.modules["__main__"] = module
        sys.argv = [""]
        sys.orig_argv = [""]
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = Stream(self._sink, name, fd)
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)
        return names

    async def _run(self, namespace):
        """The program's task. It tells the end itself: what the program did to the loop cannot keep it."""
        self._task = current_task()
        error = None
        try:
            report.remember_lines(self._source)
            code = self._source.compile()
            absent.explain(code, namespace, self._absent, self._source, self._seen)
            self._steps = Steps(self._budget)
            running = _eval(code, namespace)
            if code.co_flags & CO_COROUTINE:
                await running
        except BaseException as caught:
            error = caught
        self._error, self._over = error, True
        # Before anything that takes memory.
        self._reserve.close()
        _settrace(None)
        self._finish(error)

    def _result(self, tool, message):
        ok, value = outcome(message)
        if ok:
            self._seen.result(tool, value)
        return ok, value

    def _stop(self):
        """Answers a stop: where the program waits. Then nothing more is sent."""
        try:
            places = waiting.lines(self._loop, self._task, self._thread)
        except BaseException:
            places = []
        self._channel.close(b"W", frames.dumps({"lines": places}).encode("utf-8"))

    def _finish(self, error):
        """Sends what is left of the output, then the end; threads and exit handlers never get a turn after it."""
        try:
            self._reserve.close()
            _quieten()
            self._steps.end()
            body = self._end(error)
        except MemoryError:
            # Threads may have taken the reserve, too. A program that came to its end did so all the same.
            body = WELL if error is None else OUT_OF_MEMORY
        except BaseException:
            body = LAST_WORDS
        self._sink.close()
        self._channel.close(b"D", body)
        _exit(0)

    def _end(self, error):
        names = self._tools.unawaited()[:MAX_UNAWAITED]
        done = {"ok": True, "unawaited": [report.clip(name, MAX_NAME_BYTES) for name in names], **self._steps.told()}
        if isinstance(error, SystemExit):
            if error.code not in (None, 0):
                done.update(ok=False, error=report.exit_error(error.code))
        elif error is not None:
            done.update(ok=False, error=report.describe(error, self._source, self._seen))
        else:
            done.update(self._left())
        _flush_streams()
        if self._sink.unsent:
            done["unsent_output_bytes"] = self._sink.unsent
        return frames.dumps(done).encode("utf-8")

    def _left(self):
        """What the author of a program that succeeded may have forgotten."""
        left = {}
        try:
            left["running"] = leftovers.running(self._loop, self._task)
            if not self._sink.used:
                left["unprinted"] = leftovers.is_unprinted(self._source.tree(), self._seen.tools, self._seen.last)
        except Exception:
            # A program may have broken what this needs; nothing is said of it then.
            return {}
        return left


def _own_builtins():
    """A builtins module of the program's own: what it replaces there, the library never sees."""
    own = ModuleType("builtins", builtins.__doc__)
    own.__dict__.update(vars(builtins))
    own.print = printer(builtins.print)
    own.exit = own.quit = helpers.leave
    return own


def _quieten():
    """Takes away what could run program code between the end and its frame."""
    _settrace(None)
    sys.setprofile(None)
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 1_000))


def _flush_streams():
    """Flushes a text stream the program laid over ours, and a character cut in two."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if type(stream) is TextIOWrapper:
                stream.flush()
        except BaseException:
            continue
    for stream in (sys.__stdout__, sys.__stderr__):
        if type(stream) is Stream and not stream.closed:
            stream.buffer.finish()


def main(fork_point=None):
    """What a worker does: get warm, then serve one program. A fork server calls the rest in each of its workers."""
    gc.disable()
    # Whole numbers keep every digit, in arguments, results and what a program prints.
    sys.set_int_max_str_digits(0)
    preload.load()
    # The interpreter itself may have put a locale there.
    os.environ.clear()
    if fork_point is not None:
        loops.warm()
    worker = Worker(Channel(CHANNEL_FD))
    if fork_point is not None:
        fork_point()
    worker.open()
    try:
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    except (OSError, RuntimeError, AttributeError):
        # Without it a stuck program is ended all the same, only its line stays unknown.
        pass
    gc.enable()
    gc.freeze()
    worker.serve()
