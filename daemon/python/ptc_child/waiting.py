"""Finds the lines at which the program's tasks wait."""

import sys
from asyncio import all_tasks
from asyncio.events import _get_running_loop

from ptc_child.source import NAME

MAX_LINES = 20
MAX_NAME_CHARS = 200
MAX_STEPS = 1_000
_current_frames = sys._current_frames


def lines(loop, main_task, main_thread):
    """[{line, function}] of the innermost program line of each task that waits.

    A loop the program runs inside ours comes first: what it waits for is what holds everything up.
    """
    running = _get_running_loop()
    found = []
    if running is not None and running is not loop:
        found += [_innermost(task.get_coro()) for task in all_tasks(running)]
    found.append(_on_stack(_current_frames().get(main_thread)))
    tasks = sorted(all_tasks(loop), key=lambda task: task is not main_task)
    found += [_innermost(task.get_coro()) for task in tasks]
    unique = dict.fromkeys(place for place in found if place is not None)
    return [{"line": line, "function": function[:MAX_NAME_CHARS]} for line, function in list(unique)[:MAX_LINES]]


def _on_stack(frame):
    """Where a thread stands, if the program is on its stack."""
    while frame is not None:
        if frame.f_code.co_filename == NAME:
            return frame.f_lineno, frame.f_code.co_qualname
        frame = frame.f_back
    return None


def _innermost(waiting):
    """Follows one chain of awaits."""
    place = None
    for _ in range(MAX_STEPS):
        for prefix, onward in (("cr_", "await"), ("gi_", "yieldfrom"), ("ag_", "await")):
            frame = getattr(waiting, prefix + "frame", None)
            if frame is not None:
                break
        else:
            return place
        if frame.f_code.co_filename == NAME:
            place = frame.f_lineno, frame.f_code.co_qualname
        waiting = getattr(waiting, prefix + onward, None)
    return place
