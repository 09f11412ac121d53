def call():
    return mcp__m__ecko(x=1)

for reach in (call, lambda: mcp__gone__tool):
    try:
        await reach()
    except NameError as error:
        print(error, '/', error.name)
print('mcp__m__ecko' in globals(), len(['still', 'plain']))
