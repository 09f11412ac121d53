import json, functools

@functools.lru_cache
def parse(text):
    return json.loads(text)

print([parse(t) for t in ('1', '{x')])
