#!/usr/bin/env python3
"""Times programs from a client's side, by turns with the same calls made directly, so that ratios travel between machines.

By default it starts the release build's ptc-mcp with a daemon and state of its own. `--server-cmd` names another MCP
server that has a tool `execute_program` with the argument `code`; its configuration must name echo.py as the server
`bench`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

ROOT = pathlib.Path(__file__).resolve().parents[2]
ECHO = pathlib.Path(__file__).with_name("echo.py")
TICK = os.sysconf("SC_CLK_TCK")
BIG = 10_000_000
IN_A_ROW = "import time\nt = time.perf_counter()\nfor _ in range({n}): r = await {p}echo(text='m')\nprint('TOOK', time.perf_counter() - t, r)"
AT_ONCE = (
    "import asyncio, time\nt = time.perf_counter()\nr = await asyncio.gather(*({p}echo(text='m') for _ in range({n})))\n"
    "print('TOOK', time.perf_counter() - t, len(r))"
)
LARGE = "import time\nt = time.perf_counter()\nr = await {p}fill(size={b})\nprint('TOOK', time.perf_counter() - t, len(r))"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write the figures there")
    parser.add_argument("--repeat", type=int, default=3, help="times all of it is done; the figures are the medians")
    parser.add_argument("--runs", type=int, default=200, help="programs of one line")
    parser.add_argument("--long", type=int, default=0, metavar="N", help="in place of all else: what a program costs after 100 and after N")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of everything else")
    parser.add_argument("--calls", type=int, default=100, help="calls in one program")
    parser.add_argument("--clients", type=int, default=8, help="clients at once")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "target" / "release", help="where ptcd, ptc-mcp and ptcctl are")
    parser.add_argument("--server-cmd", help="another server in place of ptc-mcp")
    parser.add_argument("--prefix", default="mcp__bench__", help="before the names of tools in programs")
    parser.add_argument("--start", default="auto", choices=("auto", "exec"), help="execution.pool.start")
    return parser.parse_args()


@contextlib.contextmanager
def ground(options):
    """The command and environment of a server, with a daemon of its own that is ended afterwards."""
    if options.server_cmd:
        yield shlex.split(options.server_cmd), dict(os.environ)
        return
    programs = options.programs
    if not all((programs / name).exists() for name in ("ptcd", "ptc-mcp", "ptcctl")):
        sys.exit("build the programs first: cargo build --release")
    with tempfile.TemporaryDirectory(prefix="ptc-bench-") as home:
        config = pathlib.Path(home, "config.yaml")
        server = {"name": "bench", "command": sys.executable, "args": [str(ECHO)]}
        execution = {"max_tool_calls": 10 * options.calls, "pool": {"start": options.start}}
        config.write_text(json.dumps({"servers": [server], "execution": execution}))
        run = pathlib.Path(home, "run")
        run.mkdir(mode=0o700)
        environment = {**os.environ, "HOME": home, "XDG_STATE_HOME": home + "/state", "XDG_RUNTIME_DIR": str(run)}
        try:
            yield [str(programs / "ptc-mcp"), "--config", str(config)], environment
        finally:
            subprocess.run([programs / "ptcctl", "--config", config, "stop"], env=environment, check=False, capture_output=True)


class Connection:
    """One client over stdio, and the processes that came with it."""

    def __init__(self, command, environment):
        self.parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)

    async def __aenter__(self):
        self.log = open(os.devnull, "w")
        self.client = Client(stdio_client(self.parameters, errlog=self.log), mode="legacy")
        before = children()
        began = time.perf_counter()
        await self.client.__aenter__()
        self.started = time.perf_counter() - began
        self.pids = children() - before
        return self

    async def __aexit__(self, *error):
        await self.client.__aexit__(*error)
        self.log.close()

    async def call(self, tool, given):
        began = time.perf_counter()
        result = await asyncio.wait_for(self.client.call_tool(tool, given), 180)
        took = time.perf_counter() - began
        text = "\n".join(part.text for part in result.content if part.type == "text")
        if result.is_error:
            sys.exit("%s failed:\n%s" % (tool, text[:2000]))
        return took, text

    async def program(self, text):
        return await self.call("execute_program", {"code": text})

    async def timed_program(self, text):
        """What the program itself measured, so without its own start."""
        _, answer = await self.program(text)
        words = answer.split()
        return float(words[words.index("TOOK") + 1])


def children():
    """The processes that this one started."""
    with contextlib.suppress(OSError):
        return set(map(int, pathlib.Path("/proc/self/task", str(os.getpid()), "children").read_text().split()))
    return set()


def own_processes(words):
    """The processes whose command line holds one of the words, and their descendants, but not this one."""
    parents, roots = {}, set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            stat = pathlib.Path("/proc", entry, "stat").read_text()
            parents[int(entry)] = int(stat[stat.rindex(")") + 2 :].split()[1])
            line = pathlib.Path("/proc", entry, "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
            if int(entry) != os.getpid() and "bench.py" not in line and any(word in line for word in words):
                roots.add(int(entry))
    found = set(roots)
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def is_echo(pid):
    with contextlib.suppress(OSError):
        return ECHO.name.encode() in pathlib.Path("/proc", str(pid), "cmdline").read_bytes()
    return True


def processor(pids):
    """Seconds of these processes and of the children they have reaped."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            stat = pathlib.Path("/proc", str(pid), "stat").read_text()
            total += sum(map(int, stat[stat.rindex(")") + 2 :].split()[11:15]))
    return total / TICK


