print('start')
import requests
