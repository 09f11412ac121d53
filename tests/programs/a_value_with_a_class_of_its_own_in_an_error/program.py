class Odd(Exception):
    __traceback__ = property(lambda self: 1 / 0)
    def __str__(self):
        raise KeyError('no text')

print('before')
raise Odd()
