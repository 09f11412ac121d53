"""The functions a program has besides its tools: the helpers that ask the daemon, emit, exit."""

from ptc_child.encoding import encode
from ptc_child.tools import ToolError, named, usage

# Far longer than any name, and in JSON still short of what the daemon reads of a question.
MAX_NAME_CHARS = 8_000
SHOWN_NAME_CHARS = 100
ONE_NAME = 'inspect_tool takes the name of one tool as text: write await inspect_tool(tool_name="%s")'
NO_ARGUMENTS = "%s takes no arguments: write await %s()"
ONE_VALUE = 'emit takes one value: write emit(value), or emit({"a": ..., "b": ...}) for several'


def helpers(tools):
    """The async helpers by name; none of them counts as a call."""

    def list_callable_tools(*positional, **named):
        return plain("list_callable_tools", positional or named)

    def inspect_tool(*positional, **named):
        given = [*positional, *named.values()]
        if len(given) != 1 or type(given[0]) is not str or named.keys() - {"tool_name"}:
            raise TypeError(ONE_NAME % _name_in(given))
        if len(given[0]) > MAX_NAME_CHARS:
            message = "no tool can be called by a name of %d characters" % len(given[0])
            raise ToolError(message, kind="unknown_tool", tool=given[0][:SHOWN_NAME_CHARS])
        return ask("inspect_tool", {"tool_name": given[0]})

    def server_status(*positional, **named):
        return plain("server_status", positional or named)

    def plain(helper, given):
        if given:
            raise TypeError(NO_ARGUMENTS % (helper, helper))
        return ask(helper, {})

    def ask(helper, arguments):
        rest = b'"helper":"%s","arguments":%s}' % (helper.encode(), encode(arguments, "arguments"))
        return tools.pending(helper, b"Q", rest)

    return {
        "list_callable_tools": named(list_callable_tools, "list_callable_tools", "Sorted names of the tools."),
        "inspect_tool": named(inspect_tool, "inspect_tool", "Call it as: " + usage("inspect_tool", ["tool_name"])),
        "server_status": named(server_status, "server_status", "Server name -> connected, tools, error."),
    }


def _name_in(given):
    """The name of the tool that was meant, or how one looks."""
    for value in given:
        name = value if type(value) is str else getattr(value, "__name__", None)
        if type(name) is str and name.startswith("mcp__"):
            return name
    return "mcp__SERVER__TOOL"


def make_emit(channel, max_bytes):
    """The program's emit."""

    def emit(*values, **named):
        if len(values) + len(named) != 1 or named and "value" not in named:
            raise TypeError(ONE_VALUE)
        value = values[0] if values else named["value"]
        encoded = encode(value, "value")
        if len(encoded) > max_bytes:
            raise ValueError(
                "emit: the value is %d bytes of JSON, over the limit of %d bytes "
                "(execution.max_output_bytes); emit less, such as totals or the first rows"
                % (len(encoded), max_bytes)
            )
        channel.send(b"E", b'{"value":%s}' % encoded)

    emit.__qualname__ = "emit"
    emit.__module__ = "__main__"
    emit.__doc__ = "Returns a JSON value from the program; the last call wins."
    return emit


def leave(code=None):
    """Ends the program, like sys.exit; exit and quit are this."""
    raise SystemExit(code)
