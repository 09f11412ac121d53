def fetch(n):
    return await mcp__m__add(a=n, b=n)

print(fetch(2))
