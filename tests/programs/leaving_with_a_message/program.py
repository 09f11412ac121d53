import sys
print('counted')
sys.exit('no stock left')
