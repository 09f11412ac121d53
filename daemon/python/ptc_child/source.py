"""Compiles a program's text as models send it, never changing what its strings hold.

Line numbers stay those of the text as sent: a fence line is blanked, not removed,
and a text that is indented as a whole is parsed as a block whose lines are moved
back in the syntax tree.
"""

import ast
import sys
from resource import RLIM_INFINITY, RLIMIT_DATA, RUSAGE_SELF, getrlimit, getrusage

NAME = "<program>"
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_compile = compile
_increment_lineno = ast.increment_lineno


TOO_NESTED = "the program is nested deeper than Python can read"


def is_nesting(error, compiling):
    """Whether an error is the answer of Python's own parser or compiler to what is nested too deep.

    Python 3.11 says nothing with it; then it is the parser's if the error comes from there (`compiling`) and
    memory is far from used up.
    """
    text = str(error)
    if isinstance(error, RecursionError):
        return text.endswith((" during compilation", " during ast construction"))
    if type(error) is not MemoryError:
        return False
    if text or sys.version_info >= (3, 12):
        return text.startswith("Parser stack overflowed")
    limit = getrlimit(RLIMIT_DATA)[0]
    return compiling and (limit == RLIM_INFINITY or getrusage(RUSAGE_SELF).ru_maxrss * 1024 < limit // 2)


class Source:
    """One program: its lines as sent and its code."""

    def __init__(self, text):
        self.sent = _plain_newlines(text)
        self.text = _without_fence(self.sent)
        self.lines = self.sent.split("\n")

    def compile(self):
        """The code object; raises SyntaxError with the line and text as sent."""
        try:
            return self._compiled()
        except (MemoryError, RecursionError) as error:
            if not is_nesting(error, True):
                raise
        # Outside the handler, so that the other error is not shown behind it.
        raise SyntaxError(TOO_NESTED)

    def _compiled(self):
        try:
            return _compile(self.text, NAME, "exec", TOP_LEVEL_AWAIT, True)
        except IndentationError as error:
            if isinstance(error, TabError) or not _starts_indented(self.text):
                raise
            block = _as_block(self.text)
            if block is None:
                raise
            tree = block
        return self._compile_tree(tree)

    def tree(self):
        """The syntax tree, with the lines of the text as sent."""
        try:
            return _compile(self.text, NAME, "exec", TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
        except IndentationError:
            block = _as_block(self.text)
            if block is None:
                raise
            return block

    def _compile_tree(self, tree):
        try:
            return _compile(tree, NAME, "exec", TOP_LEVEL_AWAIT, True)
        except SyntaxError as error:
            error.__context__ = None
            raise

    def line(self, number):
        """The text of a line as sent, or ''."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def begins_with_fence(self):
        """Whether a fence line was left in place because nothing closes it."""
        return self.text.lstrip().startswith(("```", "~~~"))


def _plain_newlines(text):
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _without_fence(text):
    """Blanks a fence around the whole text; no Python text starts with one, so nothing else is touched."""
    lines = text.split("\n")
    filled = [at for at, line in enumerate(lines) if line.strip()]
    if len(filled) < 2:
        return text
    first, last = lines[filled[0]].strip(), lines[filled[-1]].strip()
    for mark in ("`", "~"):
        size = len(first) - len(first.lstrip(mark))
        closes = len(last) >= size and not last.strip(mark)
        if size >= 3 and mark not in first[size:] and closes:
            lines[filled[0]] = lines[filled[-1]] = ""
            return "\n".join(lines)
    return text


def _starts_indented(text):
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            return line[0] in " \t"
    return False


def _as_block(text):
    """The tree of a text whose every statement is indented by the same amount, else None."""
    try:
        tree = _compile("if 1:\n" + text, NAME, "exec", TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    except SyntaxError as error:
        _move_back(error)
        raise
    if len(tree.body) != 1 or tree.body[0].orelse:
        return None
    tree.body = tree.body[0].body
    return _increment_lineno(tree, -1)


def _move_back(error):
    """Takes the line that was put in front out of a SyntaxError's place and text."""
    error.__context__ = None
    for name in ("lineno", "end_lineno"):
        number = getattr(error, name)
        if number:
            setattr(error, name, number - 1)
    error.msg = error.msg.replace(" after 'if' statement on line 1", "")
