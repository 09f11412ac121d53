"""How a failed program is told: type, line, text, hints, sizes."""

import json
import sys
import unittest

from fake_host import LIMITS, NO_ANSWER, Failure, FakeHost, run

TOOLS = {"mcp__h__fail": ["message"], "mcp__h__never": []}


def answer(tool, arguments):
    if tool == "mcp__h__never":
        return NO_ANSWER
    raise Failure(arguments.get("message", "boom"))


def error(program):
    end = run(program, tools=TOOLS, answer=answer)
    assert not end.ok, end.done
    return end.error


class Tracebacks(unittest.TestCase):
    def test_the_cause_leads_and_only_program_lines_follow(self):
        found = error("import json\ndef read(x):\n    return json.loads(x)\nread('{')\n")
        self.assertEqual((found["type"], found["line"], found["name"]), ("json.decoder.JSONDecodeError", 3, None))
        lines = [line for line in found["text"].splitlines() if not line.strip(" ~^") == ""]
        self.assertEqual(
            lines,
            [
                "json.decoder.JSONDecodeError: " + found["message"],
                "Traceback (most recent call last):",
                '  File "<program>", line 4, in <module>',
                "    read('{')",
                '  File "<program>", line 3, in read',
                "    return json.loads(x)",
            ],
        )

    def test_lines_are_those_of_the_text_as_sent(self):
        for program in ("\n\n1 / 0", "```python\n\n1 / 0\n```", "\r\n\r\n1 / 0", "\ufeff\n\n1 / 0", "  \n  x = 1\n  1 / 0\n"):
            found = error(program)
            self.assertEqual((found["type"], found["line"]), ("ZeroDivisionError", 3))
            self.assertIn("    1 / 0", found["text"])

    def test_chained_errors_are_shown(self):
        text = error("try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError('bad') from e")["text"]
        self.assertTrue(text.startswith("ValueError: bad\n"))
        for part in ("ZeroDivisionError: division by zero", "direct cause", "line 2", "line 4"):
            self.assertIn(part, text)

    def test_a_group_shows_its_inner_errors(self):
        found = error("import asyncio\nasync with asyncio.TaskGroup() as tg:\n    tg.create_task(mcp__h__fail(message='one'))\n    tg.create_task(mcp__h__never())\n")
        for part in ("ToolError: one", "mcp__h__fail", "TaskGroup"):
            self.assertIn(part, found["text"])
        self.assertEqual(found["line"], 2)

    def test_an_error_out_of_gather_names_the_tool(self):
        found = error("import asyncio\nawait asyncio.gather(mcp__h__never(), mcp__h__fail(message='boom'))")
        self.assertEqual((found["type"], found["line"]), ("ToolError", 2))
        for part in ("ToolError: boom", "mcp__h__fail"):
            self.assertIn(part, found["text"])

    def test_a_name_error_gives_the_name(self):
        found = error("await mcp__h__gone(a=1)")
        self.assertEqual((found["type"], found["name"], found["line"]), ("NameError", "mcp__h__gone", 1))

    def test_a_time_out_of_the_programs_own_is_short(self):
        found = error("import asyncio\nawait asyncio.wait_for(mcp__h__never(), 0.01)")
        self.assertEqual((found["type"], found["line"]), ("TimeoutError", 2))
        self.assertNotIn("CancelledError", found["text"])

    def test_recursion_is_reported_short(self):
        for program in ("def f(n):\n    return f(n + 1)\nf(0)", "def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nf(0)"):
            found = error(program)
            self.assertEqual(found["type"], "RecursionError")
            self.assertLess(len(found["text"]), 4000)
            self.assertRegex(found["text"], r"\.\.\. \d+ more frames \.\.\.")

    def test_out_of_memory_is_reported(self):
        self.assertEqual(error("x = bytearray(10**15)")["type"], "MemoryError")

    def test_the_programs_own_traceback_shows_source_and_not_the_runtime(self):
        end = run(
            "import traceback\ntry:\n    await mcp__h__fail(message='boom')\nexcept ToolError:\n    print(traceback.format_exc())",
            tools=TOOLS,
            answer=answer,
        )
        self.assertIn("await mcp__h__fail(message='boom')", end.text)
        self.assertNotIn("ptc_child", end.text)


