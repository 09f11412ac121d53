"""Lets asyncio.run and run_until_complete work in a program that already runs inside a loop.

The runtime runs every program in an event loop, so the usual `asyncio.run(main())`
would be refused. Here the loop that runs is set aside for as long as another one
runs in the same thread; a loop asked to complete something while it runs goes on
from where it stands. Each loop that runs reads the channel, so calls work in all.
"""

import asyncio
from asyncio import base_events, current_task, ensure_future, events, runners
from asyncio.tasks import _enter_task, _leave_task
from functools import wraps

# More than CPython (3.11 to 3.14) runs a function before it fits it to what it was called with.
WARM_ROUNDS = 16
_get_running_loop = events._get_running_loop
_set_running_loop = events._set_running_loop
_Base = base_events.BaseEventLoop
_run_forever = _Base.run_forever
_run_until_complete = _Base.run_until_complete


class _SetAside:
    """While entered, this thread looks as if no loop ran in it."""

    def __init__(self, loop):
        self._loop = loop
        self._task = None

    def __enter__(self):
        self._task = current_task(self._loop)
        if self._task is not None:
            _leave_task(self._loop, self._task)
        _set_running_loop(None)

    def __exit__(self, *_error):
        _set_running_loop(self._loop)
        if self._task is not None:
            _enter_task(self._loop, self._task)


def _nested(function):
    """`function`, also allowed while a loop runs in this thread."""

    @wraps(function)
    def run(*args, **kwargs):
        running = _get_running_loop()
        if running is None:
            return function(*args, **kwargs)
        with _SetAside(running):
            return function(*args, **kwargs)

    return run


def _nothing():
    """What fills the places of handles that ran out of turn."""


def _go_on(loop, future):
    """Runs `loop`, which is running already, until `future` is done."""
    future = ensure_future(future, loop=loop)
    task = current_task(loop)
    waiting = len(loop._ready)
    if task is not None:
        _leave_task(loop, task)
    try:
        while not future.done():
            loop._run_once()
    finally:
        if task is not None:
            _enter_task(loop, task)
        # The turn that was interrupted still counts on the handles it found.
        for _ in range(waiting):
            loop.call_soon(_nothing)
    return future.result()


def install(channel):
    """Makes every event loop read `channel` while it runs, and nested runs possible."""

    def run_forever(self):
        running = _get_running_loop()
        if running is not None and running is not self:
            with _SetAside(running):
                return run_forever(self)
        if running is self or self.is_closed() or not hasattr(self, "_selector"):
            return _run_forever(self)
        self.add_reader(channel.fd, channel.pump)
        try:
            return _run_forever(self)
        finally:
            if not self.is_closed():
                self.remove_reader(channel.fd)

    def run_until_complete(self, future):
        running = _get_running_loop()
        if running is self:
            return _go_on(self, future)
        if running is None:
            return _run_until_complete(self, future)
        with _SetAside(running):
            return _run_until_complete(self, future)

    _Base.run_forever = wraps(_run_forever)(run_forever)
    _Base.run_until_complete = wraps(_run_until_complete)(run_until_complete)
    runners.Runner.run = _nested(runners.Runner.run)
    asyncio.run = runners.run = _nested(runners.run)


def warm():
    """Runs loops that are gone afterwards: their code is then as CPython rewrites what runs often, and what is not
    written anew in each forked worker is not copied in each."""
    for _ in range(WARM_ROUNDS):
        loop = asyncio.SelectorEventLoop()
        loop.run_until_complete(_once())
        loop.close()


async def _once():
    """What such a loop runs."""


def new_loop():
    """The loop programs run in, made before one arrives."""
    loop = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(loop)
    return loop
