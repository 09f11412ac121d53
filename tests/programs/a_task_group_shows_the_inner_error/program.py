import asyncio

async def one():
    await mcp__m__fail(message='valve closed')

async with asyncio.TaskGroup() as group:
    group.create_task(one())
