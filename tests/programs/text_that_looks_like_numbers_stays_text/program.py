back = await mcp__m__echo(sheet='1', zip='00501', flag='true', none='null', exponent='1e5')
print(back)
