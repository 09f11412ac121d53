for value in (None, True, -0.5, 'ä\n"', [], {}, 2 ** 80, (1, (2,)), {1: 'one', None: 'none', 2.5: 'half'}):
    emit(value)
print('emitted')