class Syntax(unittest.TestCase):
    def test_place_and_text(self):
        found = error('print("before")\nx = 1\nprint("a"\ny = 2\n')
        self.assertEqual((found["type"], found["line"]), ("SyntaxError", 3))
        self.assertTrue(found["text"].startswith("SyntaxError: '(' was never closed\n  File \"<program>\", line 3\n    print(\"a\"\n"))

    def test_nothing_of_it_has_run(self):
        self.assertEqual(run('print("before")\nprint("a"\n').text, "")

    def test_return_names_emit(self):
        for program in ("x = 1\nreturn x\n", "  x = 1\n  return x\n"):
            found = error(program)
            self.assertEqual((found["type"], found["line"]), ("SyntaxError", 2))
            for part in ("'return' outside function", "return x", "emit(value)"):
                self.assertIn(part, found["text"])

    def test_await_in_a_plain_def_names_async_def(self):
        found = error("def show(x):\n    return await mcp__h__never()\n\nprint(show(1))")
        self.assertEqual((found["type"], found["line"]), ("SyntaxError", 2))
        self.assertIn("async def", found["text"])

    def test_a_tab_error_is_pythons_own(self):
        found = error('if True:\n\tprint("tab")\n        print("spaces")\n')
        self.assertEqual((found["type"], found["line"]), ("TabError", 3))
        self.assertIn("inconsistent use of tabs and spaces", found["text"])

    def test_a_fence_left_in_place_is_named(self):
        self.assertIn("markdown fence", error("```python\nprint(1)\n")["text"])

    def test_a_null_character_is_an_error(self):
        self.assertIn("null bytes", error("x = 'a\0b'")["text"])

    def test_a_very_long_line_is_cut(self):
        for program in ("x = " + "(" * 5000, "x = [" + "1, " * 50000 + "1 / 0]"):
            self.assertLess(len(error(program)["text"]), 2000)


