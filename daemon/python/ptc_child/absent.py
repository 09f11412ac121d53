"""Lets a name of a tool that is not there explain itself where it is used, also to a program that catches the error."""

from sys import _getframe as _get_frame
from types import CodeType

from ptc_child.hints import name_hint
from ptc_child.source import NAME


def explain(code, namespace, absent, source, seen):
    """Gives a program that uses one of the absent names (name -> why) builtins that raise an explained NameError.

    Other programs keep the plain builtins: looking names up in these is slower.
    """
    if absent and not absent.keys().isdisjoint(_names(code)):
        own = namespace["__builtins__"]
        namespace["__builtins__"] = Builtins(vars(own), absent, source, seen)


def _names(code):
    """The global names a code object and those inside it use."""
    todo = [code]
    while todo:
        one = todo.pop()
        yield from one.co_names
        todo += [constant for constant in one.co_consts if isinstance(constant, CodeType)]


class Builtins(dict):
    """The builtins of a program, and the names it uses that no tool has."""

    def __init__(self, plain, absent, source, seen):
        super().__init__(plain)
        self._plain = plain
        self._absent = absent
        self._source = source
        self._seen = seen

    def __missing__(self, name):
        if name in self._plain:
            return self._plain[name]
        if name not in self._absent:
            raise KeyError(name)
        caller = _get_frame(1)
        line = self._source.line(caller.f_lineno) if caller.f_code.co_filename == NAME else ""
        why = name_hint(name, line, (), self._seen) or self._absent[name]
        raise NameError("name %r is not defined: %s" % (name, why), name=name)
