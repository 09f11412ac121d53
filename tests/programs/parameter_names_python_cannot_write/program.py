odd = {'from': 1, 'class': 2, 'filter[name]': 3, '$top': 4, '@type': 5, 'a b': 6, '': 7, 'max-results': 8, 'None': 9}
back = await mcp__m__echo(**odd)
print(back == odd, list(back) == list(odd))