class Hints(unittest.TestCase):
    def test_modules_outside_the_standard_library(self):
        for program in ("import pandas as pd", "from requests.adapters import x"):
            found = error(program)
            self.assertEqual(found["type"], "ModuleNotFoundError")
            self.assertIn("standard library only", found["text"])

    def test_misspelt_names_inside_the_library_get_none(self):
        self.assertNotIn("Hint", error("from json import nothing")["text"])
        self.assertNotIn("Hint", error("import json.nothing")["text"])

    def test_refusals_of_the_system_say_that_tools_are_the_way(self):
        for raised in (
            "PermissionError(1, 'Operation not permitted')",
            "PermissionError(13, 'Permission denied', '/etc/shadow')",
            "FileNotFoundError(2, 'No such file or directory', '/etc/passwd')",
            "OSError(30, 'Read-only file system')",
            "ConnectionRefusedError(111, 'refused')",
            "__import__('socket').gaierror(-3, 'name')",
        ):
            self.assertIn("tools are the only way to reach data", error("raise " + raised)["text"], raised)

    def test_full_scratch_and_too_many_threads_name_their_limits(self):
        for raised, key in (
            ("OSError(122, 'Quota exceeded')", "execution.scratch_bytes"),
            ("ExceptionGroup('g', [OSError(28, 'No space left')])", "execution.scratch_bytes"),
            ('RuntimeError("can\'t start new thread")', "execution.max_threads"),
        ):
            self.assertIn(key, error("raise " + raised)["text"], raised)

    def test_what_the_daemon_says_with_its_number_is_not_said_twice(self):
        for raised in ("OSError(28, 'No space left')", "OSError(27, 'File too large')"):
            self.assertNotIn("Hint", error("raise " + raised)["text"], raised)

    def test_a_folder_is_missing_only_where_a_file_is_made(self):
        for program, makes in (
            ("open('out/a.txt', 'w')", True),
            ("open('out/a.txt', mode='ab')", True),
            ("import pathlib\npathlib.Path('out/a').write_text('x')", True),
            ("import pathlib\npathlib.Path('out/a').open('w')", True),
            ("open('out/a.txt')", False),
            ("open('/out/a.txt', 'w')", False),
        ):
            text = error(program)["text"]
            self.assertEqual("os.makedirs('out', exist_ok=True) first" in text, makes, program)
            self.assertEqual("no network" in text, not makes, program)

    def test_quotes_of_an_f_string_name_the_version(self):
        for program in ("r = {'a': 1}\nprint(f\"{r[\"a\"]}\")", "print(f\"{\"\\n\".join('ab')}\")"):
            end = run(program)
            if sys.version_info < (3, 12):
                self.assertIn("Hint: Python 3.11 takes no quotes inside an f-string that are its own", end.error["text"])
            else:
                self.assertTrue(end.ok, program)

    def test_a_generator_of_calls_for_gather_is_a_list_of_them(self):
        tools = {"mcp__h__t": []}
        program = "import asyncio\nawait asyncio.gather(mcp__h__t() for n in range(2))"
        text = run(program, tools=tools, answer=answer).error["text"]
        self.assertIn("Hint: gather takes the calls one by one: write asyncio.gather(*[...]).", text)

    def test_words_of_python_are_no_names_of_arguments(self):
        for line, hint in (
            ("f(from=1)", 'from is a word of Python: write **{"from": ...}.'),
            ("f(a=1, class=2)", 'class is a word of Python: write **{"class": ...}.'),
            ("f(\n  a=1,\n  from=2)", 'from is a word of Python: write **{"from": ...}.'),
            ("f(a=1, max-results=2)", 'Python cannot write max-results as a name: write **{"max-results": ...}.'),
            ("f(a==1 if)", None),
            ("a.b-c = 1", None),
        ):
            _, _, found = error(line)["text"].partition("Hint: ")
            self.assertEqual(found or None, hint, line)

    def test_other_errors_of_the_system_do_not(self):
        for raised in ("BlockingIOError(11, 'again')", "TimeoutError('t')", "FileExistsError(17, 'x')", "OSError('plain')"):
            self.assertNotIn("Hint", error("raise " + raised)["text"], raised)


