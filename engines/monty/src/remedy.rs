//! What the engine lacks, in the words a model reads: the construct, and what to write in its place.

/// The one sentence that answers a program which uses something the engine lacks.
pub(crate) fn sentence(construct: &str, instead: &str) -> String {
    if instead.is_empty() {
        return format!(
            "{construct} is not in the engine monty: run the program with engine: cpython"
        );
    }
    format!(
        "{construct} is not in the engine monty: {instead}, or run the program with engine: cpython"
    )
}

/// What the interpreter's own compiler refuses, by a part of its message: the construct and what to write instead.
const SYNTAX: [(&str, &str, &str); 20] = [
    (
        "'del' statement",
        "del",
        "write d.pop(key) or items.pop(index), or leave the name as it is",
    ),
    ("type aliases", "a type alias", "leave it out"),
    (
        "async for loops",
        "async for",
        "await the whole result and loop over it with for",
    ),
    (
        "async context managers",
        "async with",
        "call and await without it",
    ),
    (
        "async comprehensions",
        "an async comprehension",
        "await asyncio.gather(*[...]) first",
    ),
    ("exception groups", "except*", "write except"),
    (
        "class inheritance and metaclasses",
        "a class with bases",
        "write a plain class, a dict or a function; for an error of your own raise ValueError",
    ),
    (
        "method decorators",
        "a decorated method (property, classmethod, staticmethod)",
        "write a plain method or a function",
    ),
    (
        "complex class variable targets",
        "a class variable that is not name = value",
        "set it in __init__",
    ),
    (
        "class bodies containing anything other",
        "a class body with more than methods and name = value",
        "move the rest out of the class",
    ),
    (
        "assigning `__annotations__`",
        "__annotations__",
        "leave it out",
    ),
    (
        "assignment expressions (`:=`) in class bodies",
        ":= in a class body",
        "assign before the class",
    ),
    (
        "yield expressions",
        "yield (a generator)",
        "collect into a list and return it",
    ),
    (
        "yield from",
        "yield from (a generator)",
        "collect into a list and return it",
    ),
    ("template strings", "a template string", "write an f-string"),
    (
        "starred expressions",
        "a starred expression here",
        "join the lists with +",
    ),
    (
        "multiple **kwargs unpacking",
        "** more than once in a call",
        "join the dicts first: {**a, **b}",
    ),
    (
        "Wildcard imports",
        "from ... import *",
        "import the names one by one",
    ),
    ("future", "this __future__ import", "leave it out"),
    (
        "class member",
        "a class member called as a variable of the function around it",
        "give one of them another name",
    ),
];

/// The construct that a message of the interpreter's compiler is about, and what to write instead.
pub(crate) fn syntax(message: &str) -> (String, &'static str) {
    let known = SYNTAX.iter().find(|(part, ..)| message.contains(part));
    known.map_or_else(
        || {
            let told = message
                .strip_prefix("The monty syntax parser does not yet support ")
                .unwrap_or(message);
            (told.to_owned(), "")
        },
        |(_, construct, instead)| ((*construct).to_owned(), *instead),
    )
}

/// What to write in place of a module.
pub(crate) fn module(name: &str) -> &'static str {
    match name {
        "operator" => "write a lambda, as in key=lambda row: row[\"n\"]",
        "statistics" => "write sum(xs) / len(xs), or sorted(xs)[len(xs) // 2]",
        "heapq" => "write sorted(items)[:n]",
        "enum" => "write plain constants or a dict",
        "string" => "write the letters as a text",
        "textwrap" => "write \"\\n\".join(...) over the lines",
        "pprint" => "write print(json.dumps(value, indent=2))",
        "contextlib" | "traceback" | "warnings" | "logging" => "write try/except and print(...)",
        "zoneinfo" | "calendar" | "pytz" | "dateutil" => {
            "write datetime with timezone(timedelta(hours=...))"
        }
        "uuid" => "write hashlib.sha256(...).hexdigest()",
        "io" => "write text.splitlines(), and join lists of texts",
        "urllib" | "requests" | "httpx" | "aiohttp" | "http" | "socket" | "ssl" | "subprocess"
        | "shutil" | "tempfile" | "glob" | "multiprocessing" | "threading" | "concurrent" => {
            "call a tool with await, since programs reach nothing else"
        }
        "mcp" | "ptc" | "tools" | "mcp_tools" => {
            "call the tools by their names, which are defined already"
        }
        "nest_asyncio" => "leave it out, for await and asyncio.run work as they are",
        "simplejson" | "orjson" | "ujson" => "import json",
        "regex" => "import re",
        "pandas" | "polars" | "numpy" | "scipy" => "write lists of dicts with collections and math",
        "yaml" | "toml" | "tomli" => "import json or tomllib",
        "abc" => "write plain classes without bases",
        _ => "",
    }
}

