"""Carries frames between the worker and the daemon.

It knows who waits for which answer, and when nothing may be sent any more.
"""

import os
import select
from _io import FileIO
from asyncio import get_running_loop
from asyncio.events import _get_running_loop
from itertools import count
from threading import Lock, RLock

from ptc_child import frames

_write = os.write
_exit = os._exit
set_blocking = os.set_blocking
_new_poll = select.poll
_POLLIN = select.POLLIN
_POLLOUT = select.POLLOUT
_UNPACK = frames.HEADER.unpack_from
_HEADER_BYTES = frames.HEADER.size
LOST_CODE = 70


class Reader:
    """Reads frames off a descriptor; a body is read into a buffer of its announced size, decoded once."""

    def __init__(self, fd):
        self._file = FileIO(fd, "rb", closefd=False)
        self._start()

    def _start(self):
        self._target = bytearray(_HEADER_BYTES)
        self._filled = 0
        self._kind = None

    def next(self):
        """(kind letter, body bytes) of the next frame, or None while no more has come."""
        while True:
            while self._filled < len(self._target):
                got = self._file.readinto(memoryview(self._target)[self._filled :])
                if got is None:
                    return None
                if not got:
                    raise EOFError
                self._filled += got
            if self._kind is not None:
                break
            length, self._kind = _UNPACK(self._target)
            frames.check_header(length, self._kind)
            self._target, self._filled = bytearray(length - 1), 0
        frame = chr(self._kind), self._target
        self._start()
        return frame


class Channel:
    """The worker's end. Writing is thread-safe; reading is done by whichever event loop is running."""

    def __init__(self, fd):
        self.fd = fd
        self.lock = RLock()
        self.on_failure = None
        self.on_stop = None
        self.on_result = None
        self._reader = Reader(fd)
        self._reading = Lock()
        self._ids = count(1)
        self._pending = {}
        self._closed = False
        self._writing = False
        self._stop_waits = False

    def open(self):
        """Begins to use the descriptor. What is before it may be done before a worker is forked."""
        set_blocking(self.fd, False)
        # A fork of the program (only where nothing forbids one) has no part in the channel.
        os.register_at_fork(after_in_child=self._abandon)

    def _abandon(self):
        self.lock, self._closed = RLock(), True

    def send(self, kind, body):
        """Writes one frame; False (and nothing written) once the channel is closed."""
        with self.lock:
            if self._closed:
                return False
            self._write_frame(frames.encode(kind, body))
            return True

    def close(self, kind, body):
        """Writes the last frame: nothing follows it, whatever threads or tasks are left."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._write_frame(frames.encode(kind, body))

    def _write_frame(self, frame):
        rest = memoryview(frame)
        self._writing = True
        try:
            while rest:
                try:
                    rest = rest[_write(self.fd, rest) :]
                except BlockingIOError:
                    self._await_room()
        except OSError:
            _exit(LOST_CODE)
        finally:
            self._writing = False
        if self._stop_waits:
            self._stop_waits = False
            self.on_stop()

    def _await_room(self):
        """Takes what comes meanwhile: two sides that both only write would wait for each other for ever."""
        poll = _new_poll()
        poll.register(self.fd, _POLLOUT | _POLLIN)
        for _, event in poll.poll():
            if event & _POLLIN and not event & _POLLOUT and not self.pump():
                poll.modify(self.fd, _POLLOUT)
                poll.poll()

    def request(self, kind, rest, tool):
        """Sends a C or Q frame whose body is `rest` after the id; gives the future of its answer, or None if closed."""
        future = get_running_loop().create_future()
        number = next(self._ids)
        self._pending[number] = future, tool
        if self.send(kind, b'{"id":%d,%s' % (number, rest)):
            return future
        del self._pending[number]
        return None

    def receive(self):
        """Blocks for the next frame: (kind, value)."""
        poll = _new_poll()
        poll.register(self.fd, _POLLIN)
        while True:
            frame = self._reader.next()
            if frame is not None:
                return frame[0], frames.loads(frame[1])
            poll.poll()

    def pump(self):
        """Takes what has come; false if another thread is at it, which then takes all."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            while (frame := self._reader.next()) is not None:
                self._dispatch(*frame)
        except MemoryError:
            # There is no room for the bytes of an answer, so no call can go on.
            self._end_without_memory()
        except (EOFError, OSError, frames.FrameError):
            # Without the daemon there is nobody to work for.
            _exit(LOST_CODE)
        finally:
            self._reading.release()
        return True

    def _end_without_memory(self):
        if self._writing:
            _exit(LOST_CODE)
        self.on_failure(MemoryError("the result of a tool does not fit into memory"))

    def _dispatch(self, kind, body):
        if kind == "r":
            try:
                message = frames.loads(body)
            except MemoryError:
                self._too_large(body)
                return
            future, tool = self._pending.pop(message["id"], (None, None))
            if future is not None:
                self._settle(future, self.on_result(tool, message))
        elif kind == "X" and self._writing:
            # Whoever writes ends that frame first.
            self._stop_waits = True
        elif kind == "X":
            self.on_stop()

    def _too_large(self, body):
        number = bytes(body[:40]).partition(b'"id":')[2].partition(b",")[0]
        future, tool = self._pending.pop(int(number), (None, None))
        if future is not None:
            error = MemoryError("the result of %s (%d bytes) does not fit into memory" % (tool, len(body)))
            self._settle(future, (False, error))

    def _settle(self, future, outcome):
        loop = future.get_loop()
        if loop is _get_running_loop():
            _apply(future, outcome)
        else:
            try:
                loop.call_soon_threadsafe(_apply, future, outcome)
            except RuntimeError:
                # Its loop was closed: nobody waits any more.
                return


def _apply(future, outcome):
    ok, value = outcome
    if future.done():
        return
    if ok:
        future.set_result(value)
    else:
        future.set_exception(value)