class Values(unittest.TestCase):
    """Hints that name the value an error is about."""

    def hint(self, program):
        text = run(program, tools=TOOLS, answer=answer).error["text"]
        return text.partition("Hint: ")[2]

    def test_a_missing_key_shows_those_there_are(self):
        for program, hint in (
            ("r = {'a': 1, 'b': 2}\nr['c']", "r is a dict with the keys 'a', 'b'."),
            ("r = {}\nr['c']", "r is an empty dict."),
            ("r = {'rows': [{'id': 1}]}\nprint(r['rows'][0]['name'])", "r['rows'][0] is a dict with the key 'id'."),
            ("def f(row):\n    return row['x']\nf({1: 2})", "row is a dict with the key 1."),
            ("key = 'x'\nr = {'a': 1}\nr[key]", "r is a dict with the key 'a'."),
            ("r = {str(n): n for n in range(40)}\nr['c']", "r is a dict with the keys %s and 28 more." % ", ".join(repr(str(n)) for n in range(12))),
            ("r = {'sum': 1}\nr['content']", "r is a dict with the key 'sum'. A tool's result is its value itself, without 'content' around it."),
            ("import os\nos.environ['X']", "a program's environment is empty: servers have their own keys; write other values in the program."),
        ):
            self.assertEqual(self.hint(program), hint, program)

    def test_the_place_is_found_in_any_program_text(self):
        for program in (
            "```python\nr = {'a': 1}\nr['c']\n```",
            "    r = {'a': 1}\n    x = r['c']\n",
            "ä = '\U0001F378'; r = {'a': 1}; print(ä, r['c'])",
            "r = {'a': 1}\nprint(\n    1,\n    r[\n        'c'\n    ],\n)",
            "r = {'a': 1}\nasync def f():\n    return r['c']\nawait f()",
        ):
            self.assertEqual(self.hint(program), "r is a dict with the key 'a'.", program)

    def test_attributes_and_items_of_the_wrong_kind(self):
        for program, hint in (
            ("r = {'name': 1}\nr.name", "r is a dict with the key 'name': write r['name']."),
            ("r = [{'id': 1}, 2]\nr['id']", "r is a list of 2 items; the first is a dict with the key 'id': take an item, as in r[0]['id'], or loop over it."),
            ("r = [[1]]\nr['id']", "r is a list of 1 item; the first is a list: take an item by its number, or loop over it."),
            ("r = []\nr[0]", "r is an empty list."),
            ("r = [1]\nr.items()", "r is a list of 1 item; the first is an int."),
            ("r = None\nr['id']", "r is None."),
            ("r = None\nr.get('id')", "r is None."),
            ("r = None\nfor x in r:\n    pass", "r is None."),
            ("r = 'word'\nr['id']", "r is the text 'word'."),
            ("import json\njson.loads({'a': 1})", "it is a dict already: results of tools arrive parsed, use the value as it is."),
        ):
            self.assertEqual(self.hint(program), hint, program)

    def test_what_models_write_next(self):
        pages = "async def pages():\n    yield 1\n"
        for program, hint in (
            (pages + "for p in pages():\n    print(p)", "pages() is an asynchronous generator: write async for ... in pages()."),
            (pages + "got = pages()\nlist(got)", "got is an asynchronous generator: write [one async for one in got]."),
            (pages + "got = pages()\nfor p in got: pass", "got is an asynchronous generator: write async for ... in got."),
            ("import asyncio\nawait asyncio.wait([asyncio.sleep(0)])", "wait takes tasks: give it [asyncio.create_task(...) ...], or write await asyncio.gather(*[...])."),
            ("eval('await f()')", "text that is given to eval or exec cannot await: write the call in the program; one with a computed name is await globals()[name](...)."),
            ("help(print)", "there is no help: write print(NAME.__doc__), or await inspect_tool(tool_name=...) for a tool."),
            ("rows = [{'a': 1}, {'a': 0}]\nsorted(rows)", "dicts have no order: sort by a value of theirs, as in sorted(rows, key=lambda row: row[...])."),
            ("r = {'totalCount': 1}\nr['total_count']", "r is a dict with the key 'totalCount': did you mean r['totalCount']?"),
            ("r = {'input-schema': 1, 'x': 2}\nr['inputSchema']", "r is a dict with the keys 'input-schema', 'x': did you mean r['input-schema']?"),
            (
                "import os\nkey = os.getenv('TOKEN')\nkey.upper()",
                "key is None: a program's environment is empty: servers have their own keys; write other values in the program.",
            ),
            ("import nest_asyncio", "asyncio.run and await work here as they are: leave nest_asyncio out."),
            (
                "import pandas as pd",
                "programs have the standard library only and can install nothing; reach data through tools."
                " In place of pandas: lists of dicts with collections, statistics and csv.",
            ),
            (
                "import asyncio\nasync with asyncio.timeout(0.01):\n    await asyncio.sleep(60)",
                "a limit that the program set itself has passed: give it more, or catch TimeoutError; the calls inside were"
                " cancelled and may have acted.",
            ),
        ):
            self.assertEqual(self.hint(program), hint, program)

    def test_what_python_cannot_parse_is_named_as_that(self):
        for program in ("x = " + "-" * 50_000 + "1", "x = 1" + "+1" * 100_000, "  x = " + "not " * 50_000 + "1"):
            found = run(program).error
            self.assertEqual(
                found["text"],
                "SyntaxError: the program is nested deeper than Python can read\n"
                "Hint: a chain of thousands of operators, brackets or elif is too long: read data with json.loads, and write a loop.",
            )
        for program in ("import ast\nast.literal_eval('-' * 50_000 + '1')", "eval('not ' * 50_000 + '1')", "compile('1' + '+1' * 100_000, 'x', 'eval')"):
            found = run(program).error
            self.assertEqual(found["type"], "RecursionError", program)
            self.assertIn("which is no limit of memory", found["text"])
        self.assertEqual(run("raise MemoryError").error["type"], "MemoryError")
        self.assertEqual(run("raise ExceptionGroup('g', [ValueError(1), MemoryError()])").error["type"], "MemoryError")

    def test_what_is_not_sure_gets_none(self):
        for program in (
            "{}.pop('x')",
            "class D(dict):\n    def __missing__(self, key):\n        raise KeyError(key)\nD()['x']",
            "class C:\n    def __getitem__(self, key):\n        return {}['y']\nc = C()\nimport operator\noperator.getitem({'a': 1}, 'x')",
            "raise KeyError('content')",
            "raise IndexError('list index out of range')",
            "[1, 2, 3][7]",
            "class C: pass\nC().content",
            "len(5)",
            "import re\nre.sub(None, 'a', 'b')",
            "import json\njson.loads('{')",
            "print(nothing_like_it)",
            "raise NameError('of its own')",
            "mcp__h__fail(1)",
            "await mcp__h__fail(message={1})",
            "raise SystemError_ if False else ValueError('x')",
        ):
            self.assertNotIn("Hint", run(program, tools=TOOLS, answer=answer).error["text"], program)

    def test_values_of_the_programs_own_classes_cannot_spoil_the_text(self):
        for program in (
            "class K(str):\n    def __hash__(self): return 1\n    def __eq__(self, other): raise SystemExit\nr = {}\nr[K('x')]",
            "class N(str):\n    __eq__ = __hash__ = None\nr = {'a': N()}\nr['c']",
            "class L(list):\n    def __len__(self): raise SystemExit\nr = L()\nr[0]",
        ):
            found = run(program).error
            self.assertIn(found["type"], ("KeyError", "IndexError"), program)
            self.assertIn("Traceback", found["text"])


