"""Says what a value is where a program takes it for something else."""

import ast
import os
from difflib import get_close_matches
from re import escape, search

from ptc_child.values import MISSING, describe

ENVIRONMENT = "a program's environment is empty: servers have their own keys; write other values in the program."
PARSED = "it is %s already: results of tools arrive parsed, use the value as it is."
NO_WRAPPER = " A tool's result is its value itself, without %r around it."
NOTED = "%s is %s: write %s['data']; what stands under '_notes' the server sent beside it."
FAILED = "%s is a ToolError: %s; test isinstance(%s, ToolError) first, since return_exceptions=True gives errors, too."
ATTRIBUTES = "a ToolError has .kind, .tool, .server, .retryable, .data and .message."
KEY_OF_RESULT = "%s is a key: the result of %s is a dict; keep it, r = await %s(...), and loop over r%s."
COMPUTED = "%s is the text %r: to call a tool by a computed name, write await globals()[%s](...)."
UNORDERED = "dicts have no order: sort by a value of theirs, as in sorted(rows, key=lambda row: row[...])."
MAX_NEAR_KEYS = 200
SHOWN_CHARS = 40
MAX_MESSAGE_CHARS = 200
PLAIN_KEYS = (str, int, float, bool, type(None))
WRAPPERS = {"content", "result", "structuredContent", "structured_content", "isError", "text", "data"}
METHOD = "'builtin_function_or_method'"
_ENVIRON = os.environ


def lookup_hint(error, place):
    """The hint for a key or an index that is not there."""
    found = place.indexed()
    if found is None:
        return None
    name, value, key = found
    if isinstance(error, KeyError):
        if value is _ENVIRON:
            return ENVIRONMENT
        missing = error.args[0] if error.args else None
        if type(value) is not dict:
            return None
        if type(missing) is slice:
            return _slice_hint(name, value)
        if type(missing) not in PLAIN_KEYS or missing in value or (key is not MISSING and key != missing):
            return None
        return _key_hint(name, value, missing)
    if isinstance(error, IndexError) and type(value) in (list, tuple, str) and len(value) < 2:
        return "%s is %s." % (name, describe(value))
    return None


def misuse_hint(error, text, place, seen):
    """The hint for a TypeError or AttributeError about the kind of a value."""
    if text.startswith("the JSON object must be str"):
        return PARSED % ("a " + text.rpartition("not ")[2])
    if METHOD in text:
        return _method_hint(place)
    if text.endswith("not supported between instances of 'dict' and 'dict'"):
        return UNORDERED
    if isinstance(error, AttributeError):
        found = place.read(error.name)
        return _attribute_hint(found[0], error.obj, error.name, place, seen) if found else None
    if text == "'str' object is not callable":
        return _called_text_hint(place, seen)
    found = place.indexed()
    if found is not None:
        return _index_hint(*found, text, place, seen)
    found = place.name()
    if found is not None and found[1] is None and "object is not iterable" in text:
        return _none_hint(found[0], seen, place)
    if found is not None and "'ToolError' object is not iterable" in text:
        return _failed_hint(*found)
    return None


def _key_hint(name, value, missing):
    if _is_noted(value):
        return NOTED % (name, describe(value), name)
    rows = _only_list(value)
    if type(missing) is int and rows is not None:
        return "%s is %s: write %s[%r][%d]." % (name, describe(value), name, rows, missing)
    near = _near_key(value, missing)
    if near is not None:
        return "%s is %s: did you mean %s[%r]?" % (name, describe(value), name, near)
    return "%s is %s.%s" % (name, describe(value), _unwrapped(missing))


def _near_key(value, missing):
    """The key that is spelt nearly so, as total_count for totalCount."""
    if type(missing) is not str:
        return None
    folded = {_folded(key): key for key in list(value)[:MAX_NEAR_KEYS] if type(key) is str and len(key) <= MAX_MESSAGE_CHARS}
    near = get_close_matches(_folded(missing[:MAX_MESSAGE_CHARS]), folded, 1, 0.85)
    return folded[near[0]] if near else None


def _folded(key):
    return key.replace("_", "").replace("-", "").replace(" ", "").lower()


def _slice_hint(name, value):
    if _is_noted(value):
        return NOTED % (name, describe(value), name)
    rows = _only_list(value)
    instead = "slice the list in it, %s[%r][...]" % (name, rows) if rows is not None else "write list(%s.items())[...]" % name
    return "%s is %s, which has no slices: %s." % (name, describe(value), instead)


def _is_noted(value):
    """Whether it is a value that is no dict beside what the server sent with it."""
    return type(value) is dict and value.keys() == {"data", "_notes"}


def _only_list(value):
    """The key of the one list in a dict, or None."""
    rows = [key for key, one in value.items() if type(one) is list and type(key) is str]
    return rows[0] if len(rows) == 1 else None


