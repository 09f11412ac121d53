letter = """Dear reader,

    indented by four,
	indented by a tab,
  \n kept as one line
"""
print(repr(letter))
back = (await mcp__m__echo(letter=letter))["letter"]
print(back == letter)
