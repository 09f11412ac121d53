"""The records of ptcd as the official Python SDK of the 1.x line finds them."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import AnyUrl
from records import Client, verdicts


async def main():
    command, config, home = sys.argv[1:4]
    server = StdioServerParameters(command=command, args=["--config", config])
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            told = await session.initialize()
            client = Client(session, told.serverInfo, told.instructions, home, AnyUrl)
            print(json.dumps(await verdicts(client)))


asyncio.run(main())