def shares(pids):
    """MiB of memory, shared pages counted once, without the server that is called."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, StopIteration):
            lines = pathlib.Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
            total += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return total / 1024


class Peak(threading.Thread):
    """The most memory that processes take together, looked at fifty times a second; it takes time, so nothing is timed."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.over, self.most = pids, threading.Event(), 0

    def run(self):
        while not self.over.wait(0.02):
            self.most = max(self.most, shares(self.pids()))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.join()


def centile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


class Bench:
    def __init__(self, options, command, environment):
        self.options, self.command, self.environment = options, command, environment
        self.figures = {}

    def connect(self):
        return Connection(self.command, self.environment)

    def direct(self):
        return Connection([sys.executable, str(ECHO)], dict(os.environ))

    def all_pids(self):
        words = [self.environment["HOME"]] if not self.options.server_cmd else [self.command[0]]
        return own_processes(words)

    def pids(self):
        """All of them without the server that is called."""
        return {pid for pid in self.all_pids() if not is_echo(pid)}

    async def small(self):
        """Programs of one line, each paired with a direct call."""
        runs = self.options.runs
        async with self.connect() as ours, self.direct() as direct:
            self.figures["start_ms"] = ours.started * 1e3
            for _ in range(5):
                await ours.program("print(1)")
                await direct.call("echo", {"text": "m"})
            again = []
            for _ in range(5):
                async with self.connect() as one:
                    again.append(one.started)
            self.figures["start_again_ms"] = statistics.median(again) * 1e3
            # A pool that grew in the meantime has settled.
            await asyncio.sleep(1)
            programs, calls, floors = [], [], []
            for _ in range(runs):
                programs.append((await ours.program("print(1)"))[0])
                calls.append((await direct.call("echo", {"text": "m"}))[0])
                if not self.options.server_cmd:
                    floors.append((await ours.call("inspect_tool", {"tool_name": self.options.prefix + "echo"}))[0])
            before = processor(self.pids())
            for _ in range(runs):
                await ours.program("print(1)")
            self.figures["program_cpu_ms"] = (processor(self.pids()) - before) * 1e3 / runs
            spaced = []
            for _ in range(runs):
                spaced.append((await ours.program("print(1)"))[0])
                await asyncio.sleep(0.05)
        self.figures["program_ms"] = statistics.median(programs) * 1e3
        self.figures["direct_call_ms"] = statistics.median(calls) * 1e3
        self.figures["program_to_call"] = statistics.median(programs) / statistics.median(calls)
        if floors:
            self.figures["floor_ms"] = statistics.median(floors) * 1e3
            self.figures["program_to_floor"] = statistics.median(programs) / statistics.median(floors)
        self.figures["p99_to_p50_at_20_a_second"] = centile(spaced, 0.99) / centile(spaced, 0.5)

    async def calls(self):
        """Calls within one program against the same calls made by the client, by turns."""
        count = self.options.calls
        fill = {"{p}": self.options.prefix, "{n}": str(count), "{b}": str(BIG)}
        ratios = {"in_a_row": [], "at_once": [], "large": []}
        used = {name: [0, 0] for name in ratios}
        async with self.connect() as ours, self.direct() as direct:

            async def by_program(text):
                for word, value in fill.items():
                    text = text.replace(word, value)
                return await ours.timed_program(text)

            async def in_a_row():
                for _ in range(count):
                    await direct.call("echo", {"text": "m"})

            async def at_once():
                await asyncio.gather(*(direct.call("echo", {"text": "m"}) for _ in range(count)))

            async def large():
                await direct.call("fill", {"size": BIG})

            for _ in range(self.options.rounds):
                for name, text, by_client in (("in_a_row", IN_A_ROW, in_a_row), ("at_once", AT_ONCE, at_once), ("large", LARGE, large)):
                    before = processor(self.all_pids())
                    took = await by_program(text)
                    used[name][0] += processor(self.all_pids()) - before
                    before = time.process_time() + processor(direct.pids)
                    began = time.perf_counter()
                    await by_client()
                    ratios[name].append(took / (time.perf_counter() - began))
                    used[name][1] += time.process_time() + processor(direct.pids) - before
            with Peak(self.pids) as peak:
                for _ in range(2):
                    await by_program(LARGE)
        for name, values in ratios.items():
            self.figures["calls_%s_to_direct" % name] = statistics.median(values)
            self.figures["cpu_%s_to_direct" % name] = used[name][0] / used[name][1]
        self.figures["large_peak_pss_mib"] = peak.most

    async def crowd(self):
        """Several clients that run programs of one line as fast as they are answered, and what they take at rest."""
        async with contextlib.AsyncExitStack() as stack:
            all_of_them = [await stack.enter_async_context(self.connect()) for _ in range(self.options.clients)]

            async def work(one):
                for _ in range(self.options.runs // 4):
                    await one.program("print(1)")

            await asyncio.gather(*(one.program("print(1)") for one in all_of_them))
            began = time.perf_counter()
            await asyncio.gather(*map(work, all_of_them))
            done = len(all_of_them) * (self.options.runs // 4)
            self.figures["programs_a_second"] = done / (time.perf_counter() - began)
            await asyncio.sleep(2)
            pids = self.pids()
            self.figures["crowd_pss_mib"], self.figures["crowd_processes"] = shares(pids), len(pids)

    async def long(self):
        """What a program costs a daemon that has run many, by what it costs one that has run few."""

        async def part(count):
            pids, took = self.pids(), []
            before = processor(pids)
            for _ in range(count):
                took.append((await ours.program("print(1)"))[0])
            return statistics.median(took) * 1e3, (processor(self.pids()) - before) * 1e3 / count, shares(self.pids())

        many = self.options.long
        async with self.connect() as ours:
            await part(100)
            early = await part(1000)
            await part(max(many - 2100, 0))
            late = await part(1000)
        for name, first, last in zip(("ms", "cpu_ms", "pss_mib"), early, late):
            self.figures["early_" + name], self.figures["late_" + name] = first, last
        return self.figures

    async def all(self):
        if self.options.long:
            return await self.long()
        await self.small()
        await self.calls()
        await self.crowd()
        return self.figures


def main():
    options = arguments()
    runs = []
    for _ in range(1 if options.long else options.repeat):
        with ground(options) as (command, environment):
            runs.append(asyncio.run(Bench(options, command, environment).all()))
    figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    print("%-28s %10s %10s %10s" % ("", "median", "least", "most"))
    for name, value in figures.items():
        print("%-28s %10.2f %10.2f %10.2f" % (name, value, min(run[name] for run in runs), max(run[name] for run in runs)))
    if options.json:
        about = {"machine": platform.platform(), "processors": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        pathlib.Path(options.json).write_text(json.dumps({"about": about, "figures": figures, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
