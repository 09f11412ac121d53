"""The tools as async functions: what a call sends, what a wrong call explains."""

import inspect
import warnings
from asyncio import coroutines
from collections.abc import Coroutine
from keyword import iskeyword
from sys import _getframe as _get_frame
from unicodedata import is_normalized

from ptc_child.encoding import encode
from ptc_child.frames import quote
from ptc_child.source import NAME

SHOWN_PARAMETERS = 12
MAX_COROUTINES = 1000
UNPACK = ", or unpack the dict: await %s(**{...})"


class ToolError(Exception):
    """A tool call failed; `kind` says how, `retryable` whether the same call may work later."""

    def __init__(self, message="", *, kind="tool_failed", tool=None, server=None, retryable=False, data=None):
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.tool = tool
        self.server = server
        self.retryable = retryable
        self.data = data

    def __str__(self):
        return str(self.message)


# Shown and pickled under the name the program knows it by.
ToolError.__module__ = "__main__"


class ToolCall:
    """One call that waits to be awaited; a coroutine to asyncio, an explanation to everything else."""

    __slots__ = ("_begin", "_iterator", "_name", "__weakref__")

    def __init__(self, name, begin):
        self._name = name
        self._begin = begin
        self._iterator = None

    def __await__(self):
        begin, self._begin = self._begin, None
        if begin is None:
            raise RuntimeError("cannot reuse already awaited %s(...)" % self._name)
        return begin(True).__await__()

    def send(self, value):
        if self._iterator is None:
            self._iterator = self.__await__()
        return self._iterator.send(value)

    def throw(self, *error):
        if self._iterator is None:
            self.close()
            raise error[0] if len(error) == 1 else error[1] or error[0]
        return self._iterator.throw(*error)

    def close(self):
        begin, self._begin = self._begin, None
        if begin is not None:
            begin(False)
        if self._iterator is not None:
            self._iterator.close()

    def __repr__(self):
        if self._begin is None:
            return "<call of %s>" % self._name
        return _explain(self._name)

    __str__ = __repr__
    __hash__ = object.__hash__

    def __getattr__(self, attribute):
        if attribute in ("__name__", "__qualname__"):
            return self._name
        raise AttributeError("%s; it has no %s" % (_explain(self._name), attribute), name=attribute)

    def __bool__(self):
        # asyncio tests a task's coroutine for truth when it shows the task.
        if _get_frame(1).f_code.co_filename == NAME:
            raise TypeError(_explain(self._name))
        return True

    def __eq__(self, other):
        if other is None or isinstance(other, ToolCall):
            return self is other
        raise TypeError(_explain(self._name))


def _explain(name):
    return "%s(...) is async: write await %s(...)" % (name, name)


def _refuse(self, *_operands):
    raise TypeError(_explain(self._name))


_refuse.__name__ = "tool_call_not_awaited"
for _operation in (
    "getitem setitem delitem iter next len contains reversed int float index complex call enter exit "
    "aenter aexit aiter anext lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv "
    "mod rmod pow rpow and rand or ror xor rxor neg pos abs format bytes round"
).split():
    setattr(ToolCall, "__%s__" % _operation, _refuse)
del ToolCall.__next__
Coroutine.register(ToolCall)


class Tools:
    """Makes the program's tool functions, and knows which calls were never awaited."""

    def __init__(self, channel, max_call_bytes):
        self._channel = channel
        self._max_call_bytes = max_call_bytes
        self._unawaited = {}
        self._watch_coroutines()

    def _watch_coroutines(self):
        """A coroutine of the program that is dropped unused is named with the calls, in place of Python's warning."""
        plain = warnings._warn_unawaited_coroutine

        def warn(coroutine):
            code = getattr(coroutine, "cr_code", None)
            if code is None or code.co_filename != NAME:
                plain(coroutine)
            elif len(self._unawaited) < MAX_COROUTINES:
                self._unawaited[object()] = coroutine.__name__

        warnings._warn_unawaited_coroutine = warn

    def unawaited(self):
        """Names of the tools with a call that was made and never awaited, each once, in order."""
        return list(dict.fromkeys(self._unawaited.values()))

    def function(self, name, parameters):
        """The async function of one tool."""

        def tool(*positional, **arguments):
            if positional:
                unpack = len(positional) == 1 and type(positional[0]) is dict and not arguments
                raise TypeError(_positional(name, parameters) + (UNPACK % name if unpack else ""))
            return self._call(name, arguments)

        return named(tool, name, "Call it as: " + usage(name, parameters))

    def _call(self, name, arguments):
        encoded = encode(arguments, "arguments")
        if len(encoded) > self._max_call_bytes:
            raise ValueError(
                "the arguments of %s are %d bytes of JSON, over the limit of %d bytes"
                % (name, len(encoded), self._max_call_bytes)
            )
        rest = b'"tool":%s,"arguments":%s}' % (quote(name).encode(), encoded)
        return self.pending(name, b"C", rest)

    def pending(self, name, kind, rest):
        """A call that sends its frame when it is first waited for."""
        key = object()
        self._unawaited[key] = name

        def begin(go_on):
            self._unawaited.pop(key, None)
            if not go_on:
                return None
            future = self._channel.request(kind, rest, name)
            if future is None:
                raise ToolError("%s was not called: the program is being stopped" % name, kind="cancelled", tool=name)
            return future

        return ToolCall(name, begin)


def named(function, name, doc):
    """Gives a function of ours the looks of one the program could have written."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    function.__doc__ = doc
    marker = getattr(coroutines, "_is_coroutine", None)
    if marker is not None:
        function._is_coroutine = marker
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(function)
    return function


def usage(name, parameters):
    """`await name(a=..., b=...)`, with the ** spelling for names Python cannot write."""
    plain, quoted = [], []
    for parameter in parameters[:SHOWN_PARAMETERS]:
        # Python folds a written keyword (NFKC), so a name that folding would change needs the ** form.
        if parameter.isidentifier() and not iskeyword(parameter) and is_normalized("NFKC", parameter):
            plain.append(parameter + "=...")
        else:
            quoted.append(ascii(parameter) + ": ...")
    if quoted:
        plain.append("**{%s}" % ", ".join(quoted))
    if len(parameters) > SHOWN_PARAMETERS:
        plain.append("...")
    return "await %s(%s)" % (name, ", ".join(plain))


def _positional(name, parameters):
    if not parameters:
        return "%s takes keyword arguments only: write %s" % (name, usage(name, ["name"]))
    names = ", ".join(p if p.isidentifier() else ascii(p) for p in parameters[:SHOWN_PARAMETERS])
    return "%s takes keyword arguments only (%s): write %s" % (name, names, usage(name, parameters))


def outcome(message):
    """(True, value) or (False, ToolError) of a result frame."""
    if message["ok"]:
        return True, message.get("value")
    error = message["error"]
    return False, ToolError(
        error["message"],
        kind=error["kind"],
        tool=error.get("tool"),
        server=error.get("server"),
        retryable=bool(error.get("retryable")),
        data=error.get("data"),
    )
