"""Calls: what is sent, what comes back, and what a wrong call explains."""

import unittest

from fake_host import NO_ANSWER, Failure, FakeHost, run

NAMES = "name tool_name tool server server_name arguments args kwargs params fn func call self cls code id method".split()
TOOLS = {
    "mcp__h__echo": ["a", "b"],
    "mcp__h__fail": ["message"],
    "mcp__h__never": [],
    "mcp__h__text": [],
    "mcp__h__odd": ["from", "max-results", "größe", "ﬁ", "ok"],
}


def answer(tool, arguments):
    if tool == "mcp__h__fail":
        raise Failure("boom", kind="timeout", retryable=True, data={"n": [1]})
    if tool == "mcp__h__never":
        return NO_ANSWER
    return "Hello, this is prose" if tool == "mcp__h__text" else arguments


def go(program, **kwargs):
    return run(program, tools=TOOLS, answer=answer, **kwargs)


class Arguments(unittest.TestCase):
    def sent(self, program):
        end = go(program)
        self.assertTrue(end.ok, end.done)
        return [arguments for _, arguments in end.calls]

    def test_every_parameter_name_can_be_passed(self):
        given = dict.fromkeys(NAMES, "x")
        self.assertEqual(self.sent("await mcp__h__echo(%s)" % ", ".join(n + "='x'" for n in NAMES)), [given])
        odd = {"from": 1, "uids[]": [2], "$filter": "a eq 1", "a b": 3, "": 4, "None": 5, "\ufb01": 6, "日付": 7}
        self.assertEqual(self.sent("await mcp__h__echo(**%r)" % odd), [odd])

    def test_values_keep_their_kind(self):
        self.assertEqual(
            repr(self.sent("await mcp__h__echo(a='1', b=20.0, c=2**100, d=True, e=None, f=(1, 2), g='\\U0001F378')")),
            repr([{"a": "1", "b": 20.0, "c": 2**100, "d": True, "e": None, "f": [1, 2], "g": "\U0001f378"}]),
        )

    def test_whole_numbers_keep_every_digit_both_ways(self):
        self.assertEqual(go("n = 10**5000 + 1\nprint((await mcp__h__echo(a=n))['a'] == n)\nprint(len(str(n)))").text, "True\n5001\n")

    def test_a_lowered_digit_limit_is_the_programs_own(self):
        end = go("import sys\nsys.set_int_max_str_digits(640)\nr = await mcp__h__text()\nprint(r)", limits=None)
        self.assertEqual(end.text, "Hello, this is prose\n")
        with FakeHost() as host:
            host.start("import sys\nsys.set_int_max_str_digits(640)\nr = await mcp__h__never()\nprint(r == 10**1000)", TOOLS)
            host.receive()
            host.send("r", {"id": 1, "ok": True, "value": 10**1000})
            self.assertEqual(host.collect().text, "True\n")

    def test_positional_arguments_show_the_right_form_and_send_nothing(self):
        end = go("await mcp__h__echo(1, 2)")
        self.assertEqual(
            (end.error["type"], end.error["message"], end.error["line"], end.calls),
            ("TypeError", "mcp__h__echo takes keyword arguments only (a, b): write await mcp__h__echo(a=..., b=...)", 1, []),
        )

    def test_the_right_form_spells_names_python_cannot_write(self):
        end = go("await mcp__h__odd(1)")
        self.assertIn(
            "await mcp__h__odd(größe=..., ok=..., **{'from': ..., 'max-results': ..., '\\ufb01': ...})", end.error["message"]
        )

    def test_what_json_cannot_hold_is_refused_before_anything_is_sent(self):
        end = go(
            "cycle = []\ncycle.append(cycle)\n"
            "for v in (float('nan'), float('inf'), {'b': [float('-inf')]}, cycle, 'x\\udfffy', {1}, b'x', object(), {(1,): 2}):\n"
            "    try:\n        await mcp__h__echo(a=v)\n        print('sent')\n"
            "    except (ValueError, TypeError) as e:\n        print(type(e).__name__, 'arguments.a' in str(e))\n"
        )
        self.assertEqual(end.text.splitlines(), ["ValueError True"] * 5 + ["TypeError True"] * 4)
        self.assertEqual(end.calls, [])

    def test_arguments_over_the_limit_name_both_sizes(self):
        end = go("await mcp__h__echo(a='x' * 92)\nawait mcp__h__echo(a='x' * 93)", limits={"max_call_bytes": 100})
        self.assertEqual(len(end.calls), 1)
        self.assertEqual(end.error["type"], "ValueError")
        self.assertIn("mcp__h__echo are 101 bytes of JSON, over the limit of 100 bytes", end.error["message"])


