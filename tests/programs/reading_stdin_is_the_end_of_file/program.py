import sys
print(repr(sys.stdin.read()))
try:
    input('name? ')
except EOFError:
    print('no one is there')