def _method_hint(place):
    """`for x in r.items:` and the like, where r is a dict."""
    for node in ast.walk(place.node) if place.node is not None else ():
        if not isinstance(node, ast.Attribute):
            continue
        name, value = place.known(node.value)
        if type(value) is dict and node.attr in value:
            return "%s is %s: write %s[%r]." % (name, describe(value), name, node.attr)
        if type(value) in (dict, list, str) and callable(getattr(value, node.attr, None)):
            return "%s.%s is a method: write %s.%s(...)." % (name, node.attr, name, node.attr)
    return None


def _called_text_hint(place, seen):
    node = place.node
    if not isinstance(node, ast.Call):
        return None
    name, value = place.known(node.func)
    return COMPUTED % (name, value, name) if type(value) is str and value in seen.tools else None


def _index_hint(name, value, key, text, place, seen):
    if name in seen.tools:
        return "%s is a function: write await %s(...)." % (name, name)
    if text.startswith("string indices must be integers"):
        return _text_hint(name, value, place, seen)
    if type(value) is dict and text == "unhashable type: 'slice'":
        return _slice_hint(name, value)
    if type(value) is tuple and text.startswith("tuple indices must be integers"):
        return _pair_hint(name, value, place)
    if "'ToolError' object" in text:
        return _failed_hint(name, value)
    if type(value) is list and text.startswith("list indices must be integers"):
        if value and type(value[0]) is dict and type(key) is str and key in value[0]:
            return "%s is %s: take an item, as in %s[0][%r], or loop over it." % (name, describe(value), name, key)
        return "%s is %s: take an item by its number, or loop over it." % (name, describe(value))
    return _none_hint(name, seen, place) if value is None else None


def _failed_hint(name, value):
    message = str(value) if type(value).__name__ == "ToolError" else "a failed call"
    return FAILED % (name, message[:MAX_MESSAGE_CHARS], name)


def _pair_hint(name, value, place):
    over = place.loop_over(name)
    if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items"):
        return "%s is %s: take an item by its number." % (name, describe(value))
    holder, whole = place.known(over.func.value)
    if type(whole) is dict and type(whole.get("items")) is list:
        return "%s is %s: loop over %s['items']; %s.items() gives pairs of key and value." % (holder, describe(whole), holder, holder)
    return "%s.items() gives pairs of key and value: write for key, value in %s.items()." % (holder, holder)


def _attribute_hint(name, value, attribute, place, seen):
    if name in seen.tools:
        return "%s is a function: write await %s(...)." % (name, name)
    if value is None:
        return _none_hint(name, seen, place)
    if type(value) is str:
        return _text_hint(name, value, place, seen)
    if type(value).__name__ == "ToolError":
        return _failed_hint(name, value) if hasattr(dict, attribute) or hasattr(list, attribute) else ATTRIBUTES
    if type(value) is list:
        return "%s is %s." % (name, describe(value))
    if type(value) is not dict:
        return None
    if attribute in value:
        return "%s is %s: write %s[%r]." % (name, describe(value), name, attribute)
    if _is_noted(value):
        return NOTED % (name, describe(value), name)
    return "%s is %s: write %s[...].%s" % (name, describe(value), name, _unwrapped(attribute))


def _text_hint(name, value, place, seen):
    known = type(value) is str
    found = seen.text_of(value) if known else None
    if found:
        return "%s: its result is text, not JSON; it begins %r" % found
    if name.isidentifier():
        hint = _key_of_loop(name, value, place, seen)
        if hint:
            return hint
    if seen.texts and not (known and len(value) > 1):
        tool, _, start = seen.texts[-1]
        return "is it of %s? its result is text, not JSON; it begins %r" % (tool, start)
    return "%s is the text %r." % (name, value[:SHOWN_CHARS]) if known else None


def _key_of_loop(name, value, place, seen):
    """A loop over a dict, whose keys were taken for items."""
    for holder, one in place.names().items():
        if type(value) is str and type(one) is dict and value in one:
            if _is_noted(one):
                return NOTED % (holder, describe(one), holder)
            return "%s is the text %r. Is it from a loop over %s? That gives the keys: use %s.values() or %s.items()." % (
                name, value[:SHOWN_CHARS], holder, holder, holder)  # fmt: skip
    over = place.loop_over(name)
    if not isinstance(over, ast.Await):
        return None
    for tool, keys, rows in reversed(seen.dicts):
        # Some versions of Python hide the variable of a comprehension.
        if place.text(over.value).startswith(tool + "(") and (value is MISSING or value in keys):
            within = "[%r]" % rows if rows is not None else ".items()"
            return KEY_OF_RESULT % (name, tool, tool, within)
    return None


def _none_hint(name, seen, place):
    if search(r"(?m)^\s*%s\s*=.*\b(getenv|environ\.get)\(" % escape(name), place.program()):
        return "%s is None: %s" % (name, ENVIRONMENT)
    nothing = "; %s answered without content, which is None" % seen.nothing if seen.nothing else ""
    return "%s is None%s." % (name, nothing)


def _unwrapped(key):
    return NO_WRAPPER % key if type(key) is str and key in WRAPPERS else ""
