import sys
print('enough')
sys.exit(0)
print('too much')
