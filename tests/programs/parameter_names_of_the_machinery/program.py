names = ['self', 'name', 'tool', 'tool_name', 'server', 'arguments', 'args', 'kwargs', 'code', 'id', 'method', 'jsonrpc', 'params', 'result', 'error', '_meta', 'timeout', 'callback', 'loop']
back = await mcp__m__echo(**{n: i for i, n in enumerate(names)})
print(sorted(back) == sorted(names), back['self'], back['_meta'])
