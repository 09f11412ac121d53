"""The line that helps a model past an error Python's own words do not explain.

A hint stands only where its cause is sure; what may be meant is worded as a question.
"""

import ast
import errno
import sys
from difflib import get_close_matches
from itertools import islice
from os.path import dirname, isabs, isdir
from re import IGNORECASE, escape, findall, match, search

from ptc_child.awaiting import BAD_YIELD, LOOPED, ONE_BY_ONE, awaiting_hint, unfinished_hint
from ptc_child.shapes import lookup_hint, misuse_hint
from ptc_child.source import is_nesting
from ptc_child.syntax import LIBRARY, syntax_hint
from ptc_child.values import Place

_STDLIB = sys.stdlib_module_names
TOOLS_ARE_THERE = "ToolError and the tools are defined already: use them without an import%s."
REACH = (
    "programs have no network, no other processes and no files but their own empty scratch folder: "
    "tools are the only way to reach data."
)
OWN_TIMEOUT = "a limit that the program set itself has passed: give it more, or catch TimeoutError; the calls inside were cancelled and may have acted."
HELP = "there is no help: write print(NAME.__doc__), or await inspect_tool(tool_name=...) for a tool."
NO_NESTING = "asyncio.run and await work here as they are: leave nest_asyncio out."
INPUT = "nobody answers a program: write the value in the program."
SCRATCH = "the scratch folder has its limit (execution.scratch_bytes); print or emit less, or delete files."
NO_FOLDER = "the scratch folder is empty at the start: write os.makedirs(%r, exist_ok=True) first."
THREADS = "a program has execution.max_threads threads; use asyncio.gather for calls at once."
RECURSION = "a function calls itself without an end, or deeper than Python goes: write a loop."
DECODING = "the JSON is nested deeper than Python reads."
NESTED = "the text is nested deeper than Python reads, which is no limit of memory: read data with json.loads, in smaller parts."
INSIDE = "the interpreter failed inside itself, perhaps for want of memory (execution.memory_bytes)."
TEXT_RESULT = "a result that is JSON arrives parsed; one that is a str is plain text: read it as text."
PROGRAM = "this is the program already: call the tools here."
IT_IS_TOOL_ERROR = "a tool that fails raises ToolError, which is defined already."
NO_CALLER = "each tool is a function of its own: write await %s(...)."
# Functions that read a text as Python.
PARSERS = {"compile", "eval", "exec", "literal_eval", "parse"}
# What the standard library has in the place of others that programs ask for.
INSTEAD = {
    name: instead
    for names, instead in (
        ("pandas polars", "lists of dicts with collections, statistics and csv"),
        ("numpy scipy", "math, statistics and lists"),
        ("bs4 lxml html5lib", "html.parser and xml.etree"),
        ("yaml ruamel toml tomli", "json and tomllib"),
        ("dateutil pytz arrow pendulum", "datetime and zoneinfo"),
        ("pydantic attr attrs", "dataclasses"),
        ("tabulate rich tqdm", "print with f-strings"),
        ("regex", "re"),
        ("simplejson orjson ujson", "json"),
    )
    for name in names.split()
}
MAX_NAMES = 500
REFUSED = {
    getattr(errno, name)
    for name in "EPERM EACCES ENOENT EROFS EAFNOSUPPORT EPROTONOSUPPORT ENETUNREACH EHOSTUNREACH ECONNREFUSED".split()
}
FULL = {errno.EFBIG, errno.ENOSPC, errno.EDQUOT}
# The daemon has the number of bytes and says it of these.
SAID_OUTSIDE = {errno.EFBIG, errno.ENOSPC}
NETWORK_ERRORS = {"gaierror", "herror", "URLError"}
WRITERS = {"write_text", "write_bytes", "mkdir", "touch", "copy", "copyfile", "move", "rename", "replace"}
# What other programs with tools call the object that has them.
HOLDERS = {"tools", "mcp", "client", "session", "server", "servers", "ptc"}
CALLERS = r"(call|use|run|invoke|execute)_?(mcp_?)?tool$|(mcp|tool)_?call$"
LIBRARIES = {"mcp", "ptc", "ptc_mcp", "mcp_tools", "tools", "fastmcp", "mcp_client", "ptc_child"}


