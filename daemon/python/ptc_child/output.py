"""What the program prints: text streams that write to the descriptors at once, in the order written."""

import codecs
import io
import os
import sys
from select import POLLOUT, poll as _new_poll
from threading import RLock

from ptc_child.frames import quote

# A character takes at most six bytes of JSON, so a piece stays under the frame's 256 KiB.
PIECE_CHARS = 40_000
MAX_SENT_BYTES = 64 * 1024 * 1024
_write = os.write


def join_pipes():
    """Makes descriptors 1 and 2 ends of one pipe: what is written to either stands in the order written."""
    try:
        os.dup2(2, 1)
    except OSError:
        # Each keeps its own order.
        pass


class Sink:
    """Writes what is printed to the very descriptors that raw writes go to, so that all have one order.

    With `by_frame` it sends all of it to the daemon, which then knows the stream of each text.
    """

    def __init__(self, channel):
        self._channel = channel
        # Of its own: a long write must not keep calls from being sent.
        self._lock = RLock()
        self._sent = 0
        self._closed = False
        self.by_frame = False
        self.unsent = 0

    @property
    def used(self):
        """Whether anything was written."""
        return bool(self._sent or self.unsent)

    def write(self, stream, fd, text):
        """Writes text of `stream`, which has the descriptor `fd`."""
        with self._lock:
            for at in range(0, len(text), PIECE_CHARS):
                self._write(stream, fd, text[at : at + PIECE_CHARS].encode("utf-8", "backslashreplace"))

    def close(self):
        """Drops what comes later: threads that are left say nothing after the end."""
        self._closed = True

    def _write(self, stream, fd, data):
        if self._closed:
            return
        if self._sent >= MAX_SENT_BYTES:
            # Past this the daemon would keep nothing: only the size still matters.
            self.unsent += len(data)
            return
        self._sent += len(data)
        if self.by_frame:
            self._send(stream, data)
            return
        at = 0
        try:
            while at < len(data):
                try:
                    at += _write(fd, data[at:] if at else data)
                except BlockingIOError:
                    _await_room(fd)
        except OSError:
            # The program closed the descriptor; its channel is still there.
            self._send(stream, data[at:])

    def _send(self, stream, data):
        text = data.decode("utf-8", "backslashreplace")
        self._channel.send(b"O", b'{"stream":"%s","text":%s}' % (stream.encode(), quote(text).encode()))


def _await_room(fd):
    """Waits until a descriptor that the program made non-blocking takes more."""
    poll = _new_poll()
    poll.register(fd, POLLOUT)
    poll.poll()


class Stream(io.TextIOBase):
    """A sys.stdout or sys.stderr that cannot fail on any text."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = True
    mode = "w"

    def __init__(self, sink, name, fd):
        self._sink = sink
        self._stream = name
        self._fd = fd
        self.name = "<%s>" % name
        self.buffer = Bytes(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        self._sink.write(self._stream, self._fd, text if type(text) is str else str.__str__(text))
        return len(text)

    def flush(self):
        """Nothing waits to be written."""

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def isatty(self):
        return False

    def reconfigure(self, **_settings):
        """Accepted and without effect: the settings suit every text already."""


class Bytes(io.BufferedIOBase):
    """The `.buffer` of a Stream: bytes become text, broken ones visible."""

    mode = "wb"

    def __init__(self, stream):
        self._text = stream
        self.name = stream.name
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    @property
    def raw(self):
        return self

    def write(self, data):
        view = memoryview(data)
        self._text.write(self._decoder.decode(view.tobytes()))
        return view.nbytes

    def flush(self):
        self._text.flush()

    def finish(self):
        """Shows a character whose last bytes never came."""
        rest = self._decoder.decode(b"", True)
        if rest:
            self._text.write(rest)

    def writable(self):
        return True

    def fileno(self):
        return self._text.fileno()

    def isatty(self):
        return False


def printer(plain):
    """A `print` that writes a call's whole text at once: threads do not mix their lines."""

    def print(*values, sep=" ", end="\n", file=None, flush=False):
        stream = sys.stdout if file is None else file
        texts = (sep is None or isinstance(sep, str)) and (end is None or isinstance(end, str))
        if type(stream) is not Stream or not texts:
            plain(*values, sep=sep, end=end, file=file, flush=flush)
            return
        sep = " " if sep is None else sep
        stream.write(sep.join(map(str, values)) + ("\n" if end is None else end))

    print.__module__ = "builtins"
    print.__qualname__ = "print"
    print.__doc__ = plain.__doc__
    return print
