for size in (9_000, 70_000, 5_000_000):
    try:
        await inspect_tool(tool_name='\x01' * size)
        print('answered')
    except ToolError as e:
        print(e.kind, e)
try:
    await inspect_tool(tool_name='\x01' * 8_000)
except ToolError as e:
    print(e.kind)
try:
    await list_callable_tools('x' * 70_000)
except TypeError as e:
    print(e)
