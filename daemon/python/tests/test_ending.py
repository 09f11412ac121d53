"""How a program ends, and that nothing of it lives on."""

import sys
import unittest

from fake_host import FakeHost, run

TOOLS = {"mcp__h__never": []}


class Exits(unittest.TestCase):
    def test_code_0_and_none_are_success(self):
        for leave in ("exit()", "quit()", "exit(0)", "import sys; sys.exit()", "import sys; sys.exit(0)", "raise SystemExit", "quit(None)"):
            end = run("print('x')\n%s\nprint('never')" % leave)
            self.assertEqual((end.ok, end.text), (True, "x\n"), leave)

    def test_any_other_code_is_a_failure(self):
        hint = "\nHint: any code but 0 counts as a failure; to end early without one, write sys.exit()."
        for code, text, more in (("3", "3", hint), ("'gone'", "gone", ""), ("True", "True", ""), ("[1]", "[1]", "")):
            end = run("print('x')\nexit(%s)" % code)
            told = {"type": "SystemExit", "message": text, "text": "SystemExit: " + text + more, "line": None, "name": None}
            self.assertEqual((end.ok, end.error), (False, told))

    def test_an_exit_inside_a_task_ends_the_program(self):
        program = "import asyncio, sys\nasync def f():\n    sys.exit(%s)\nt = asyncio.create_task(f())\nawait asyncio.sleep(30)"
        self.assertTrue(run(program % "0").ok)
        self.assertEqual(run(program % "4").error["message"], "4")

    def test_an_exit_inside_asyncio_run_ends_the_program(self):
        self.assertTrue(run("import asyncio\nasync def f():\n    exit()\nasyncio.run(f())\n1 / 0").ok)

    def test_keyboard_interrupt_and_cancellation_are_failures(self):
        self.assertEqual(run("raise KeyboardInterrupt").error["type"], "KeyboardInterrupt")
        self.assertEqual(run("import asyncio\nasyncio.current_task().cancel()\nawait asyncio.sleep(1)").error["type"], "asyncio.exceptions.CancelledError")

    def test_a_stopped_loop_is_a_failure(self):
        self.assertEqual(run("import asyncio\nasyncio.get_running_loop().stop()\nawait asyncio.sleep(9)").error["type"], "RuntimeError")

    def test_os_exit_just_dies(self):
        with FakeHost() as host:
            end = host.run("import os\nprint('x')\nos._exit(5)")
            self.assertEqual((end.done, end.text, host.wait()), (None, "x\n", 5))

    def test_a_worker_ends_when_the_daemon_is_gone(self):
        with FakeHost() as host:
            host.channel.shutdown(2)
            self.assertEqual(host.wait(), 70)
        with FakeHost() as host:
            host.start("import asyncio\nprint('begun')\nawait asyncio.sleep(600)")
            host.until_printed("begun")
            host.channel.shutdown(2)
            self.assertEqual(host.wait(), 70)


