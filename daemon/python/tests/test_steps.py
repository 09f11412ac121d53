"""Steps of the program's own code are counted where there is a budget for them, and end it where there are more."""

import sys
import unittest

from fake_host import LIMITS, FakeHost


def end_of(program, budget):
    """How a program ends under a budget."""
    with FakeHost() as host:
        host.start(program, limits=LIMITS | ({} if budget is None else {"steps": budget}))
        return host.collect()


@unittest.skipIf(sys.version_info < (3, 12), "this Python cannot count steps")
class Steps(unittest.TestCase):
    def test_without_a_budget_nothing_is_counted(self):
        end = end_of("for n in range(3000): pass", None)
        self.assertTrue(end.ok)
        self.assertNotIn("steps", end.done)

    def test_within_the_budget_the_steps_are_told(self):
        end = end_of("def f(): pass\nfor n in range(200): f()", 1000)
        self.assertTrue(end.ok, end.done)
        self.assertFalse(end.done["steps_stopped"])
        # One for the program, two for each round: its jump and its call.
        self.assertIn(end.done["steps"], range(400, 405))

    def test_more_steps_end_the_program_and_are_said(self):
        for program in (
            "while True: pass",
            "sum(x for x in range(10**9))",
            "def f(n): return f(n - 1) if n else 0\nwhile True: f(100)",
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "import asyncio\nasync def f():\n    while True: await asyncio.sleep(0)\nasyncio.run(f())",
        ):
            end = end_of("print('begun')\n" + program, 1000)
            self.assertEqual((end.ok, end.text, end.done["steps_stopped"]), (False, "begun\n", True), program)
            self.assertEqual(end.error["type"], "StepBudgetExceeded", program)
            self.assertIn("\nStepBudgetExceeded: the program took more than 1000 steps", "\n" + end.error["text"])
            self.assertNotIn("steps.py", end.error["text"])

    def test_what_the_library_does_counts_for_nothing(self):
        end = end_of("import statistics, csv\nprint(statistics.mean(range(2000)))", 1000)
        self.assertTrue(end.ok, end.done)
        self.assertLess(end.done["steps"], 10)

    def test_a_program_can_stop_the_count_which_is_no_boundary(self):
        stop = "import sys\nsys.monitoring.set_events(3, 0)\n"
        for more in ("", "sys.monitoring.free_tool_id(3)\n"):
            end = end_of(stop + more + "for n in range(5000): pass\nprint('end')", 1000)
            self.assertEqual((end.ok, end.text), (True, "end\n"), end.done)


if __name__ == "__main__":
    unittest.main()
