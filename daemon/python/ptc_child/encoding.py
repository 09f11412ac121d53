"""Turns a program's values into JSON text, or says which part of one cannot be.

Whole numbers keep every digit, tuples become lists, and keys that are numbers,
true, false or None become text as JSON rules have it; any other key is refused.
"""

from math import isfinite
from re import compile as _pattern

from ptc_child.frames import dumps

MAX_DEPTH = 100
# What a key that was no text looks like as JSON. It may stand in a text, too.
_was_no_text = _pattern(r'"(?:-?\d[^"\\]*|true|false|null)":').search
_SCALARS = (str, int, float, bool, type(None))


def encode(value, root):
    """The JSON of `value` as UTF-8 bytes.

    Raises ValueError (NaN, infinity, cycle, lone surrogate, nesting) or TypeError
    (a type JSON has no word for); both name the path, which starts with `root`.
    """
    try:
        text = dumps(value)
        encoded = text.encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        encoded = None
    if encoded is None:
        raise _fault(value, root)
    # Each level has a bracket of its own, so few brackets mean few levels.
    if text.count("[") + text.count("{") > MAX_DEPTH and _too_deep(value):
        raise _fault(value, root)
    if _was_no_text(text):
        _refuse_twins(value, root)
    return encoded


def _refuse_twins(value, root):
    """Raises ValueError where two keys of one dict are the same text in JSON, as 1 and "1" are."""
    todo = [(value, root)]
    while todo:
        value, path = todo.pop()
        if isinstance(value, dict):
            if not all(type(key) is str for key in value):
                seen = {}
                for key in value:
                    text = key if isinstance(key, str) else dumps(key)
                    if text in seen:
                        raise ValueError("%s has the keys %r and %r, which are one key in JSON: keep one of them" % (_short(path), seen[text], key))
                    seen[text] = key
            items = ((item, path + _step(key)) for key, item in value.items() if isinstance(item, (dict, list, tuple)))
        else:
            items = ((item, "%s[%d]" % (path, at)) for at, item in enumerate(value) if isinstance(item, (dict, list, tuple)))
        todo += items


def _too_deep(value):
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(item, (dict, list, tuple))
        ]
        if not level:
            return False
    return True


def _fault(value, root):
    """The error for the first part of `value`, in reading order, that JSON cannot hold."""
    stack = [(value, root, ())]
    while stack:
        value, path, holders = stack.pop()
        fault = _scalar_fault(value, path)
        if fault is not None:
            return fault
        if isinstance(value, _SCALARS):
            continue
        if not isinstance(value, (dict, list, tuple)):
            return TypeError("%s is %s, which JSON cannot hold%s" % (path, _article(value), _remedy(value)))
        if id(value) in holders:
            return ValueError("%s contains itself (a cycle): JSON cannot hold it" % path)
        if len(holders) >= MAX_DEPTH:
            return ValueError("%s is nested deeper than %d levels" % (_short(path), MAX_DEPTH))
        fault = _push_items(stack, value, path, holders + (id(value),))
        if fault is not None:
            return fault
    return ValueError("%s cannot be written as JSON" % root)


def _push_items(stack, value, path, holders):
    if not isinstance(value, dict):
        items = [(item, "%s[%d]" % (path, at), holders) for at, item in enumerate(value)]
        stack.extend(reversed(items))
        return None
    items = []
    for key, item in value.items():
        if not isinstance(key, _SCALARS):
            return TypeError("a key of %s is %s: keys must be text" % (path, _article(key)))
        fault = _scalar_fault(key, "a key of " + path)
        if fault is not None:
            return fault
        items.append((item, path + _step(key), holders))
    stack.extend(reversed(items))
    return None


def _scalar_fault(value, path):
    if isinstance(value, float) and not isfinite(value):
        return ValueError("%s is %r: JSON has no such number; write None or leave it out" % (path, float(value)))
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            half = ascii(value[error.start])
            return ValueError("%s holds the lone surrogate %s, which is no text: take it out, as with .encode('utf-8', 'ignore').decode()" % (path, half))
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            int.__repr__(value)
        except ValueError as error:
            return ValueError("%s: %s" % (path, error))
    return None


def _step(key):
    if isinstance(key, str):
        return "." + key if key.isidentifier() else "[%s]" % ascii(key[:60])
    return "[%r]" % (key,)


def _short(path):
    return path if len(path) <= 200 else path[:100] + "..." + path[-40:]


def _article(value):
    name = type(value).__name__
    if name == "ToolCall":
        return "a tool call that was not awaited"
    return ("an " if name[:1] in "aeiouAEIOU" else "a ") + name


def _remedy(value):
    """What to write instead, for the types programs send by mistake."""
    for types, remedy in (
        (("set", "frozenset", "dict_keys", "dict_values", "generator", "range", "map", "filter", "deque"), "list(...)"),
        (("bytes", "bytearray", "memoryview"), ".decode() or base64"),
        (("datetime", "date", "time"), ".isoformat()"),
        (("Decimal", "Fraction"), "str(...) or float(...)"),
        (("Path", "PosixPath", "UUID", "timedelta"), "str(...)"),
    ):
        if type(value).__name__ in types:
            return ": use " + remedy
    return ": write " + str(value).partition("write ")[2] if type(value).__name__ == "ToolCall" else ""
