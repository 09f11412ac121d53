from decimal import Decimal
for value in (float('inf'), [float('nan')], {'deep': [{'er': -float('inf')}]}, Decimal('NaN')):
    try:
        await mcp__m__echo(value=value)
        print('sent')
    except (ValueError, TypeError) as error:
        print(type(error).__name__, str(error).split(' is ')[0])
