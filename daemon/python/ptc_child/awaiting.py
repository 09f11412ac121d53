"""Says what to write where a value is used before it is awaited, or what is no call is awaited."""

import ast
from re import search

from ptc_child.values import MISSING, describe

THERE_ALREADY = "%s is %s, not a call: await the call only, once."
ONE_BY_ONE = "gather takes the calls one by one: write asyncio.gather(*[...])."
A_LIST = "await takes one call, not a list of them: write await asyncio.gather(*[...])."
GENERATOR = "await inside (... for ...) makes an asynchronous generator: write a list, [... for ...], which is made at once."
TASKS = "wait takes tasks: give it [asyncio.create_task(...) ...], or write await asyncio.gather(*[...])."
BAD_YIELD = "Task got bad yield: "
LOOPED = "a future is awaited, not looped over: write await in front of it, as in await asyncio.gather(...)."
COLLECTORS = {"list", "tuple", "set", "dict", "sorted", "sum", "min", "max", "enumerate", "zip", "any", "all"}
HELPERS = ("list_callable_tools", "inspect_tool", "server_status")
UNAWAITED = r"'(coroutine|_GatheringFuture|(?:_asyncio\.)?(?:Task|Future))'"
NOT_AWAITABLE = ("can't be used in 'await' expression", "object can't be awaited")


def awaiting_hint(error, text, place, seen):
    """The hint for an error of one of these kinds, or None."""
    if " is async: write await " in text:
        return _precedence(place, error)
    if "ToolCall" in text:
        return "a tool call is async: write await mcp__...(...)."
    if any(part in text for part in NOT_AWAITABLE):
        return _not_awaitable(place, seen)
    if "'async_generator' object" in text:
        return _generator_hint(text, place)
    if text == "Passing coroutines is forbidden, use tasks explicitly.":
        return TASKS
    if _calls(place.node, "gather") and (text.startswith("unhashable type") or "an awaitable is required" in text):
        return ONE_BY_ONE
    if search(UNAWAITED, text):
        return _unawaited(error, place)
    return None


def unfinished_hint(text, place):
    """The hint for a future that is asked for its result before it has one."""
    if text not in ("Result is not set.", "Exception is not set."):
        return None
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return "it is not done yet: write await %s." % place.text(node.func.value)
    return "it is not done yet: await it."


def _generator_hint(text, place):
    """A function of the program makes one, which is looped over or collected; the rest is one in round brackets."""
    node, collects = place.node, isinstance(place.node, ast.Call) and len(place.node.args) == 1
    if collects and isinstance(node.func, ast.Name) and node.func.id in COLLECTORS:
        node = node.args[0]
    else:
        collects = False
    if isinstance(node, ast.Name):
        made_by = getattr(getattr(place.known(node)[1], "ag_code", None), "co_name", "<genexpr>")
    else:
        made_by = "" if isinstance(node, ast.Call) and text.endswith("is not iterable") else "<genexpr>"
    if made_by == "<genexpr>":
        return GENERATOR
    source = place.text(node)
    write = "[one async for one in %s]" if collects else "async for ... in %s"
    return "%s is an asynchronous generator: write %s." % (source, write % source)


def _calls(node, name):
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return getattr(function, "attr", None) == name or getattr(function, "id", None) == name


def _unawaited(error, place):
    called = _called(place)
    if called:
        return "it has no value before it is awaited: write (await %s(...))%s." % (called, _after(error, place))
    node = place.node
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        return "it has no value before it is awaited: write await %s." % place.text(node.value)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        inner = node.args[0]
        text = place.text(inner.func) + "(...)" if isinstance(inner, ast.Call) else place.text(inner)
        return "it has no value before it is awaited: write await %s." % text
    return "it has no value before it is awaited: write await in front of it."


def _called(place):
    """The function whose call is indexed, or whose attribute is read."""
    node = place.node
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.value, ast.Call):
        return place.text(node.value.func)
    return None


def _after(error, place):
    """The index or attribute behind a call, as it is written."""
    indexed = place.indexed()
    if not indexed:
        return ".%s" % error.name
    return "[%s]" % ("..." if indexed[2] is MISSING else ascii(indexed[2]))


def _precedence(place, error):
    """`await f(...)['x']` takes the item first."""
    called = _called(place)
    if not called:
        return None
    return "await takes the whole of what follows: write (await %s(...))%s." % (called, _after(error, place))


def _not_awaitable(place, seen):
    name, value = place.awaited() or ("", MISSING)
    node = place.node.value if isinstance(place.node, ast.Await) else None
    if name in seen.tools or name in HELPERS:
        return "the parentheses are missing: write await %s(%s)." % (name, "..." if name in seen.tools else "")
    if isinstance(node, (ast.List, ast.ListComp, ast.Tuple, ast.GeneratorExp)) or _holds_calls(value):
        return A_LIST
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("emit", "print"):
        return "%s is no async function: leave out await." % node.func.id
    if type(value) in (dict, list, tuple, str, int, float, bool):
        return THERE_ALREADY % (name, describe(value))
    return None


def _holds_calls(value):
    return type(value) in (list, tuple) and bool(value) and type(value[0]).__name__ in ("ToolCall", "coroutine", "Task")
