page = await mcp__m__raw_result(json='{"content": [{"type": "text", "text": "Quarterly report"}]}')
print(page['title'])
