"""What a program may be and what it finds: source, loops, names, its own module."""

import unittest

from fake_host import NO_ANSWER, Failure, FakeHost, run

TOOLS = {"mcp__h__echo": ["a", "v"], "mcp__h__fail": ["message"], "mcp__h__sleep": ["seconds"]}


def answer(tool, arguments):
    if tool == "mcp__h__fail":
        raise Failure(arguments["message"])
    if tool == "mcp__h__sleep":
        return NO_ANSWER
    return {"arguments": arguments}


class Program(unittest.TestCase):
    def prints(self, program, expected):
        end = run(program, tools=TOOLS, answer=answer)
        self.assertTrue(end.ok, end.done)
        self.assertEqual(end.text, expected)
        return end


class Running(Program):
    def test_top_level_await(self):
        self.prints('r = await mcp__h__echo(a=1)\nprint(r["arguments"]["a"])\n', "1\n")

    def test_an_empty_program_is_a_success(self):
        for program in ("", "  \n", "# only a comment\n\n"):
            self.prints(program, "")

    def test_module_semantics(self):
        self.prints(
            "n = 0\ndef bump():\n    global n\n    n += 1\n    return n if n > 2 else bump()\n"
            "class A:\n    k = bump()\n    def who(self):\n        return type(self).__name__ + str(self.k)\n"
            'print(A().who(), n, "n" in globals(), [n for _ in range(2)])\n',
            "A3 3 True [3, 3]\n",
        )

    def test_a_main_guard_and_an_empty_argv(self):
        self.prints('import sys\nif __name__ == "__main__":\n    print(sys.argv, sys.orig_argv)', "[''] ['']\n")

    def test_docstring_and_future_import(self):
        self.prints(
            '"""Doc."""\nfrom __future__ import annotations\ndef f(x: Missing) -> int:\n    return 1\n'
            'r = await mcp__h__echo(a=f(0))\nprint(__doc__, r["arguments"]["a"])\n',
            "Doc. 1\n",
        )

    def test_a_fenced_and_an_indented_program(self):
        self.prints('```python\r\nprint("a")\r\n```\r\n', "a\n")
        self.prints("    r = await mcp__h__echo(a='''\n  x''')\n    print(r)\n", "{'arguments': {'a': '\\n  x'}}\n")

    def test_its_own_classes_can_be_pickled(self):
        self.prints(
            "import pickle\nclass A:\n    x = 1\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n"
            "e = pickle.loads(pickle.dumps(ToolError('m', kind='timeout', retryable=True)))\n"
            "print(repr(e), e, e.kind, e.tool, e.server, e.retryable, e.data)\n",
            "True\nToolError('m') m timeout None None True None\n",
        )

    def test_dataclasses_and_inspect_find_its_source(self):
        self.prints(
            "import dataclasses, inspect\n@dataclasses.dataclass\nclass P:\n    x: int\n"
            "def f():\n    return 1\nprint(P(1), repr(inspect.getsource(f)))",
            "P(x=1) 'def f():\\n    return 1\\n'\n",
        )

    def test_the_environment_is_empty(self):
        self.prints("import os\nprint(dict(os.environ), os.listdir('.'))", "{} []\n")

    def test_input_reads_end_of_file(self):
        end = run("import sys\nprint(repr(sys.stdin.read()))\ninput('name? ')")
        self.assertEqual(end.text, "''\nname? ")
        self.assertEqual((end.error["type"], end.error["line"]), ("EOFError", 3))


class Loops(Program):
    MAIN = 'import asyncio\nasync def main():\n    r = await mcp__h__echo(a=1)\n    return r["arguments"]["a"]\n'

    def test_asyncio_run(self):
        self.prints(self.MAIN + "print(asyncio.run(main()), asyncio.run(mcp__h__echo(a=2)))\nprint(await main())", "1 {'arguments': {'a': 2}}\n1\n")

    def test_asyncio_run_in_a_main_guard_without_any_other_await(self):
        self.prints(self.MAIN + 'if __name__ == "__main__":\n    print(asyncio.run(main()))', "1\n")

    def test_run_until_complete_of_the_running_loop(self):
        self.prints(
            self.MAIN + "loop = asyncio.get_event_loop()\nt = loop.create_task(main())\n"
            "print(loop.run_until_complete(main()), await t, loop.run_until_complete(asyncio.gather(main(), main())))",
            "1 1 [1, 1]\n",
        )

    def test_run_until_complete_of_a_new_loop(self):
        self.prints(
            self.MAIN + "loop = asyncio.new_event_loop()\nasyncio.set_event_loop(loop)\n"
            "print(loop.run_until_complete(main()))\nloop.close()\nprint(await main())",
            "1\n1\n",
        )

    def test_a_runner(self):
        self.prints(self.MAIN + "with asyncio.Runner() as r:\n    print(r.run(main()), r.run(main()))", "1 1\n")

    def test_asyncio_run_inside_tasks(self):
        self.prints(
            self.MAIN + "async def inner():\n    return asyncio.run(main())\n"
            "print(await asyncio.gather(inner(), inner(), main()))",
            "[1, 1, 1]\n",
        )

    def test_a_nested_error_arrives(self):
        self.prints(
            "import asyncio\nasync def main():\n    await mcp__h__fail(message='boom')\n"
            "for go in (asyncio.run, asyncio.get_event_loop().run_until_complete):\n"
            "    try:\n        go(main())\n    except ToolError as e:\n        print(e)\n",
            "boom\nboom\n",
        )

    def test_loops_in_threads_while_the_main_thread_waits_for_them(self):
        self.prints(
            "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "def work(i):\n    return asyncio.run(mcp__h__echo(a=i))['arguments']['a']\n"
            "with ThreadPoolExecutor() as pool:\n    print(list(pool.map(work, range(8))))\n"
            "print(await asyncio.to_thread(work, 9))\n",
            "[0, 1, 2, 3, 4, 5, 6, 7]\n9\n",
        )

    def test_run_coroutine_threadsafe(self):
        self.prints(
            "import asyncio\nloop = asyncio.get_running_loop()\n"
            "def work():\n    return asyncio.run_coroutine_threadsafe(mcp__h__echo(a=1), loop).result()\n"
            "print(await asyncio.to_thread(work))\n",
            "{'arguments': {'a': 1}}\n",
        )

    def test_create_task_works_without_any_await(self):
        self.prints("import asyncio\nt = asyncio.create_task(mcp__h__echo(a=1))\nprint(t.done())", "False\n")


