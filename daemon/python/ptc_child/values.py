"""Finds and describes the value an error is about, without running anything of the program."""

import ast
from types import ModuleType

from ptc_child.source import NAME, TOP_LEVEL_AWAIT

MAX_KEYS = 12
MAX_KEY_CHARS = 40
MAX_EXPRESSION_CHARS = 60
MISSING = object()
_compile = compile
_unparse = ast.unparse


class Place:
    """The program's innermost place on an error's way: the frame and the expression that failed."""

    def __init__(self, error, source):
        self._source = source
        self._step = None
        step = error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == NAME:
                self._step = step
            step = step.tb_next
        self.node = self._node()

    def line(self):
        """The text of the line, or ''."""
        return "" if self._step is None else self._source.line(self._step.tb_lineno)

    def program(self):
        """The whole text of the program."""
        return self._source.sent

    def names(self):
        """What is defined there, each name once."""
        if self._step is None:
            return {}
        frame = self._step.tb_frame
        return {**frame.f_globals, **frame.f_locals}

    def indexed(self):
        """(text, value, key) if the place is an index into something; what is not known is MISSING."""
        if not isinstance(self.node, ast.Subscript):
            return None
        index = self.node.slice
        key = index.value if isinstance(index, ast.Constant) else MISSING
        return (*self.known(self.node.value), key)

    def read(self, attribute):
        """(text, value) if the place reads this attribute of something."""
        if isinstance(self.node, ast.Attribute) and self.node.attr == attribute:
            return self.known(self.node.value)
        return None

    def awaited(self):
        """(text, value) if the place awaits something."""
        return self.known(self.node.value) if isinstance(self.node, ast.Await) else None

    def name(self):
        """(text, value) if the place is nothing but a name, as what a loop goes over."""
        return self.known(self.node) if isinstance(self.node, ast.Name) else None

    def known(self, node):
        """(text, value) of an expression; what is not known is MISSING."""
        return self.text(node), self._resolve(node)

    def text(self, node):
        """An expression as it may be written, the beginning of a long one."""
        return _unparse(node)[:MAX_EXPRESSION_CHARS]

    def loop_over(self, name):
        """What the nearest loop above goes over whose variable has this name, or None."""
        if self._step is None:
            return None
        try:
            loops = [node for node in ast.walk(self._source.tree()) if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension))]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        loops = [node for node in loops if isinstance(node.target, ast.Name) and node.target.id == name]
        above = [node.iter for node in loops if node.target.lineno <= self._step.tb_lineno]
        return max(above, key=lambda node: node.lineno, default=None)

    def _node(self):
        try:
            segment = self._segment()
            if segment.startswith("for "):
                # Python 3.11 gives the whole loop as the place of what it goes over.
                return _parse(segment, "exec").body[0].iter
            return _parse("(" + segment + ")", "eval").body
        except (SyntaxError, ValueError, IndexError, AttributeError, TypeError, RecursionError, MemoryError):
            return None

    def _segment(self):
        """The source of the expression, by the place the compiler gave the instruction."""
        positions = list(self._step.tb_frame.f_code.co_positions())[self._step.tb_lasti // 2]
        first, last, start, end = positions
        lines = [self._source.line(number).encode() for number in range(first, last + 1)]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        return b"\n".join(lines).decode()

    def _resolve(self, node):
        """The value of a chain of names, constant indices and attributes of modules."""
        if isinstance(node, ast.Name):
            frame = self._step.tb_frame
            return frame.f_locals.get(node.id, frame.f_globals.get(node.id, MISSING))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            holder = self._resolve(node.value)
            if type(holder) in (dict, list, tuple, str):
                try:
                    return holder[node.slice.value]
                except (LookupError, TypeError):
                    return MISSING
        if isinstance(node, ast.Attribute):
            holder = self._resolve(node.value)
            if type(holder) is ModuleType:
                return vars(holder).get(node.attr, MISSING)
        return MISSING


def _parse(text, mode):
    return _compile(text, NAME, mode, TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)


def describe(value):
    """A value in a few words: a dict by its keys, a list by its length and first item."""
    if type(value) is dict:
        return "a dict with the %s" % keys(value) if value else "an empty dict"
    if type(value) in (list, tuple):
        kind = type(value).__name__
        if not value:
            return "an empty " + kind
        first = "a %s" % type(value[0]).__name__ if type(value[0]) in (list, tuple) else describe(value[0])
        return "a %s of %d %s; the first is %s" % (kind, len(value), "item" if len(value) == 1 else "items", first)
    if type(value) is str:
        return "text" if value else "an empty text"
    if value is None:
        return "None"
    name = type(value).__name__
    return ("an " if name[:1] in "aeiouAEIOU" else "a ") + name


def keys(value):
    """`keys 'a', 'b'` of a dict."""
    shown = [_clip(repr(key)) for key in list(value)[:MAX_KEYS] if type(key) in (str, int, float, bool, type(None))]
    more = len(value) - len(shown)
    text = ("key " if len(value) == 1 else "keys ") + ", ".join(shown)
    return text + " and %d more" % more if more else text


def _clip(text):
    return text if len(text) <= MAX_KEY_CHARS else text[:MAX_KEY_CHARS] + "..."
