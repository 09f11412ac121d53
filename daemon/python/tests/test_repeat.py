"""What is drawn by lot comes from the daemon's seed, and from nothing where it gives none."""

import unittest

from fake_host import FakeHost

PROGRAM = "import random\nprint(random.random(), random.sample(range(1000), 3))"


def printed(seed):
    """What the program prints under a seed."""
    with FakeHost() as host:
        host.start(PROGRAM, seed=seed)
        return host.collect().text


class Repeat(unittest.TestCase):
    def test_the_same_seed_draws_the_same_and_another_does_not(self):
        first = printed(7)
        self.assertEqual(first, printed(7))
        self.assertNotEqual(first, printed(8))

    def test_without_a_seed_every_run_draws_its_own(self):
        self.assertNotEqual(printed(None), printed(None))


class Apart(unittest.TestCase):
    PROGRAM = "import sys\nprint('a', end='')\nprint('b\\udcff', file=sys.stderr)\nprint('c')"

    def end(self, apart):
        with FakeHost() as host:
            host.start(self.PROGRAM, apart=apart)
            return host.collect()

    def test_streams_that_are_told_apart_come_by_frame_in_the_order_printed(self):
        end = self.end(True)
        texts = {"stdout": "", "stderr": ""}
        for stream, text in end.framed:
            texts[stream] += text
        self.assertEqual(texts, {"stdout": "ac\n", "stderr": "b\\udcff\n"})
        self.assertEqual((end.written, end.text), ("", "ab\\udcff\nc\n"))

    def test_else_all_of_it_stands_in_one_pipe(self):
        end = self.end(False)
        self.assertEqual((end.framed, end.written), ([], "ab\\udcff\nc\n"))


if __name__ == "__main__":
    unittest.main()
