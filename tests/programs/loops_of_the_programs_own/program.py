import asyncio
async def main(n):
    return (await mcp__m__echo(n=n))['n']
loop = asyncio.new_event_loop()
print(loop.run_until_complete(main(1)))
loop.close()
with asyncio.Runner() as runner:
    print(runner.run(main(2)), runner.run(main(3)))
print(await asyncio.to_thread(lambda: asyncio.run(main(4))))
