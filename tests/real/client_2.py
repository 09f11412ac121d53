"""The official Python SDK of the 2.x line as a client of ptc-mcp, in the mode that is asked for."""

import asyncio
import json
import sys

from checks import opening, verdicts
from mcp import Client, StdioServerParameters


async def main():
    command, config, wanted, mode = sys.argv[1:5]
    server = StdioServerParameters(command=command, args=["--config", config])
    async with Client(server, mode=mode) as client:
        # A pinned revision is taken for granted, so nothing is discovered.
        asked = mode in ("legacy", "auto")
        found = opening(client.protocol_version, wanted, client.instructions, asked)
        print(json.dumps(found | await verdicts(client.list_tools, client.call_tool)))


asyncio.run(main())