/// What to write in place of an attribute of a module.
pub(crate) fn attribute(module: &str, name: &str) -> &'static str {
    match (module, name) {
        ("asyncio", "create_task" | "ensure_future" | "TaskGroup" | "as_completed" | "wait") => {
            "write await asyncio.gather(first(), second())"
        }
        ("asyncio", "wait_for" | "timeout") => "leave it out, for each call has a limit of its own",
        ("asyncio", "Semaphore" | "BoundedSemaphore" | "Lock" | "Queue" | "Event") => {
            "leave it out, for the daemon bounds the calls under way"
        }
        ("asyncio", "to_thread" | "get_event_loop" | "new_event_loop" | "get_running_loop") => {
            "await the call itself"
        }
        ("asyncio", "TimeoutError") => "write except ToolError",
        ("asyncio", "iscoroutine" | "iscoroutinefunction") => "await what is a call, by its name",
        ("re", "VERBOSE" | "X") => "write the pattern on one line",
        ("functools", "cmp_to_key") => "write key=lambda ...",
        ("datetime", "UTC") => "write timezone.utc",
        ("dataclasses", "asdict" | "astuple" | "replace" | "fields") => {
            "write the fields into a dict"
        }
        ("collections", "OrderedDict") => "write a dict, which keeps its order",
        ("collections", "ChainMap" | "UserDict" | "UserList" | "abc") => "write a dict or a list",
        ("json", "JSONEncoder" | "JSONDecoder") => "turn the values into text or lists first",
        ("typing", "NamedTuple" | "TypedDict") => "write a dict or collections.namedtuple",
        ("sys", "stdin") => "write the value in the program, for nobody answers it",
        ("sys", "exit") => "write exit(code)",
        ("sys", "setrecursionlimit" | "getrecursionlimit") => "write a loop",
        ("time", "strftime" | "gmtime" | "localtime") => "write datetime.now().strftime(...)",
        ("os", "system" | "popen" | "listdir" | "walk" | "remove" | "makedirs") => {
            "call a tool with await, since programs reach nothing else"
        }
        _ => "",
    }
}

/// What to write in place of a builtin of Python that the engine lacks.
pub(crate) fn builtin(name: &str) -> &'static str {
    match name {
        "callable" => "test hasattr or isinstance",
        "issubclass" | "super" | "classmethod" | "staticmethod" | "property" | "object" => {
            "write plain functions"
        }
        "globals" | "locals" | "vars" => {
            "put what you look up by name into a dict, as in tools = {\"a\": mcp__SERVER__TOOL}"
        }
        "input" => "write the value in the program, for nobody answers it",
        "open" => "keep the data in memory",
        "help" => "write await inspect_tool(tool_name=...)",
        "delattr" => "set the attribute to None",
        "compile" | "__import__" | "breakpoint" => "write the code itself",
        "memoryview" | "bytearray" => "write bytes",
        "aiter" | "anext" => "await the whole result and loop over it",
        "format" | "ascii" => "write an f-string",
        "ConnectionError"
        | "IOError"
        | "EnvironmentError"
        | "BlockingIOError"
        | "InterruptedError"
        | "BrokenPipeError"
        | "ConnectionRefusedError"
        | "ConnectionResetError" => "write except ToolError",
        name if name.ends_with("Error")
            || name.ends_with("Exception")
            || name.ends_with("ExceptionGroup") =>
        {
            "write except Exception"
        }
        _ => "",
    }
}
