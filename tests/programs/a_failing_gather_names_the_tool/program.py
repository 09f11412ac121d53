import asyncio
print('go')
await asyncio.gather(
    mcp__m__add(a=1, b=1),
    mcp__m__fail(message='third shelf is empty'),
)
