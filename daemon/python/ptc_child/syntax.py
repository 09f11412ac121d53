"""Says what a text that is no Python may need to become a program."""

from keyword import iskeyword
from re import finditer, search
from sys import version_info

from ptc_child.source import TOO_NESTED

LIBRARY = "programs have the standard library only and can install nothing; reach data through tools."
NOTEBOOK = "lines that begin with ! or % are a notebook's, not Python: take them out; " + LIBRARY
RETURN = "a program has no caller to return to: hand a value back with emit(value), or print it."
ASYNC_DEF = "await works at the top level and inside `async def`: write `async def` there, and await its call."
FENCE = "send plain Python, without the markdown fence."
PROSE = "send plain Python only, without the markdown fence and the words around it."
PROMPT = "send plain Python only, without the prompts of a session."
QUOTES = "Python %d.%d takes no quotes inside an f-string that are its own: write others there, as in f\"{r['key']}\"."
BACKSLASH = "Python %d.%d takes no backslash inside the {...} of an f-string: put that part into a variable first."
WORD = "%s is a word of Python: write **{%s: ...}."
NO_NAME = "Python cannot write %s as a name: write **{%s: ...}."
NESTED = "a chain of thousands of operators, brackets or elif is too long: read data with json.loads, and write a loop."
IN_TEXT = "text that is given to eval or exec cannot await: write the call in the program; one with a computed name is await globals()[name](...)."
INSTALLS = ("pip install", "pip3 install", "python -m pip")


def syntax_hint(error, text, source):
    """The hint for a SyntaxError whose message is `text`, or None."""
    if text == TOO_NESTED:
        return NESTED
    if text.startswith("'return' outside"):
        return RETURN
    if error.filename == "<string>" and text.startswith("'await' outside"):
        return IN_TEXT
    if "outside async function" in text or "outside of an asynchronous function" in text:
        return ASYNC_DEF
    if source.begins_with_fence():
        return FENCE
    line = source.line(error.lineno or 0).strip()
    if line.startswith(("!", "%")):
        return NOTEBOOK
    if line.startswith(INSTALLS):
        return LIBRARY
    if line.startswith((">>>", "... ")) or search(r"^In \[\d+\]:", line):
        return PROMPT
    return _fstring_hint(text, line) or _keyword_hint(line) or _prose_hint(error, source)


def _fstring_hint(text, line):
    """What was an error in an f-string until Python 3.12."""
    if version_info >= (3, 12):
        return None
    version = version_info[:2]
    if text.startswith("f-string expression part cannot include a backslash"):
        return BACKSLASH % version
    if "line continuation" in text and search(r"""\b[fF](["'])(?:(?!\1).)*\{[^}"']*\1\\""", line):
        return QUOTES % version
    return QUOTES % version if text.startswith(("f-string: unmatched", "f-string: expecting '}'")) else None


def _keyword_hint(line):
    """The name of an argument that cannot be written as one."""
    for found in finditer(r"(?:^|[(,])\s*([^\W\d][\w.-]*)\s*=(?!=)", line):
        name = found[1]
        if iskeyword(name):
            return WORD % (name, '"%s"' % name)
        if not name.isidentifier() and "(" in line[: found.start(1)]:
            return NO_NAME % (name, '"%s"' % name)
    return None


def _prose_hint(error, source):
    """Words in front of a fence: nothing but a fence begins a line with three of its marks."""
    for line in source.lines[max(0, (error.lineno or 1) - 1) :]:
        if line.startswith(("```", "~~~")):
            return PROSE
    return None
