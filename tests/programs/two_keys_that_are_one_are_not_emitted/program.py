import enum
class Level(enum.IntEnum):
    LOW = 1
for bad in ({1: 'a', '1': 'b'}, {'rows': [{None: 1, 'null': 2}]}, {1.5: 1, '1.5': 2}, {True: 1, 'true': 2}, {Level.LOW: 1, '1': 2}):
    try:
        emit(bad)
        print('taken')
    except ValueError as e:
        print(e)
try:
    await mcp__m__echo(a={2: 'x', '2': 'y'})
except ValueError as e:
    print(e)
emit({1: 'a', '2': {'x"3': True}})
