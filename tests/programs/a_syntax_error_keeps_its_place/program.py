print('never printed')
values = [1, 2
print(values)
