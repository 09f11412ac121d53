```python
print('inside the fence')
raise LookupError('line three')
```
