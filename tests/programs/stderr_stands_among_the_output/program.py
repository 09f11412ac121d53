import sys, logging
print('first')
print('second', file=sys.stderr)
logging.error('third')
sys.stdout.write('fourth\n')
