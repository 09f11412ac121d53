back = await mcp__m__echo(größe=4, **{'ﬁle': 1, '名前': 2, 'e\u0301': 3})
print([ascii(k) for k in back])
