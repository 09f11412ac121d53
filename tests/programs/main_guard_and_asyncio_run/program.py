import asyncio

async def main():
    parts = await asyncio.gather(mcp__m__echo(k='x'), mcp__m__echo(k='y'))
    print([p['k'] for p in parts])
    return 'finished'

if __name__ == '__main__':
    print(asyncio.run(main()))
