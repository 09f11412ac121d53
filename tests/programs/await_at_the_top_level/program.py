total = 0
for n in (3, 4):
    total += (await mcp__m__add(a=n, b=n))['sum']
print(total)