class Results(unittest.TestCase):
    def test_a_failed_call_raises_a_tool_error_with_its_fields(self):
        end = go(
            "try:\n    await mcp__h__fail(message='x')\nexcept ToolError as e:\n"
            "    print(e, e.kind, e.tool, e.server, e.retryable, e.data, e.message, isinstance(e, Exception))\n"
        )
        self.assertEqual(end.text, "boom timeout mcp__h__fail h True {'n': [1]} boom True\n")

    def test_large_results_arrive_whole(self):
        value = {"rows": ["é" * 1000] * 8000}
        end = run(
            "r = await mcp__h__echo()\nprint(len(r['rows']), set(map(len, r['rows'])))",
            tools=TOOLS,
            answer=lambda *_: value,
        )
        self.assertEqual(end.text, "8000 {1000}\n")

    def test_late_and_unknown_results_are_ignored(self):
        with FakeHost() as host:
            host.start(
                "import asyncio\ntry:\n    await asyncio.wait_for(mcp__h__never(), 0.01)\n"
                "except TimeoutError:\n    print('gave up', flush=True)\nprint(await mcp__h__echo(a=1))",
                TOOLS,
            )
            self.assertEqual(host.receive()[1]["id"], 1)
            self.assertEqual(host.receive()[1]["id"], 2)
            for number, value in ((99, "unknown"), (1, "late"), (2, "right"), (2, "twice")):
                host.send("r", {"id": number, "ok": True, "value": value})
            end = host.collect()
        self.assertEqual((end.text, end.ok), ("gave up\nright\n", True))

    def test_results_come_in_any_order(self):
        with FakeHost() as host:
            host.start("import asyncio\nprint(await asyncio.gather(*[mcp__h__echo(a=i) for i in range(3)]))", TOOLS)
            numbers = [host.receive()[1]["id"] for _ in range(3)]
            for number in reversed(numbers):
                host.send("r", {"id": number, "ok": True, "value": number})
            self.assertEqual(host.collect().text, "[1, 2, 3]\n")

    def test_a_frame_may_come_in_pieces(self):
        import json
        import struct

        with FakeHost() as host:
            host.start("import asyncio\nprint(await asyncio.gather(mcp__h__echo(), mcp__h__echo()))", TOOLS)
            host.receive(), host.receive()
            data = b""
            for number in (1, 2):
                body = json.dumps({"id": number, "ok": True, "value": "x" * number}).encode()
                data += struct.pack("<IB", len(body) + 1, ord("r")) + body
            for at in range(len(data)):
                host.channel.sendall(data[at : at + 1])
            self.assertEqual(host.collect().text, "['x', 'xx']\n")