class Names(unittest.TestCase):
    def told(self, program, absent=None):
        with FakeHost() as host:
            host.send("R", {"program": program, "tools": TOOLS, "absent": absent or {}, "limits": LIMITS})
            return host.collect(answer)

    def test_a_tool_by_another_form_of_its_name(self):
        full = "Hint: tools are called by their full names: write await mcp__h__fail(...)."
        for program in ("fail(message='x')", "await mcp_h_fail()", "await h.fail()", "await h__fail()", "await mcp__h.fail()", "x = H_Fail"):
            self.assertTrue(self.told(program).error["text"].endswith(full), program)

    def test_a_variable_that_only_ends_like_a_tool_gets_none(self):
        for program in ("print(fail)", "x = fail + 1", "x.fail(fail)"):
            self.assertNotIn("full names", self.told("x = 1\n" + program).error["text"], program)

    def test_modules_and_variables(self):
        self.assertIn("Hint: write `import json` first.", self.told("json.dumps(1)").error["text"])
        self.assertIn("Hint: did you mean total?", self.told("total = 1\nprint(totl)").error["text"])
        for name in ("json", "asyncio", "re"):
            self.assertNotIn("Did you", self.told("%s.x" % name).error["text"])

    def test_an_absent_name_explains_itself_wherever_it_is_used(self):
        absent = {"mcp__h__fial": "did you mean mcp__h__fail?"}
        text = "name 'mcp__h__fial' is not defined: did you mean mcp__h__fail?"
        for program in (
            "mcp__h__fial",
            "def f():\n    return mcp__h__fial\nf()",
            "class C:\n    x = mcp__h__fial",
            "[mcp__h__fial for _ in 'x']",
            "f = lambda: mcp__h__fial\nf()",
        ):
            end = self.told("try:\n    %s\nexcept NameError as e:\n    print(e.name, e)\nprint(len('abc'), open)\n" % program.replace("\n", "\n    "), absent)
            self.assertEqual(end.text.splitlines()[0], "mcp__h__fial " + text, program)
            found = self.told(program, absent).error
            self.assertEqual((found["type"], found["name"], found["message"]), ("NameError", "mcp__h__fial", text))
            self.assertNotIn("ptc_child", found["text"])

    def test_other_names_of_such_a_program_are_plain(self):
        end = self.told(
            "import builtins\nbuiltins.mine = 5\nprint(mine, hasattr(builtins, 'mcp__h__x'), 'mcp__h__x' in globals())\n"
            "class A:\n    pass\nprint(A().__class__.__name__)\nimport json\ntry:\n    other\nexcept NameError as e:\n    print(e)\n"
            "if 0:\n    mcp__h__x\n",
            {"mcp__h__x": "gone"},
        )
        self.assertEqual(end.text, "5 False False\nA\nname 'other' is not defined\n")

    def test_imports_of_tools(self):
        for program in ("from mcp import mcp__h__fail", "import mcp__h__fail"):
            self.assertIn("the tools are defined already", self.told(program).error["text"])


