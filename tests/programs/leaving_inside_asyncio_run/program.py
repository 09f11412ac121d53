import asyncio
async def main():
    await mcp__m__echo(x=1)
    raise SystemExit
asyncio.run(main())
print('too late')
