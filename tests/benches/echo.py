#!/usr/bin/env python3
"""The server that programs of the benchmark call: gives back a text, or as many bytes as it is asked for."""

import anyio
import mcp.types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server


def tool(name, argument, kind):
    schema = {"type": "object", "properties": {argument: {"type": kind}}, "required": [argument]}
    return types.Tool(name=name, description=name, input_schema=schema)


async def list_tools(_context, _parameters):
    return types.ListToolsResult(tools=[tool("echo", "text", "string"), tool("fill", "size", "integer")])


async def call_tool(_context, parameters):
    given = parameters.arguments or {}
    text = given["text"] if parameters.name == "echo" else "x" * given["size"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main():
    server = Server("bench", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


anyio.run(main)
