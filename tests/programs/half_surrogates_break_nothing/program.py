half = '\ud83d'
print('before', half, 'after')
try:
    emit({half: half})
    print('taken')
except ValueError:
    print('refused')
print('end')