class Seen:
    """What the runtime knows of a run that errors are explained with."""

    MAX_TEXTS = 64
    SHOWN_TEXT = 80
    MAX_KEYS = 12

    def __init__(self):
        self.tools = ()
        self.texts = []
        self.dicts = []
        self.nothing = None
        self.last = None

    def result(self, tool, value):
        """Takes note of a result that programs often take for something else."""
        # The value itself is the program's to keep or to drop.
        self.last = None if value is None else type(value)
        if type(value) is str:
            self.texts.append((tool, len(value), value[: self.SHOWN_TEXT]))
            del self.texts[: -self.MAX_TEXTS]
        elif value is None:
            self.nothing = tool
        elif type(value) is dict:
            keys = list(islice((key for key in value if len(key) <= self.SHOWN_TEXT), self.MAX_KEYS))
            rows = next((key for key in keys if type(value[key]) is list), None)
            self.dicts.append((tool, keys, rows))
            del self.dicts[: -self.MAX_TEXTS]

    def text_of(self, value):
        """(tool, beginning) of the result that this text is, or None."""
        known = len(value), value[: self.SHOWN_TEXT]
        return next(((tool, start) for tool, *text, start in self.texts if (*text, start) == known), None)


def hints(error, source, seen):
    """The lines to add for one error and those inside its group, each once."""
    found = []
    _collect(error, source, seen, found, 0)
    return list(dict.fromkeys(found))


def _collect(error, source, seen, found, depth):
    if isinstance(error, BaseExceptionGroup) and depth < 8:
        for inner in error.exceptions[:8]:
            _collect(inner, source, seen, found, depth + 1)
        return
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    hint = _hint(error, str(text), source, seen, depth)
    if hint:
        found.append("Hint: " + hint)
    tool = getattr(error, "tool", None) if type(error).__name__ == "ToolError" else None
    if tool and str(tool) not in str(text):
        found.append("Tool: %s" % tool)


def _hint(error, text, source, seen, depth):
    if isinstance(error, SyntaxError):
        return syntax_hint(error, text, source)
    place = Place(error, source)
    if isinstance(error, ImportError):
        return _import_hint(error, place.line(), seen)
    if type(error) is TimeoutError and not text and place.line():
        return OWN_TIMEOUT
    if isinstance(error, OSError):
        return _system_hint(error, place, depth)
    if isinstance(error, EOFError):
        return INPUT if text == "EOF when reading a line" else None
    if is_too_nested(error, place):
        return NESTED
    if isinstance(error, RecursionError):
        return DECODING if " while decoding a JSON " in text else RECURSION
    if isinstance(error, RuntimeError):
        if text == "await wasn't used with future":
            return LOOPED
        if text.startswith(BAD_YIELD) and "gather(" in place.line():
            return ONE_BY_ONE
        return THREADS if text.startswith("can't start new thread") else None
    if isinstance(error, SystemError):
        return INSIDE
    if isinstance(error, NameError):
        # What Python did not write has its hint.
        return name_hint(error.name, place.line(), place.names(), seen) if text.endswith(" is not defined") else None
    if isinstance(error, LookupError):
        return lookup_hint(error, place)
    kind = type(error).__name__
    if kind == "JSONDecodeError":
        return TEXT_RESULT if seen.texts else None
    if kind == "InvalidStateError":
        return unfinished_hint(text, place)
    if isinstance(error, (TypeError, AttributeError)):
        hint = awaiting_hint(error, text, place, seen)
        said = " is async: write await " in text
        return hint if hint or said else misuse_hint(error, text, place, seen)
    return None


def is_too_nested(error, place):
    """Whether a text that the program gave to Python's own parser is nested too deep."""
    node = place.node
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
    return is_nesting(error, name in PARSERS)


