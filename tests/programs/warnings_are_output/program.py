import warnings, logging
warnings.warn('old stock')
logging.getLogger('x').warning('low stock')
print('end')
