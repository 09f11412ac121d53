def down(n):
    return down(n + 1)

print('x')
down(0)
