
    import math
    if True:
        print(math.floor(7.9))
    print('level')