class Shadowing(Program):
    def test_names_a_program_overwrites_are_its_own(self):
        end = self.prints(
            "print_, list, dict, str, type = print, 1, 2, 3, 4\nemit_ = emit\nemit = None\n"
            "json = asyncio = sys = None\nr = await mcp__h__echo(a=1)\n"
            'print_(r["arguments"]["a"])\nemit_({"ok": 1})\n',
            "1\n",
        )
        self.assertEqual(end.emits, [{"ok": 1}])

    def test_replaced_library_functions_and_builtins_hurt_only_the_program(self):
        end = self.prints(
            "import builtins, json, asyncio, os, struct, traceback\n"
            "_print, own = print, vars(builtins)\n"
            "for name in ('len', 'isinstance', 'getattr', 'dict', 'type', 'range', 'print'):\n    own[name] = None\n"
            "json.dumps = json.loads = json.JSONDecoder = struct.Struct = None\n"
            "os.write = os._exit = asyncio.get_running_loop = None\n"
            "emit(await mcp__h__echo(a=[1]))\n_print('x', len)\n",
            "x None\n",
        )
        self.assertEqual(end.emits, [{"arguments": {"a": [1]}}])

    def test_errors_are_told_after_the_library_was_broken(self):
        end = run("import builtins, traceback, linecache\nbuiltins.str = None\ntraceback.TracebackException = None\nlinecache.clearcache()\n1 / 0")
        self.assertEqual((end.error["type"], end.error["line"]), ("ZeroDivisionError", 5))
        self.assertIn("1 / 0", end.error["text"])

    def test_wiped_modules_hurt_only_the_program(self):
        end = run("import sys\nsys.modules.clear()\nprint(await mcp__h__echo(a=1))\nx = y", tools=TOOLS, answer=answer)
        self.assertEqual(end.text, "{'arguments': {'a': 1}}\n")
        self.assertEqual((end.error["name"], end.error["line"]), ("y", 4))

    def test_the_runtime_cannot_be_imported(self):
        self.prints(
            "import sys\nprint([n for n in sys.modules if 'ptc' in n])\n"
            "try:\n    import ptc_child\nexcept ImportError:\n    print('no')\n",
            "[]\nno\n",
        )

    def test_a_changed_builtins_reaches_the_program_only(self):
        self.prints("import builtins\nbuiltins.len = lambda x: 7\nprint(len([]), eval('len([])'))\nimport textwrap\nprint(textwrap.shorten('a b', 9))", "7 7\na b\n")


class Helpers(unittest.TestCase):
    def test_helpers_ask_the_daemon(self):
        def helper(name, arguments):
            if arguments.get("tool_name") == "mcp__x__y":
                raise Failure("no tool of that name", kind="unknown_tool", server=None)
            return {"helper": name, "arguments": arguments}

        end = run(
            "for r in (await list_callable_tools(), await inspect_tool(tool_name='t'), await inspect_tool('u'), await server_status()):\n"
            "    print(r['helper'], r['arguments'])\n"
            "try:\n    await inspect_tool(tool_name='mcp__x__y')\nexcept ToolError as e:\n    print(e.kind, e)\n",
            helper=helper,
        )
        self.assertEqual(
            end.text.splitlines(),
            [
                "list_callable_tools {}",
                "inspect_tool {'tool_name': 't'}",
                "inspect_tool {'tool_name': 'u'}",
                "server_status {}",
                "unknown_tool no tool of that name",
            ],
        )
        self.assertEqual(end.calls, [])
        self.assertEqual(len(end.queries), 5)

    def test_emit_takes_json_values_and_the_last_good_one_wins(self):
        end = run(
            "for v in (None, 0, '', [], {'a': float('nan')}, {1, 2}, '\\ud800', 2**70):\n"
            "    try:\n        emit(v)\n        print('ok')\n"
            "    except (TypeError, ValueError) as e:\n        print(type(e).__name__)\n"
            "emit({'last': 1})\n"
        )
        self.assertEqual(end.text.split(), "ok ok ok ok ValueError TypeError ValueError ok".split())
        self.assertEqual(end.emits, [None, 0, "", [], 2**70, {"last": 1}])

    def test_emit_over_the_limit_names_both_sizes(self):
        end = run("emit('x' * 98)\nemit('x' * 99)", limits={"max_emit_bytes": 100})
        self.assertEqual(end.emits, ["x" * 98])
        self.assertEqual(end.error["message"], "emit: the value is 101 bytes of JSON, over the limit of 100 bytes (execution.max_output_bytes); emit less, such as totals or the first rows")

    def test_the_limit_of_emit_counts_bytes_of_utf_8(self):
        self.assertTrue(run("emit('é' * 49)", limits={"max_emit_bytes": 100}).ok)


class Hello(unittest.TestCase):
    def test_hello_names_protocol_and_version(self):
        import sys

        with FakeHost() as host:
            self.assertEqual(host.hello, {"protocol": 1, "python": "%d.%d.%d" % sys.version_info[:3]})


if __name__ == "__main__":
    unittest.main()
