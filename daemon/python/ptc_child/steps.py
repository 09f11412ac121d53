"""Counts the steps of the program's own code: its jumps and the starts of its functions.

The program shares this interpreter and could stop the count, so it is advice and no boundary.
"""

import sys

from ptc_child.source import NAME

# A number that no debugger, coverage tool, profiler or optimizer has.
TOOL = 3


class StepBudgetExceeded(BaseException):
    """What a program meets that took more steps than it may."""

    __module__ = "builtins"


class Steps:
    """The count of one program; nothing is counted where there is no budget."""

    def __init__(self, budget):
        self.used, self.stopped = 0, False
        self._set = None
        if budget is None:
            return
        monitoring = sys.monitoring
        events, other = monitoring.events, monitoring.DISABLE

        def step(code, *_place):
            if code.co_filename != NAME:
                return other
            self.used += 1
            if self.used > budget:
                # A program that catches it meets it again at its next step.
                self.stopped = True
                raise StepBudgetExceeded("the program took more than %d steps (execution.step_budget)" % budget)
            return None

        monitoring.use_tool_id(TOOL, "ptc")
        for event in (events.PY_START, events.JUMP):
            monitoring.register_callback(TOOL, event, step)
        self._set = monitoring.set_events
        self._set(TOOL, events.PY_START | events.JUMP)

    def end(self):
        """Counts no more, so that the end can be told."""
        if self._set is not None:
            try:
                self._set(TOOL, 0)
            except ValueError:
                # The program has given the number back.
                pass

    def told(self):
        """What the end says of it."""
        return {} if self._set is None else {"steps": self.used, "steps_stopped": self.stopped}
