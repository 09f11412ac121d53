"""Says what went wrong in a program, in the words a model reads: cause, program lines, hint."""

import linecache
from collections import deque
from traceback import FrameSummary, StackSummary, TracebackException
from types import TracebackType

from ptc_child.frames import quote
from ptc_child.hints import hints, is_too_nested
from ptc_child.source import NAME
from ptc_child.tools import ToolError
from ptc_child.values import Place

MAX_TEXT_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 8 * 1024
MAX_TYPE_BYTES = 512
SHOWN_FRAMES = 16
SHOWN_LEAVES = 5
MAX_LEAVES = 1_000
MAX_LINE_CHARS = 300
# A class of the program may have put something else in its place.
_traceback_of = BaseException.__traceback__.__get__
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")
EXIT_HINT = "\nHint: any code but 0 counts as a failure; to end early without one, write sys.exit()."
CUT = "\n... (%d characters left out) ...\n"


def describe(error, source, seen):
    """The error object of a D frame; `seen` is what is known of the run."""
    name = getattr(error, "name", None) if isinstance(error, NameError) else None
    try:
        kind = _kind(error, source)
        message = _message(error)
    except BaseException:
        kind, message = "Exception", "(the error cannot be shown)"
    try:
        text = _text(error, source, seen)
    except BaseException:
        # The program may have broken what the traceback module needs.
        text = "%s: %s%s" % (kind, message, _bare_lines(_traceback_of(error)))
    return {
        "type": clip(kind, MAX_TYPE_BYTES),
        "message": clip(message, MAX_MESSAGE_BYTES),
        "text": clip(text, MAX_TEXT_BYTES),
        "line": _line(error),
        "name": clip(name, MAX_TYPE_BYTES) if type(name) is str else None,
    }


def clip(text, limit):
    """`text` with its middle left out, so that its JSON stays under `limit` bytes."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    keep = limit
    shown = text
    while len(quote(shown).encode("utf-8")) > limit and keep > 1:
        keep = keep * 3 // 4
        if len(text) > keep:
            half = keep // 2
            shown = text[:half] + CUT % (len(text) - 2 * half) + text[-half:]
    return shown


def exit_error(code):
    """The error object of a program that left with a code that means failure."""
    try:
        message = clip(str(code), MAX_MESSAGE_BYTES)
    except BaseException:
        message = "(the code cannot be shown)"
    text = "SystemExit: " + message + (EXIT_HINT if type(code) is int else "")
    return {"type": "SystemExit", "message": message, "text": text, "line": None, "name": None}


def remember_lines(source):
    """Lets tracebacks, also the program's own, show the program's lines."""
    lines = [line + "\n" for line in source.lines]
    linecache.cache[NAME] = (len(source.sent), None, lines, NAME)


def _kind(error, source):
    """The class by which a limit is known: of a group that of the first error for want of memory, if one is there."""
    leaves, todo = [], [error]
    while todo and len(leaves) < MAX_LEAVES:
        one = todo.pop()
        if isinstance(one, BaseExceptionGroup):
            todo += reversed(one.exceptions)
        else:
            leaves.append(one)
    short = [one for one in leaves if type(one) is MemoryError]
    if short and all(is_too_nested(one, Place(one, source)) for one in short):
        return "RecursionError"
    return _type_name(MemoryError if short else type(error))


def _type_name(kind):
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else "%s.%s" % (module, kind.__qualname__)


def _message(error):
    if isinstance(error, SyntaxError):
        return str(error.msg)
    try:
        return str(error)
    except BaseException:
        return "<exception str() failed>"


def _line(error):
    """The innermost program line of an error, or of the first inside a group."""
    if isinstance(error, SyntaxError) and error.filename == NAME:
        return error.lineno
    line, step = None, _traceback_of(error)
    while step is not None:
        if step.tb_frame.f_code.co_filename == NAME:
            line = step.tb_lineno
        step = step.tb_next
    if line is None and isinstance(error, BaseExceptionGroup):
        return next((found for found in map(_line, error.exceptions) if found), None)
    return line


def _bare_lines(step):
    lines = []
    while step is not None and len(lines) < SHOWN_FRAMES:
        code = step.tb_frame.f_code
        if code.co_filename == NAME:
            lines.append('\n  File "%s", line %s, in %s' % (NAME, step.tb_lineno, code.co_name))
        step = step.tb_next
    return "".join(lines)


def _text(error, source, seen):
    remember_lines(source)
    if isinstance(error, SyntaxError) and error.filename == NAME:
        _fit_syntax_error(error, source)
    _drop_noise(error)
    left_out = _shorten_all(error)
    shown = TracebackException(type(error), error, error.__traceback__, compact=True)
    chained = _fit_frames(shown, error, left_out)
    cause = list(shown.format_exception_only())
    if isinstance(error, SyntaxError):
        # Python puts the place first; here the cause leads.
        at = next((at for at, part in enumerate(cause) if not part.startswith("  ")), 0)
        parts = [cause[at], *cause[:at], *cause[at + 1 :]]
        if shown.stack:
            parts += ["Traceback (most recent call last):\n", *shown.stack.format()]
    elif chained:
        parts = [*_leaves(shown, cause), *shown.format()]
    else:
        parts = list(cause)
        if shown.stack:
            parts += ["Traceback (most recent call last):\n", *shown.stack.format()]
    parts += [line + "\n" for line in _hints(error, source, seen)]
    return "".join(parts).rstrip("\n")


def _leaves(shown, cause):
    """What leads the text: the errors inside a group, since the group itself says only how many they are."""
    leaves, todo = [], [shown]
    while todo:
        one = todo.pop()
        todo += reversed(one.exceptions or ())
        if not one.exceptions and one is not shown:
            leaves.append("".join(one.format_exception_only()))
    more = ["(and %d more errors)\n" % (len(leaves) - SHOWN_LEAVES)] if len(leaves) > SHOWN_LEAVES else []
    return [*leaves[:SHOWN_LEAVES], *more] or cause


def _hints(error, source, seen):
    try:
        return hints(error, source, seen)
    except BaseException:
        # The program's own classes may answer anything; the rest of the text is whole without.
        return []


def _drop_noise(error):
    """What the library handled inside itself, such as asyncio's own CancelledError, tells a reader nothing."""
    for link in ("__cause__", "__context__"):
        behind = getattr(error, link)
        if type(behind).__name__ == "CancelledError" and isinstance(error, TimeoutError):
            setattr(error, link, None)
    if error.__context__ is not None and not _is_programs(error.__context__):
        error.__context__ = None


