"""Output: order, streams, odd text, amounts, and what bypasses the streams."""

import unittest

from fake_host import FakeHost, run


class Streams(unittest.TestCase):
    def test_both_streams_stand_in_the_order_written(self):
        end = run(
            "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('a', end='')\n"
            "print('b', end='', file=sys.stderr)\nprint('c')\nsys.stdout.write('no end')\n"
        )
        self.assertEqual(
            (end.text, end.framed),
            ("out\nerr\nabc\nno end", []),
        )

    def test_raw_writes_stand_between_prints_where_they_were_made(self):
        end = run(
            "import os, sys\nfor n in range(2000):\n    print(n, end=' ')\n    os.write(1, b'a')\n    os.write(2, b'b')\n"
            "    sys.stdout.write('c')\n    sys.stderr.write('d')\n    sys.stdout.buffer.write(b'e')\n"
        )
        self.assertEqual(end.text, "".join("%d abcde" % n for n in range(2000)))

    def test_what_was_printed_before_a_call_has_left_before_it(self):
        with FakeHost() as host:
            host.start("import sys\nprint('a', end='')\nsys.stdout.write('b')\nawait mcp__h__t()", {"mcp__h__t": []})
            kind, _ = host.receive()
            self.assertEqual((kind, bytes(host.written + host.drain())), ("C", b"ab"))

    def test_a_closed_descriptor_leaves_print_as_it_is(self):
        end = run("import os\nprint('a')\nos.close(1)\nos.close(2)\nprint('b\\ud800' + 'x' * 90_000)\nemit(1)")
        self.assertEqual((end.ok, end.text), (True, "a\nb\\ud800" + "x" * 90_000 + "\n"))

    def test_a_descriptor_that_does_not_block_loses_nothing(self):
        end = run("import os\nos.set_blocking(1, False)\nfor n in range(50):\n    print('x' * 99_999)\n")
        self.assertEqual((end.ok, len(end.text)), (True, 5_000_000))

    def test_a_thread_that_prints_for_ever_does_not_hold_up_the_end(self):
        end = run(
            "import threading\ndef work():\n    while True:\n        print('x' * 100)\n"
            "threading.Thread(target=work, daemon=True).start()\nemit(1)\n"
        )
        self.assertEqual((end.ok, end.emits), (True, [1]))

    def test_a_print_without_a_line_end_has_left_before_a_hard_end(self):
        end = run("import os\nprint('a')\nprint('b', 'c', end='')\nos._exit(7)")
        self.assertEqual(end.text, "a\nb c")

    def test_print_takes_what_the_plain_one_takes(self):
        end = run(
            "import io\n"
            "text = io.StringIO()\n"
            "print(1, 'x', sep='-', end='!', file=text)\n"
            "print(repr(text.getvalue()), None, sep=None, end=None)\n"
            "try:\n    print('a', sep=1)\nexcept TypeError as error:\n    print(error)\n"
            "print(print.__name__, print.__module__)\n"
        )
        self.assertEqual(
            end.text,
            "'1-x!' None\nsep must be None or a string, not int\nprint builtins\n",
        )

    def test_warnings_logging_and_thread_errors_land_in_it(self):
        end = run(
            "import logging, threading, warnings\nwarnings.warn('careful')\nlogging.warning('logged')\n"
            "t = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n"
        )
        for part in ("<program>:2: UserWarning: careful", "WARNING:root:logged", "ZeroDivisionError"):
            self.assertIn(part, end.text)

    def test_no_text_makes_print_fail(self):
        end = run("print('a\\ud800b\\x00\\x1b[31m\\u2028')\nprint('\\udcff' * 3)\nprint('\\U0001F378 end')")
        self.assertEqual(end.text, "a\\ud800b\x00\x1b[31m\u2028\n\\udcff\\udcff\\udcff\n\U0001f378 end\n")

    def test_bytes_written_to_the_buffer_are_text(self):
        end = run(
            "import sys\nsys.stdout.buffer.write(b'a\\xc3')\nsys.stdout.buffer.write(b'\\xa9\\xff\\n')\n"
            "sys.stdout.buffer.flush()\nsys.stdout.buffer.write(b'\\xe2\\x82')\n"
        )
        self.assertEqual(end.text, "aé\\xff\n\\xe2\\x82")

    def test_a_wrapper_laid_over_the_buffer_is_flushed(self):
        end = run("import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('wrapped é')")
        self.assertEqual(end.text, "wrapped é\n")

    def test_replaced_streams_are_harmless(self):
        end = run(
            "import contextlib, io, sys\nbuffer = io.StringIO()\nwith contextlib.redirect_stdout(buffer):\n    print('inside')\n"
            "print(repr(buffer.getvalue()))\nsys.stdout.reconfigure(encoding='utf-8')\nsys.stdout = None\nprint('gone')\n"
            "sys.stdout = sys.__stdout__\nprint('back')\nsys.stdout.close()\nsys.stderr = 5\n"
        )
        self.assertTrue(end.ok, end.done)
        self.assertEqual(end.text, "'inside\\n'\nback\n")

    def test_a_stream_looks_like_a_text_stream(self):
        end = run(
            "import io, sys\ns = sys.stdout\nprint(isinstance(s, io.TextIOBase), s.encoding, s.isatty(), s.writable(), s.readable(), s.fileno(), s.name)\n"
            "s.writelines(['a', 'b\\n'])\nprint(s.write('xyz\\n'))\ntry:\n    s.write(b'x')\nexcept TypeError as e:\n    print(e)\n"
        )
        self.assertEqual(
            end.text,
            "True utf-8 False True False 1 <stdout>\nab\nxyz\n4\nwrite() argument must be str, not bytes\n",
        )


class Amounts(unittest.TestCase):
    def test_a_frame_stays_under_its_limit_whatever_is_in_it(self):
        for text in ("'x' * 10**6", "'\\x01' * 10**6", "'\\U0001F600' * 10**6", "'\\ud800' * 10**6"):
            frames = []
            with FakeHost() as host:
                host.start("import os\nos.close(1)\nprint(%s)" % text)
                while True:
                    kind, body = host.receive_raw()
                    if kind == "D":
                        break
                    frames.append(len(body))
            self.assertGreater(len(frames), 1)
            self.assertLess(max(frames), 512 * 1024)

    def test_characters_are_never_split(self):
        text = "a" + "\U0001f600é\\" * 100_000 + "\n"
        for before in ("", "import os; os.close(1); "):
            self.assertEqual(run(before + "print('a' + '\\U0001F600é\\\\' * 100_000)").text, text)

    def test_past_64_mib_only_the_size_is_told(self):
        end = run("for _ in range(10):\n    print('x' * 8_000_000)")
        self.assertLess(len(end.text), 70 * 1024 * 1024)
        self.assertEqual(len(end.text) + end.done["unsent_output_bytes"], 80_000_010)

    def test_threads_do_not_mix_their_lines(self):
        end = run(
            "import threading\ndef work(i):\n    for _ in range(200):\n        print(str(i) * 50 + '\\n', end='')\n"
            "ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]\n[t.start() for t in ts]\n[t.join() for t in ts]"
        )
        lines = end.text.splitlines()
        self.assertEqual((len(lines), {len(set(line)) for line in lines}), (800, {1}))


if __name__ == "__main__":
    unittest.main()
