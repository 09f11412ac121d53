print('s')
exit(4)
