page = """
```python
print("not code")
```
"""
print(page.count("`"), len(page.splitlines()))
