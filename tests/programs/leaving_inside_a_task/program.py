import asyncio
async def watch():
    print('seen enough')
    exit(0)
task = asyncio.create_task(watch())
await asyncio.sleep(30)
print('too late')
