try:
    quit(0)
finally:
    print('tidied up')
