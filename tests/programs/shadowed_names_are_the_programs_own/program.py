import json as _j
json = asyncio = sys = print_ = ToolError = None
async def list_callable_tools():
    return 'mine'
print(await list_callable_tools())
len = lambda _: 5
print(len([]), (await mcp__m__add(a=1, b=2))['sum'])
emit(_j.loads('[1]'))
