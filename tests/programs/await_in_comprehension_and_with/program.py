import contextlib

@contextlib.asynccontextmanager
async def opened(name):
    yield (await mcp__m__echo(name=name))['name']

async with opened('drawer') as name:
    print(name)
print([(await mcp__m__add(a=n, b=1))['sum'] for n in range(3)])
