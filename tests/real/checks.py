"""What each client must be able to do through ptc-mcp, whatever SDK it is written with."""

import asyncio
import json

GOOD = "print((await mcp__m__add(a=20, b=22))['sum'])\nemit({'answer': 42})"
BAD = "print('before')\nraise ValueError('on purpose')"


def member(result, *names):
    """The first of several spellings that the SDKs use for one member."""
    for name in names:
        if hasattr(result, name):
            return getattr(result, name)
    raise AttributeError(names)


def text_of(result):
    return result.content[0].text


async def tools(list_tools, call_tool):
    names = [tool.name for tool in (await list_tools()).tools]
    assert names == ["execute_program", "inspect_tool", "list_callable_tools"], names


async def names(list_tools, call_tool):
    listed = json.loads(text_of(await call_tool("list_callable_tools", {})))
    assert "mcp__m__add" in listed and listed == sorted(listed), listed


async def inspect(list_tools, call_tool):
    shown = json.loads(text_of(await call_tool("inspect_tool", {"tool_name": "mcp__m__add"})))
    assert shown["inputSchema"]["required"] == ["a", "b"], shown
    unknown = await call_tool("inspect_tool", {"tool_name": "mcp__m__ad"})
    assert member(unknown, "is_error", "isError"), unknown


async def program(list_tools, call_tool):
    result = await call_tool("execute_program", {"code": GOOD})
    text = text_of(result)
    assert not member(result, "is_error", "isError"), text
    assert text.startswith("[Script executed successfully]\n42\n--- result ---\n"), text
    form = member(result, "structured_content", "structuredContent")
    assert form["ok"] and form["result"] == {"answer": 42}, form


async def failure(list_tools, call_tool):
    result = await call_tool("execute_program", {"code": BAD})
    text = text_of(result)
    assert member(result, "is_error", "isError"), text
    assert text.startswith("[Script execution failed]\n"), text
    assert "ValueError: on purpose" in text and text.rstrip().endswith("before"), text


async def cancel(list_tools, call_tool):
    waiting = asyncio.create_task(call_tool("execute_program", {"code": "import time\ntime.sleep(60)"}))
    await asyncio.sleep(0.5)
    waiting.cancel()
    try:
        await waiting
        raise AssertionError("it was answered")
    except asyncio.CancelledError:
        pass
    text = text_of(await call_tool("execute_program", {"code": "print('on')"}))
    assert "\non" in text, text


ALL = {
    "tools": tools, "names": names, "inspect": inspect,
    "program": program, "failure": failure, "cancel": cancel,
}  # fmt: skip
# What the opening of the session came to, in each language.
OPENING = ["era", "instructions"]


def opening(revision, wanted, instructions, asked=True):
    """The verdicts on the opening; a client that has not asked has no instructions."""
    told = (instructions or "").startswith("Runs Python programs") or not asked
    return {
        "era": "ok" if revision == wanted else f"{revision!r}, not {wanted!r}",
        "instructions": "ok" if told else f"{instructions!r}",
    }


async def verdicts(list_tools, call_tool):
    """One word or one error a check."""
    found = {}
    for name, check in ALL.items():
        try:
            await check(list_tools, call_tool)
            found[name] = "ok"
        except Exception as error:  # a check's failure is its verdict
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found
