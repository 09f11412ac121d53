"""Makes every real call of the table and prints it: clients first, then servers."""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import clients
import servers

LIMIT = 120

def too_late(_signal, _frame):
    raise RuntimeError(f"no answer in {LIMIT} s")


class Shim:
    """A plain JSON-RPC client at the pipes of ptc-mcp."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.next = 0
        self.ask(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "table", "version": "1"},
            },
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.next += 1
        self.send({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
        signal.alarm(LIMIT)
        try:
            while True:
                line = self.process.stdout.readline()
                if not line:
                    raise RuntimeError("ptc-mcp closed its stdout")
                message = json.loads(line)
                if message.get("id") == self.next:
                    break
        finally:
            signal.alarm(0)
        if "error" in message:
            raise RuntimeError(message["error"])
        return message["result"]

    def call(self, tool, arguments):
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


class Bench:
    """A daemon of its own with some servers."""

    def __init__(self, programs, folder, entries, page, environment):
        for name in ("home", "run"):
            (folder / name).mkdir(mode=0o700)
        self.page, self.ctl = page, programs / "ptcctl"
        self.environment = environment | {
            "HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }
        self.config = folder / "config.yaml"
        self.config.write_text(json.dumps({"servers": entries}, indent=2) + "\n")
        self.shim = Shim([str(programs / "ptc-mcp"), "--config", str(self.config)], self.environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shim.close()
        self.control("stop")

    def control(self, *args):
        command = [str(self.ctl), "--json", "--config", str(self.config), *args]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=LIMIT, check=False
        ).stdout

    def states(self):
        """What `ptcctl status` says of each server."""
        return {server["name"]: server for server in json.loads(self.control("status"))["servers"]}

    def settle(self, rows):
        """Waits until every server is where it should get to; what is not shows in its cells."""
        end = time.monotonic() + servers.START_LIMIT
        while time.monotonic() < end:
            states = self.states()
            if all(
                states[row.name]["state"] == "ready" or (row.failure and servers.opened(row, states[row.name]) == "ok")
                for row in rows
            ):
                return
            time.sleep(0.5)

    def tool(self, tool, arguments):
        """What one of the daemon's own tools answers."""
        return json.loads(self.shim.call(tool, arguments)["content"][0]["text"])

    def run(self, row, code):
        """What a program emits."""
        head = f"FOLDER = {str(row.folder.resolve())!r}\nPAGE = {self.page!r}\n"
        code = head + code.replace("mcp__S__", f"mcp__{row.name}__")
        result = self.shim.call("execute_program", {"code": code})
        form = result.get("structuredContent") or {}
        if result.get("isError") or "result" not in form:
            raise RuntimeError(result["content"][0]["text"][:500])
        return form["result"]


class Table:
    """Rows of cells; a cell is ok, ignored or what went wrong."""

    def __init__(self, *columns):
        self.columns, self.rows = columns, {}

    def add(self, row, cell, verdict):
        self.rows.setdefault(row, {})[cell] = verdict
        print(f"{row}: {cell}: {verdict}", file=sys.stderr, flush=True)

    def count(self, kind):
        return sum(kind_of(verdict) == kind for cells in self.rows.values() for verdict in cells.values())

    def show(self):
        """As Markdown; every cell that is not ok has its words below the table."""
        print("| " + " | ".join((*self.columns, "ok", "cells")) + " |")
        print("|" + "---|" * (len(self.columns) + 2))
        for row, cells in self.rows.items():
            passed = sum(verdict == "ok" for verdict in cells.values())
            names = ", ".join(name if verdict == "ok" else f"**{name}**" for name, verdict in cells.items())
            print(f"| {row} | {passed} of {len(cells)} | {names} |")
        print()
        for row, cells in self.rows.items():
            for name, verdict in cells.items():
                if verdict != "ok":
                    word = verdict if kind_of(verdict) == "ignored" else f"FAILED {verdict}"
                    print(f"- {row}: {name}: {word}")


def kind_of(verdict):
    """`ok`, `ignored` or `failed`."""
    return verdict.split(":")[0] if verdict == "ok" or verdict.startswith("ignored") else "failed"


def versions(cache):
    """The packages that took part, as they are installed."""
    wanted = re.compile(r"(mcp|fastmcp|mcp_server_\w+)-([\d.]+)\.dist-info")
    found = set()
    for path in cache.glob("npm/node_modules/@modelcontextprotocol/*/package.json"):
        package = json.loads(path.read_text())
        if path.parent.name not in ("core", "ext-apps", "ext-tasks"):
            found.add(f"{package['name']} {package['version']}")
    for path in cache.glob("*/lib/python*/site-packages/*.dist-info"):
        if match := wanted.fullmatch(path.name):
            found.add(f"{match[1].replace('_', '-')} {match[2]}")
    return ", ".join(sorted(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--only", choices=("clients", "servers"))
    given = parser.parse_args()
    programs, cache = given.programs.resolve(), given.cache.resolve()
    tables = {"clients": Table("client"), "servers": Table("server", "transport", "`protocol`")}
    signal.signal(signal.SIGALRM, too_late)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ptcreal", dir="/tmp"))
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "GIT_CONFIG_GLOBAL": os.devnull}
    try:
        if given.only != "servers":
            # The SDKs hand down HOME and PATH but no XDG variable: `daemon.json` leads them to the daemon.
            own = folder / "clients"
            own.mkdir()
            entry = {"name": "m", "transport": "stdio", "command": str(programs / "mock-mcp")}
            with Bench(programs, own, [entry], "", environment) as bench:
                shim = programs / "ptc-mcp"
                clients.cells(tables["clients"], cache, shim, bench.config, bench.environment)
        if given.only != "clients":

            def bench_of(own, entries, page):
                return Bench(programs, own, entries, page, environment)

            outer = environment | {"HOME": str(folder)}
            servers.cells(tables["servers"], cache, folder, outer, bench_of)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Packages: {versions(cache)}\n")
    for table in tables.values():
        if table.rows:
            table.show()
    passed, failed, ignored = (
        sum(table.count(kind) for table in tables.values()) for kind in ("ok", "failed", "ignored")
    )
    print(f"{passed} passed, {failed} failed, {ignored} skipped")
    sys.exit(0 if failed == 0 else 1)


if __name__ == "__main__":
    main()
