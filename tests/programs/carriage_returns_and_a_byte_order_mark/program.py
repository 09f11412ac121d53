first = 1
if first:
    print('works')
print(missing_name)
