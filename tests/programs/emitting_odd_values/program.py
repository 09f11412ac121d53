import math
ring = {}
ring['self'] = ring
for bad in (math.inf, {'k': math.nan}, {1, 2}, ring, b'b', object()):
    try:
        emit(bad)
        print('taken')
    except (TypeError, ValueError) as e:
        print(type(e).__name__)
emit({'last': ('good', 1)})
