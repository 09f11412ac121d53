"""A FastMCP server with what real servers of this kind return; its transport is the first argument."""

import sys

from fastmcp import Context, FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolListChangedNotification

LONG = "\n".join(f"Line {n}: what äöü is for, and when <not> to use it." for n in range(120))
server = FastMCP("parts")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def names() -> list[str]:
    return ["one", "two"]


@server.tool
def none() -> None:
    return None


@server.tool
def big() -> dict[str, int]:
    return {"n": 123456789012345678901234567890}


@server.tool
def wrapped() -> dict[str, dict[str, int]]:
    """An object whose only key is that of the wrapping."""
    return {"result": {"x": 1}}


@server.tool
def refuse(why: str) -> str:
    raise ValueError(why)


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which colour?", response_type=str)
    return f"the answer is {answer.action}"


@server.tool
async def steps(ctx: Context, count: int) -> int:
    for step in range(count):
        await ctx.report_progress(step, count)
    return count


@server.tool
def long_text(size: int) -> str:
    return "ä" * size


@server.tool(description=LONG)
def described() -> int:
    return len(LONG)


@server.tool
async def grow(ctx: Context, name: str) -> str:
    server.add_tool(Tool.from_function(lambda: name, name=name))
    # FastMCP does not tell of it by itself.
    await ctx.send_notification(ToolListChangedNotification())
    return "done"


transport = sys.argv[1]
if transport == "stdio":
    server.run(transport="stdio", show_banner=False)
else:
    server.run(
        transport=transport, host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="warning"
    )
