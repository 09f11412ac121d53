import asyncio

tickers = ["AMZN", "MSFT", "GOOG"]
statements = await asyncio.gather(*[
    mcp__financial_data__query_financials(
        ticker=ticker, statement="income", period="quarter", limit=4
    )
    for ticker in tickers
])
growth = {}
for ticker, rows in zip(tickers, statements):
    revenues = [row["revenue"] for row in reversed(rows)]
    trend = " -> ".join(f"${revenue / 1e9:.1f}B" for revenue in revenues)
    growth[ticker] = round(100 * (revenues[-1] / revenues[0] - 1), 1)
    print(f"{ticker}: {trend}  ({growth[ticker]:+.1f}%)")
print("fastest:", max(growth, key=growth.get))
