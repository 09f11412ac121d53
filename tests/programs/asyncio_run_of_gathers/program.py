import asyncio

async def pair(n):
    left, right = await asyncio.gather(mcp__m__add(a=n, b=n), mcp__m__add(a=n, b=1))
    return left['sum'], right['sum']

async def main():
    return await asyncio.gather(*map(pair, range(3)))

print(asyncio.run(main()))
print(asyncio.run(main())[2], await pair(5))