def _is_programs(error):
    """Whether the program had a part in an error: a line of its own, or what a tool raised."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == NAME:
            return True
        step = step.tb_next
    return isinstance(error, (ToolError, BaseExceptionGroup))


def _inner(error):
    """The errors shown together with this one."""
    return [*getattr(error, "exceptions", ()), error.__cause__, error.__context__]


def _shorten_all(error):
    """Leaves the program's own frames, of very many the first and the last, in this error and all behind it.

    Gives how many are left out, by the error's id. Done before anything is made of the frames: after a deep
    recursion there are millions.
    """
    left_out, todo = {}, [error]
    while todo:
        one = todo.pop()
        if isinstance(one, BaseException) and id(one) not in left_out:
            one.__traceback__, left_out[id(one)] = _shorten(one.__traceback__)
            todo += _inner(one) if isinstance(one, BaseExceptionGroup) else [one.__cause__, one.__context__]
    return left_out


def _shorten(step):
    half = SHOWN_FRAMES // 2
    first, last, count = [], deque(maxlen=half), 0
    while step is not None:
        if step.tb_frame.f_code.co_filename == NAME:
            count += 1
            (first if count <= half else last).append(step)
        step = step.tb_next
    kept = None
    for step in reversed([*first, *last]):
        kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return kept, max(0, count - SHOWN_FRAMES)


def _fit_frames(shown, error, left_out):
    """Makes the frames of all errors fit to be read; true if more than one error is shown."""
    several, seen = False, set()
    todo = [(shown, error)]
    while todo:
        one, of = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(of, (NameError, AttributeError, ImportError)):
            # Some versions of Python add a guess of their own, which knows nothing of servers.
            one._str = _message(of)
        frames = _without_comprehensions([_fit_line(frame) for frame in one.stack or ()])
        # Without a frame the heading is left out, too.
        one.stack = _Frames(frames, left_out.get(id(of), 0)) if frames else None
        linked = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        several = several or bool(one.exceptions) or linked is not None
        todo += zip([*(one.exceptions or ()), one.__cause__, one.__context__], _inner(of))
    return several


class _Frames(StackSummary):
    """Frames of which some in the middle are left out."""

    def __init__(self, frames, left_out):
        super().__init__(frames)
        self._left_out = left_out

    def format(self, **options):
        if not self._left_out:
            return super().format(**options)
        half = len(self) // 2
        first, last = StackSummary(self[:half]), StackSummary(self[half:])
        between = "  ... %d more frames ...\n" % self._left_out
        return [*first.format(**options), between, *last.format(**options)]


def _fit_line(frame):
    """The frame without carets, which each version of Python sets in its own way, and with the start of a long line."""
    line = frame.line or ""
    if len(line) > MAX_LINE_CHARS:
        line = line[:MAX_LINE_CHARS] + "..."
    return FrameSummary(frame.filename, frame.lineno, frame.name, line=line)


def _without_comprehensions(frames):
    """Python 3.11 gives a comprehension a frame of its own; here it is part of the function around it, as since."""
    kept = []
    for frame in frames:
        if frame.name in COMPREHENSIONS and kept:
            frame = FrameSummary(frame.filename, frame.lineno, kept.pop().name, line=frame.line)
        kept.append(frame)
    return kept


def _fit_syntax_error(error, source):
    """Gives a SyntaxError its line, of a very long one the part around the fault."""
    text = error.text or source.line(error.lineno or 0) + "\n"
    if len(text) > MAX_LINE_CHARS:
        start = max(0, (error.offset or 1) - MAX_LINE_CHARS // 2)
        text = text[start : start + MAX_LINE_CHARS]
        error.offset = (error.offset or 1) - start
        error.end_offset = error.offset + 1
    error.text = text