def _system_hint(error, place, depth):
    if error.errno in FULL:
        return None if depth == 0 and type(error) is OSError and error.errno in SAID_OUTSIDE else SCRATCH
    if error.errno == errno.ENOENT and type(error.filename) is str and _writes(place.node):
        folder = dirname(error.filename2 or error.filename)
        if folder and not isabs(folder) and not isdir(folder):
            return NO_FOLDER % folder
    return REACH if _reaches_out(error) else None


def _writes(node):
    """Whether a call is one that makes a file."""
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    if name in WRITERS:
        return True
    modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and type(mode.value) is str]
    return name == "open" and any(match(r"[rwaxbt+]{1,4}$", text) and set(text) & set("wax+") for text in texts)


def _import_hint(error, line, seen):
    name = str(error.name or "")
    root = name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or root in _STDLIB:
        return None
    own = _of_server(root, seen.tools) or next(filter(None, (_of_server(word, seen.tools) for word in _imported(line))), None)
    if own:
        return TOOLS_ARE_THERE % (", by full names such as %s" % own)
    there = "mcp__" in line or root in LIBRARIES or search(r"\bToolError\b", line)
    if there:
        return TOOLS_ARE_THERE % ""
    if root == "nest_asyncio":
        return NO_NESTING
    instead = " In place of %s: %s." % (root, INSTEAD[root]) if root in INSTEAD else ""
    return LIBRARY + instead


def _imported(line):
    return findall(r"\w+", line.partition(" import ")[2]) if line.lstrip().startswith("from ") else ()


def _of_server(name, tools):
    """The first tool of the server that is called so."""
    start = "mcp__%s__" % name.lower()
    return next((tool for tool in tools if tool.lower().startswith(start)), None) if name else None


def name_hint(name, line, defined, seen):
    """What may be meant by a name that is not defined in a line; unknown mcp__ names are the daemon's to explain."""
    if type(name) is not str:
        return None
    if name == "execute_program":
        return PROGRAM
    if name == "help":
        return HELP
    full = _full_names(name, line, seen.tools)
    if full:
        return "tools are called by their full names: write await %s(...)." % "(...) or ".join(full)
    if name.startswith("mcp__"):
        return None
    caller = name if name not in HOLDERS else "".join(findall(r"(?<![\w.])%s(\.\w+)" % escape(name), line)[:1])
    if match(CALLERS, caller.lstrip("."), IGNORECASE):
        own = name if caller == name else name + caller
        return NO_CALLER % (_named_in_call(own, line, seen.tools) or "mcp__SERVER__TOOL")
    if match(r"(mcp|tool)\w*(error|exception)$", name, IGNORECASE):
        return IT_IS_TOOL_ERROR
    if name in _STDLIB:
        return "write `import %s` first." % name
    near = get_close_matches(name, islice((known for known in defined if type(known) is str), MAX_NAMES), 1, 0.75)
    return "did you mean %s?" % near[0] if near else None


def _named_in_call(name, line, tools):
    """The tool that stands as a text behind the name."""
    found = search(r"(?<![\w.])%s\(\s*(?:\w+\s*=\s*)?[\"']([^\"']+)[\"']" % escape(name), line)
    return next((tool for tool in tools if found and _folded(tool) == _folded(found[1])), None)


def _full_names(name, line, tools):
    """The tools whose names differ from what was written by prefix, dots, hyphens or underscores only."""
    written = {name, *findall(r"(?<![\w.])%s(?:[-.]\w+)*" % escape(name), line)}
    if name in HOLDERS:
        written |= {one.partition(".")[2] for one in written}
        written |= set(findall(r"(?<![\w.])%s\[[\"'](mcp__\w+)[\"']\]" % escape(name), line))
    wanted = {_folded(text) for text in written}
    found = [tool for tool in tools if _folded(tool) in wanted]
    if not found and search(r"(?<![\w.])%s\(" % escape(name), line):
        found = [tool for tool in tools if tool.endswith("__" + name)]
    return found[:3]


def _folded(name):
    parts = [part for part in name.lower().replace("-", "_").replace(".", "_").split("_") if part]
    return tuple(parts[1:] if parts[:1] == ["mcp"] else parts)


def _reaches_out(error):
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    return error.errno in REFUSED or bool(names & NETWORK_ERRORS)
