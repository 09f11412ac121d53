"""The official Python SDK of the 1.x line as a client of ptc-mcp."""

import asyncio
import json
import sys

from checks import opening, verdicts
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    command, config, wanted = sys.argv[1:4]
    server = StdioServerParameters(command=command, args=["--config", config])
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            told = await session.initialize()
            found = opening(told.protocolVersion, wanted, told.instructions)
            print(json.dumps(found | await verdicts(session.list_tools, session.call_tool)))


asyncio.run(main())