class Leftovers(unittest.TestCase):
    def test_threads_tasks_and_exit_handlers_do_not_delay_the_end(self):
        with FakeHost() as host:
            end = host.run(
                "import asyncio, atexit, threading, time\natexit.register(time.sleep, 600)\n"
                "class D:\n    def __del__(self):\n        time.sleep(600)\nd = D()\n"
                "t = threading.Thread(target=time.sleep, args=(600,))\nt.start()\n"
                "async def stay():\n    try:\n        await asyncio.sleep(600)\n    finally:\n        time.sleep(600)\n"
                "a = asyncio.create_task(stay())\nb = asyncio.create_task(mcp__h__never())\nawait asyncio.sleep(0.01)\nprint('main is done')",
                tools=TOOLS,
                answer=lambda *_: None,
            )
            self.assertEqual((end.ok, end.text, host.wait(10)), (True, "main is done\n", 0))

    def test_nothing_follows_the_end(self):
        with FakeHost() as host:
            end = host.run(
                "import asyncio, threading\ndef spam():\n    while True:\n        print('spam')\n"
                "for _ in range(4):\n    threading.Thread(target=spam).start()\nawait asyncio.sleep(0.05)\n"
            )
            self.assertTrue(end.ok)
            with self.assertRaises(EOFError):
                host.receive()

    @unittest.skipIf(sys.platform == "darwin", "macOS does not count RLIMIT_DATA")
    def test_an_answer_that_does_not_fit_into_memory_fails_its_call(self):
        end = run(
            "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (120 << 20, 120 << 20))\n"
            "try:\n    await mcp__h__never()\nexcept MemoryError as e:\n    print(e)\n",
            tools=TOOLS,
            answer=lambda *_: "\U0001f600" + "x" * 32_000_000,
        )
        self.assertRegex(end.text, r"^the result of mcp__h__never \(320000\d\d bytes\) does not fit into memory\n$")

    @unittest.skipIf(sys.platform == "darwin", "macOS does not count RLIMIT_DATA")
    def test_memory_that_is_used_up_leaves_room_for_the_end(self):
        limit = "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (60 << 20, 60 << 20))\nrows = []\nprint('begun')\n"
        for piece in ("bytearray(100_000)", "str(len(rows)) * 3", "[len(rows)]", "(rows, {})"):
            fill = limit + "try:\n    while True:\n        rows.append(%s)\nexcept MemoryError:\n    pass\n" % piece
            end = run(fill)
            self.assertEqual((end.ok, end.text), (True, "begun\n"), piece)
            end = run(fill + "more = [n for n in range(10 ** 9)]\n")
            self.assertEqual((end.ok, end.error["type"], end.text), (False, "MemoryError", "begun\n"), piece)
            end = run(fill + "raise KeyError('gone')\n")
            # Where small pieces fill every hole, there is no room for the new error either.
            told = ("KeyError",) if piece.startswith("bytearray") else ("KeyError", "MemoryError")
            self.assertIn(end.error["type"], told, end.error)

    def test_names_of_calls_nobody_awaited_are_short(self):
        end = run("async def f(): pass\nfor n in range(60):\n    c = f()\n    c.__name__ = 'x' * 100_000 + str(n)\n    c = None\n")
        self.assertEqual((end.ok, len(end.unawaited)), (True, 50))
        self.assertLess(max(map(len, end.unawaited)), 600)

    def test_a_fork_has_no_part_in_the_channel(self):
        end = run("import os\npid = os.fork()\nif pid == 0:\n    print('child')\n    exit(3)\nprint(os.waitpid(pid, 0)[1])")
        self.assertEqual((end.ok, end.text), (True, "child\n0\n"))

    def test_a_trace_function_and_an_alarm_do_not_spoil_the_end(self):
        end = run(
            "import signal, sys, time\ndef trace(*a):\n    time.sleep(600)\n"
            "signal.signal(signal.SIGALRM, lambda *a: 1 / 0)\nsignal.setitimer(signal.ITIMER_REAL, 600)\n"
            "sys.setrecursionlimit(200)\nsys.settrace(trace)\n"
        )
        self.assertTrue(end.ok)

    def test_an_alarm_of_the_program_works(self):
        end = run("import signal, time\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(20)")
        self.assertEqual((end.error["type"], end.error["line"]), ("ZeroDivisionError", 2))


class Stop(unittest.TestCase):
    def stopped(self, program, calls=0):
        with FakeHost() as host:
            host.start("print('go')\n" + program, TOOLS)
            host.until_printed("go\n")
            for _ in range(calls):
                host.receive()
            host.send("X", {"reason": "timed_out"})
            end = host.collect(answer=None)
            self.assertIsNone(host.wait(0.2), "the worker waits to be killed")
            host.channel.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                host.receive()
            return end

    def test_the_lines_where_tasks_wait_are_told(self):
        end = self.stopped(
            "import asyncio\nasync def fetch_all():\n    await asyncio.sleep(600)\nasync def outer():\n    await fetch_all()\n"
            "t = asyncio.create_task(mcp__h__never())\nu = asyncio.create_task(outer())\nawait asyncio.gather(t, outer())",
            calls=1,
        )
        self.assertEqual(end.where, [{"line": 9, "function": "<module>"}, {"line": 4, "function": "fetch_all"}])

    def test_a_program_that_awaits_a_call(self):
        end = self.stopped("async def call():\n    return await mcp__h__never()\nawait call()", calls=1)
        self.assertEqual(end.where, [{"line": 3, "function": "call"}])

    def test_a_nested_run_is_seen_through(self):
        for go in ("asyncio.run(main())", "asyncio.get_event_loop().run_until_complete(main())"):
            end = self.stopped("import asyncio\nasync def main():\n    await asyncio.sleep(600)\n" + go)
            self.assertIn({"line": 4, "function": "main"}, end.where)

    def test_output_without_a_line_end_is_sent_first(self):
        end = self.stopped("import asyncio\nprint('half', end='')\nawait asyncio.sleep(600)")
        self.assertEqual(end.text, "go\nhalf")

    def test_a_busy_program_shows_its_line_by_signal(self):
        with FakeHost() as host:
            host.start("print('go')\ndef spin():\n    while True:\n        pass\nspin()")
            host.until_printed("go\n")
            host.send("X", {"reason": "timed_out"})
            dump = host.interrupt_until("in spin\n")
        self.assertRegex(dump, r'(?m)^  File "<program>", line [34] in spin$')
        self.assertIn('File "<program>", line 5 in <module>\n', dump)


if __name__ == "__main__":
    unittest.main()