class Exits(unittest.TestCase):
    def test_a_coroutine_nobody_awaits_is_named_without_noise(self):
        end = run("async def main():\n    print('never')\nmain()\nmain()\nprint('end')")
        self.assertEqual((end.text, end.unawaited), ("end\n", ["main"]))

    def test_a_coroutine_of_the_library_is_warned_of_as_ever(self):
        end = run("import asyncio\nasyncio.sleep(1)\nprint('end')")
        self.assertIn("coroutine 'sleep' was never awaited", end.text)
        self.assertEqual(end.unawaited, [])

    def test_emit_takes_one_value(self):
        for call in ("emit()", "emit(1, 2)", "emit(result=1)", "emit(1, value=2)"):
            found = run(call).error
            self.assertEqual(found["message"], 'emit takes one value: write emit(value), or emit({"a": ..., "b": ...}) for several')
        self.assertEqual(run("emit(value=3)").emits, [3])

    def test_the_errors_inside_a_group_lead(self):
        text = run("raise ExceptionGroup('all', [ValueError('one'), ExceptionGroup('more', [KeyError('two')])])").error["text"]
        self.assertTrue(text.startswith("ValueError: one\nKeyError: 'two'\n"), text)
        many = run("raise ExceptionGroup('all', [ValueError(n) for n in range(9)])").error["text"]
        self.assertTrue(many.startswith("ValueError: 0\nValueError: 1\nValueError: 2\nValueError: 3\nValueError: 4\n(and 4 more errors)\n"), many)

    def test_what_the_library_handled_inside_itself_is_left_out(self):
        text = run("import urllib.request\nurllib.request.urlopen('http://[::1]:1/', timeout=1)").error["text"]
        self.assertNotIn("During handling", text)
        kept = run("try:\n    {}['a']\nexcept KeyError:\n    [][0]").error["text"]
        self.assertIn("During handling", kept)


class Sizes(unittest.TestCase):
    def test_a_huge_message_keeps_head_and_tail(self):
        for unit in ("x", "\\x01", "\\U0001F600", "\\ud800"):
            end = run("raise ValueError('HEAD' + '%s' * 3_000_000 + 'TAIL')" % unit)
            self.assertLess(len(json.dumps(end.done, ensure_ascii=False).encode()), 128 * 1024)
            self.assertLessEqual(len(end.error["text"].encode()), 64 * 1024)
            for text in (end.error["text"], end.error["message"]):
                self.assertIn("HEAD", text[:100])
            self.assertIn("TAIL", end.error["message"][-10:])
            self.assertIn("left out", end.error["text"])

    def test_an_error_that_cannot_be_shown_is_still_an_error(self):
        found = error("class Bad(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Bad()")
        self.assertEqual((found["type"], found["line"]), ("Bad", 4))

    def test_many_calls_never_awaited_are_few_names(self):
        tools = {"mcp__h__t%d" % n: [] for n in range(500)}
        end = run("for n in range(500):\n    globals()['mcp__h__t%d' % n]()", tools=tools)
        self.assertEqual(len(end.unawaited), 50)


if __name__ == "__main__":
    unittest.main()
