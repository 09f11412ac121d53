"""A server of the Python SDK's 1.x line; its transport is the first argument, its port the second."""

import sys

from mcp.server.fastmcp import FastMCP

transport = sys.argv[1]
server = FastMCP("parts", host="127.0.0.1", port=int(sys.argv[2]), log_level="WARNING")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def names() -> list[str]:
    return ["one", "two"]


@server.tool()
def refuse(why: str) -> str:
    raise ValueError(why)


server.run(transport=transport)
