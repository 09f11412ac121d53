"""What a program that succeeded is told it left undone."""

import unittest

from fake_host import run

TOOLS = {"mcp__h__items": [], "mcp__h__none": []}


def answer(tool, arguments):
    return None if tool == "mcp__h__none" else {"items": [1]}


def done(program):
    end = run(program, tools=TOOLS, answer=answer, helper=lambda name, arguments: [])
    assert end.ok, end.done
    return end.done


class LastLine(unittest.TestCase):
    def test_a_last_line_with_a_value_is_unprinted(self):
        for program in (
            "r = await mcp__h__items()\nr",
            "r = await mcp__h__items()\nr['items'][0]",
            "await mcp__h__items()",
            "await list_callable_tools()",
            "[n for n in range(3)]",
            "len('abc')",
            "import json\njson.dumps([1])",
            "x = 1\n'text'",
            "f'{1}'",
            "1 + 1",
            "  x = 1\n  x",
            "async def main():\n    if 0:\n        return 1\n    return 2\nawait main()",
            "import asyncio\nasync def main():\n    return 2\nasyncio.run(main())",
            "import asyncio\nasync def main():\n    return 2\nif __name__ == '__main__':\n    asyncio.run(main())",
        ):
            self.assertTrue(done(program)["unprinted"], program)

    def test_a_last_line_that_is_there_for_what_it_does_is_not(self):
        for program in (
            "",
            "'a docstring'",
            "x = 1",
            "...",
            "None",
            "await mcp__h__none()",
            "[].append(1)",
            "emit(3)",
            "def f():\n    return 1",
            "async def main():\n    x = 1\nawait main()",
            "async def main():\n    if 1:\n        return\n    return 2\nawait main()",
            "def f():\n    def g():\n        return 1\n    g()\nf()",
            "import asyncio\nawait asyncio.sleep(0)",
        ):
            self.assertFalse(done(program)["unprinted"], program)

    def test_what_printed_is_not_looked_at(self):
        self.assertNotIn("unprinted", done("print(1)\n2"))


class Tasks(unittest.TestCase):
    def test_tasks_that_run_at_the_end_are_counted(self):
        start = "import asyncio\nasync def f():\n    await asyncio.sleep(%d)\n"
        for program, count in (
            (start % 99 + "t = asyncio.create_task(f())", 1),
            (start % 99 + "t = [asyncio.create_task(f()) for n in range(3)]\nawait asyncio.sleep(0)", 3),
            (start % 0 + "await asyncio.create_task(f())", 0),
            (start % 99 + "asyncio.run(asyncio.wait_for(asyncio.sleep(0), 9))", 0),
        ):
            self.assertEqual(done(program)["running"], count, program)

    def test_a_program_that_breaks_what_this_needs_is_a_success_all_the_same(self):
        self.assertTrue(done("import ast\nast.walk = ast.iter_child_nodes = None\ndel ast.Expr\n1")["ok"])


if __name__ == "__main__":
    unittest.main()