class Asyncio(unittest.TestCase):
    def test_every_way_of_waiting_works(self):
        end = go(
            "import asyncio, inspect\n"
            "print(await asyncio.create_task(mcp__h__echo(a=1)))\n"
            "print(await asyncio.wait_for(mcp__h__echo(a=2), 5))\n"
            "async with asyncio.TaskGroup() as tg:\n    t = tg.create_task(mcp__h__echo(a=3))\nprint(t.result())\n"
            "for f in asyncio.as_completed([mcp__h__echo(a=4)]):\n    print(await f)\n"
            "done, _ = await asyncio.wait([asyncio.ensure_future(mcp__h__echo(a=5))])\nprint(done.pop().result())\n"
            "print(await asyncio.shield(mcp__h__echo(a=6)))\n"
            "async with asyncio.timeout(5):\n    print(await mcp__h__echo(a=7))\n"
            "print(asyncio.iscoroutine(c := mcp__h__echo(a=8)), inspect.isawaitable(c), await c)\n"
            "print(asyncio.iscoroutinefunction(mcp__h__echo), asyncio.create_task(mcp__h__echo(a=9), name='n').get_name())\n"
        )
        self.assertTrue(end.ok, end.done)
        self.assertEqual(
            end.text.splitlines(), ["{'a': %d}" % n for n in range(1, 8)] + ["True True {'a': 8}", "True n"]
        )

    def test_a_cancelled_call_is_cancelled(self):
        end = go(
            "import asyncio\nt = asyncio.create_task(mcp__h__never())\nawait asyncio.sleep(0)\nt.cancel()\n"
            "try:\n    await t\nexcept asyncio.CancelledError:\n    print('cancelled')\n"
        )
        self.assertEqual((end.text, end.unawaited), ("cancelled\n", []))

    def test_a_task_of_a_call_can_be_shown(self):
        end = go("import asyncio\nt = asyncio.create_task(mcp__h__echo(a=1))\nprint(repr(t))\nawait t\nprint(repr(t))")
        self.assertTrue(end.ok, end.done)
        self.assertIn("mcp__h__echo", end.text)

    def test_an_error_nobody_takes_is_logged_as_python_does(self):
        end = go("import asyncio, gc\nt = asyncio.create_task(mcp__h__fail())\nawait asyncio.sleep(0.05)\ndel t\ngc.collect()")
        self.assertTrue(end.ok)
        self.assertIn("Task exception was never retrieved", end.text)

    def test_a_call_is_awaited_once(self):
        end = go("c = mcp__h__echo(a=1)\nawait c\nawait c")
        self.assertEqual(end.error["message"], "cannot reuse already awaited mcp__h__echo(...)")

    def test_many_calls_at_once(self):
        end = go("import asyncio\nr = await asyncio.gather(*[mcp__h__echo(a=i) for i in range(2000)])\nprint(sum(x['a'] for x in r))")
        self.assertEqual(end.text, "1999000\n")


class WithoutAwait(unittest.TestCase):
    TEXT = "mcp__h__echo(...) is async: write await mcp__h__echo(...)"

    def test_the_first_use_explains(self):
        uses = (
            "r['x']", "r[0]", "list(r)", "len(r)", "'x' in r", "r + 1", "1 + r", "r.items()", "r == 'x'", "r < 1",
            "bool(r)", "int(r)", "float(r)", "r()", "f'{r:>3}'", "r['x'] = 1", "dict(r)", "[*r]", "next(iter(r))",
        )  # fmt: skip
        program = "r = mcp__h__echo(a=1)\n" + "".join(
            "try:\n    %s\n    print(%r)\nexcept (TypeError, AttributeError) as e:\n    print(str(e).startswith(%r))\n"
            % (use, use, self.TEXT)
            for use in uses
        )
        self.assertEqual(go(program).text.splitlines(), ["True"] * len(uses))

    def test_for_and_with_explain(self):
        for program in ("for x in mcp__h__echo(): pass", "with mcp__h__echo() as x: pass", "async for x in mcp__h__echo(): pass", "async with mcp__h__echo(): pass"):
            self.assertEqual(go(program).error["message"], self.TEXT)

    def test_printed_it_shows_the_text(self):
        end = go("print(mcp__h__echo(a=1), [mcp__h__echo(a=2)])")
        self.assertEqual(end.text, "%s [%s]\n" % (self.TEXT, self.TEXT))
        self.assertEqual((end.calls, end.unawaited), ([], ["mcp__h__echo"]))

    def test_a_call_as_an_argument_explains(self):
        self.assertIn("arguments.a is a tool call that was not awaited", go("await mcp__h__echo(a=mcp__h__text())").error["message"])
        self.assertIn("write await", go("import json\njson.dumps(mcp__h__text())").error["text"])

    def test_calls_never_awaited_are_named_without_noise(self):
        end = go("mcp__h__text()\nmcp__h__echo(a=1)\nmcp__h__echo(a=2)\nmcp__h__fail(message='x')\nawait mcp__h__text()\nimport gc\ngc.collect()")
        self.assertEqual(end.unawaited, ["mcp__h__text", "mcp__h__echo", "mcp__h__fail"])
        self.assertEqual((end.text, len(end.calls)), ("", 1))


class Hints(unittest.TestCase):
    def test_indexing_a_text_result_shows_what_it_is(self):
        for use in ('r["items"]', 'r.get("items")', '[x["a"] for x in r]'):
            end = go("r = await mcp__h__text()\n" + use)
            self.assertIn("result is text, not JSON; it begins 'Hello, this is prose'", end.error["text"])
            self.assertIn("mcp__h__text", end.error["text"])


if __name__ == "__main__":
    unittest.main()
