print('q')
quit()
print('r')
