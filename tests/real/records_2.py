"""The records of ptcd as the official Python SDK of the 2.x line finds them, in the mode that is asked for."""

import asyncio
import json
import sys

import records
from mcp import Client, StdioServerParameters


async def main():
    command, config, home, mode = sys.argv[1:5]
    server = StdioServerParameters(command=command, args=["--config", config])
    async with Client(server, mode=mode) as sdk:
        client = records.Client(sdk, sdk.server_info, sdk.instructions, home)
        print(json.dumps(await records.verdicts(client)))


asyncio.run(main())
