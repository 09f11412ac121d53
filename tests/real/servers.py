"""The cells of the table that belong to real servers: each in its eras, over its transports."""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field

import programs as calls

HERE = pathlib.Path(__file__).resolve().parent
START_LIMIT = 240
CHANGE_LIMIT = 40
LEGACY, MODERN = "2025-11-25", "2026-07-28"


@dataclass
class Row:
    """One server, spoken to in one way."""

    server: str
    transport: str
    protocol: str
    # The revision that is spoken, or the words that the failure must have.
    revision: str = ""
    failure: list[str] = field(default_factory=list)
    needs: list[pathlib.Path] = field(default_factory=list)
    entry: dict = field(default_factory=dict)
    cells: dict = field(default_factory=dict)
    # Checks that are no program: (Row, Bench) to a verdict.
    checks: dict = field(default_factory=dict)
    folder: pathlib.Path | None = None
    name: str = ""

    @property
    def label(self):
        return f"{self.server} | {self.transport} | {self.protocol}"


class Rows:
    """The rows, each with what it needs to start."""

    def __init__(self, cache, folder):
        self.cache, self.folder, self.rows = cache, folder, []
        modules = cache / "npm/node_modules"
        self.modules = modules
        self.node = modules / "node/bin/node"

    def add(self, row):
        row.name = f"s{len(self.rows)}"
        row.folder = row.folder or self.folder / row.name
        row.entry = {"name": row.name, "start_timeout_seconds": START_LIMIT, "protocol": row.protocol} | row.entry
        self.rows.append(row)

    def process(self, server, protocol, command, *args, env=None, **more):
        needs = [path for path in (command, *args) if isinstance(path, pathlib.Path) and self.cache in path.parents]
        entry = {"transport": "stdio", "command": str(command), "args": [str(arg) for arg in args], "env": env or {}}
        self.add(Row(server, "stdio", protocol, needs=needs, entry=entry, **more))

    def npm(self, name, protocol, *args, **more):
        self.process(name, protocol, self.node, self.modules / f".bin/mcp-server-{name}", *args, **more)

    def pypi(self, name, protocol, *args, venv="py", **more):
        self.process(name, protocol, self.cache / venv / f"bin/mcp-server-{name.split()[0]}", *args, **more)

    def endpoint(self, server, transport, protocol, launched, path, **more):
        url = f"http://127.0.0.1:{launched.port}{path}"
        entry = {"transport": transport, "url": url}
        self.add(Row(server, transport, protocol, needs=launched.needs, entry=entry, **more))


class Launched:
    """A server over HTTP, started here and ended here."""

    def __init__(self, cache, command, environment, port):
        self.port = port
        self.needs = [path for path in command if isinstance(path, pathlib.Path) and cache in path.parents]
        self.process = None
        if all(path.exists() for path in self.needs):
            self.process = subprocess.Popen(
                [str(part) for part in command],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def wait(self):
        end = time.monotonic() + START_LIMIT
        while self.process and self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.2)

    def end(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Page(http.server.BaseHTTPRequestHandler):
    """One page on loopback, for the server that fetches."""

    def do_GET(self):
        there = self.path == "/"
        body = b"<html><body><p>Twelve <b>grey</b> geese.</p></body></html>" if there else b""
        self.send_response(200 if there else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def page():
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    return served


def repository(folder):
    """A repository with one commit."""
    folder.mkdir()
    (folder / "note.txt").write_text("one\n")
    own = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com", "-c", "commit.gpgsign=false"]
    for args in (["init", "-q", "-b", "main"], ["add", "."], [*own, "commit", "-q", "-m", "first note"]):
        subprocess.run(["git", "-C", str(folder), *args], check=True)
    return folder


def thinking(row, bench):
    """The description of this server's one tool, which has many lines, comes whole."""
    text = bench.tool("inspect_tool", {"tool_name": f"mcp__{row.name}__sequentialthinking"})["description"]
    whole = text.startswith("A detailed tool") and text.endswith("a satisfactory answer is reached")
    return "ok" if whole and len(text) > 2500 else f"{len(text)} characters, {text[-80:]}"


def described(row, bench):
    """A description of more than 4 KiB comes whole."""
    text = bench.tool("inspect_tool", {"tool_name": f"mcp__{row.name}__described"})["description"]
    size = bench.run(row, "emit(await mcp__S__described())")
    whole = text.startswith("Line 0:") and text.endswith("to use it.")
    return "ok" if whole and len(text) == size > 4096 else f"{len(text)} of {size} characters"


def storm(row, bench):
    """Many announcements of a change lead to few listings."""
    lines = (row.folder / "sent").read_text().splitlines()
    listings = sum(json.loads(line).get("method") == "tools/list" for line in lines)
    state = bench.states()[row.name]
    return "ok" if 2 <= listings <= 4 and state["tools"] == 13 else f"{listings} listings, {state}"


def growth(row, bench):
    """A tool that comes later can be called once the server has told of it."""
    new = f"grown_{row.name}"
    bench.run(row, f"await mcp__S__grow(name={new!r})\nemit(True)")
    end = time.monotonic() + CHANGE_LIMIT
    while f"mcp__{row.name}__{new}" not in bench.tool("list_callable_tools", {}):
        if time.monotonic() > end:
            return "the new tool was never seen"
        time.sleep(0.2)
    value = bench.run(row, f"emit(await mcp__S__{new}())")
    return "ok" if value == new else repr(value)


def fastmcp(revision):
    """What FastMCP is asked; only in the older era it tells of new tools."""
    own = calls.DECLINED if revision == LEGACY else calls.UNASKED
    later = {"new tool": growth} if revision == LEGACY else {}
    return {"revision": revision, "cells": calls.FASTMCP | own, "checks": {"long description": described} | later}


def stdio_of_npm(rows):
    """The reference servers of npm."""
    files, teed = rows.folder / "files", rows.folder / "teed"
    files.mkdir()
    teed.mkdir()
    lacks = ["server/discover with error -32601", "write `protocol: auto`"]
    rows.npm("everything", "auto", "stdio", revision=LEGACY, cells=calls.EVERYTHING)
    script = rows.modules / ".bin/mcp-server-everything"
    rows.process(
        "everything", "legacy", "sh", "-c", 'tee "$0" | "$@"', teed / "sent", rows.node, script, "stdio",
        revision=LEGACY, folder=teed, cells={"sum": calls.EVERYTHING["sum"]}, checks={"announcements": storm},
    )  # fmt: skip
    rows.npm("everything", "modern", "stdio", failure=lacks)
    rows.npm("filesystem", "auto", files, revision=LEGACY, folder=files, cells=calls.FILESYSTEM)
    memory = {"MEMORY_FILE_PATH": str(rows.folder / "memory.jsonl")}
    rows.npm("memory", "auto", env=memory, revision=LEGACY, cells=calls.MEMORY)
    rows.npm(
        "sequential-thinking", "auto",
        revision=LEGACY, cells=calls.THINKING, checks={"long description": thinking},
    )  # fmt: skip
    for legacy, name in (("serve", "TypeScript SDK 2.4"), ("reject", "TypeScript SDK 2.4, modern only")):
        for protocol in ("auto", "legacy", "modern"):
            spoken = LEGACY if legacy == "serve" and protocol != "modern" else MODERN
            if legacy == "reject" and protocol == "legacy":
                found = {"failure": ["initialize with error -32022", "write `protocol: auto`"]}
            else:
                found = {"revision": spoken, "cells": calls.TS2, "checks": {"new tool": growth}}
            package = rows.modules / "@modelcontextprotocol/server"
            command = [rows.node, HERE / "server_ts2.mjs", rows.modules, "stdio", legacy]
            rows.process(name, protocol, *command, **found)
            rows.rows[-1].needs.append(package)


def stdio_of_pypi(rows):
    """The reference servers of PyPI, FastMCP and the SDK of the 1.x line."""
    repo = repository(rows.folder / "repo")
    eras = (("auto", LEGACY), ("legacy", LEGACY), ("modern", MODERN))
    for protocol, revision in eras:
        rows.pypi("time", protocol, revision=revision, cells=calls.TIME)
    for protocol, revision in eras:
        rows.pypi("git", protocol, "--repository", repo, revision=revision, folder=repo, cells=calls.GIT)
    for protocol, revision in eras[1:]:
        rows.pypi("fetch", protocol, revision=revision, cells=calls.FETCH)
    rows.pypi("fetch --allow-private-ips", "auto", "--allow-private-ips", revision=LEGACY, cells=calls.FETCH_OPEN)
    database = ["--db-path", rows.folder / "a.db"]
    rows.pypi("sqlite on mcp 1.x", "auto", *database, venv="py1", revision=LEGACY, cells=calls.SQLITE)
    lacks = ["server/discover with error -32602", "write `protocol: auto`"]
    rows.pypi("sqlite on mcp 1.x", "modern", *database, venv="py1", failure=lacks)
    broken = ["exit code 1 before it answered initialize", "has no attribute 'list_resources'"]
    rows.pypi("sqlite on mcp 2.x", "auto", *database, failure=broken)
    for protocol, revision in eras:
        command = [rows.cache / "fm/bin/python", HERE / "server_fastmcp.py", "stdio"]
        rows.process("FastMCP 4.2", protocol, *command, **fastmcp(revision))


def over_http(rows, environment):
    """Everything that listens; gives what was launched."""
    launched = []

    def launch(*command, **more):
        port = free_port()
        command = [str(port) if part == "PORT" else part for part in command]
        launched.append(Launched(rows.cache, command, environment | {key: str(port) for key in more}, port))
        return launched[-1]

    everything = rows.modules / ".bin/mcp-server-everything"
    streamable = launch(rows.node, everything, "streamableHttp", PORT=1)
    rows.endpoint("everything", "http", "auto", streamable, "/mcp", revision=LEGACY, cells=calls.EVERYTHING)
    rows.endpoint("everything", "http", "legacy", streamable, "/mcp", revision=LEGACY, cells=calls.EVERYTHING)
    lacks = ["error -3", "write `protocol: auto`"]
    rows.endpoint("everything", "http", "modern", streamable, "/mcp", failure=lacks)
    events = launch(rows.node, everything, "sse", PORT=1)
    rows.endpoint("everything", "sse", "auto", events, "/sse", revision=LEGACY, cells=calls.EVERYTHING)

    python = [rows.cache / "fm/bin/python", HERE / "server_fastmcp.py"]
    both = launch(*python, "http", "PORT")
    for protocol, revision in (("auto", MODERN), ("legacy", LEGACY), ("modern", MODERN)):
        rows.endpoint("FastMCP 4.2", "http", protocol, both, "/mcp", **fastmcp(revision))
    older = launch(*python, "sse", "PORT")
    rows.endpoint("FastMCP 4.2", "sse", "auto", older, "/sse", **fastmcp(LEGACY))

    python = [rows.cache / "py1/bin/python", HERE / "server_py1.py"]
    cells = calls.ADD | calls.LIST | calls.REFUSE
    first = launch(*python, "streamable-http", "PORT")
    rows.endpoint("Python SDK 1.x", "http", "auto", first, "/mcp", revision=LEGACY, cells=cells)
    rows.endpoint("Python SDK 1.x", "http", "modern", first, "/mcp", failure=lacks)
    first = launch(*python, "sse", "PORT")
    rows.endpoint("Python SDK 1.x", "sse", "auto", first, "/sse", revision=LEGACY, cells=cells)

    script = [rows.node, HERE / "server_ts2.mjs", rows.modules, "PORT"]
    for legacy, name in (("stateless", "TypeScript SDK 2.4"), ("reject", "TypeScript SDK 2.4, modern only")):
        second = launch(*script, legacy)
        for protocol in ("auto", "legacy", "modern"):
            spoken = LEGACY if protocol == "legacy" else MODERN
            found = {"revision": spoken, "cells": calls.TS2}
            if legacy == "reject" and protocol == "legacy":
                found = {"failure": ["error -32022", "write `protocol: auto`"]}
            rows.endpoint(name, "http", protocol, second, "/", **found)
    return launched


def cells(table, cache, folder, environment, bench_of):
    """Every server, in three batches with a daemon each."""
    for batch in (stdio_of_npm, stdio_of_pypi, over_http):
        own = folder / batch.__name__
        own.mkdir()
        rows, launched = Rows(cache, own), []
        served = page()
        try:
            launched = batch(rows, environment) if batch is over_http else batch(rows) or []
            for server in launched:
                server.wait()
            there = [row for row in rows.rows if all(path.exists() for path in row.needs)]
            with bench_of(own, [row.entry for row in there], f"http://127.0.0.1:{served.server_port}/") as bench:
                bench.settle(there)
                for row in rows.rows:
                    fill(table, row, bench if row in there else None)
        finally:
            served.shutdown()
            for server in launched:
                server.end()


def fill(table, row, bench):
    """One row of the table."""
    opening = "fails with its reason" if row.failure else f"speaks {row.revision}"
    if bench is None:
        for name in (opening, *row.cells, *row.checks):
            table.add(row.label, name, "ignored: the package is not installed")
        return
    table.add(row.label, opening, opened(row, bench.states()[row.name]))
    for name, (code, wanted) in row.cells.items():
        table.add(row.label, name, verdict(lambda code=code: bench.run(row, code), wanted))
    for name, check in row.checks.items():
        table.add(row.label, name, verdict(lambda check=check: check(row, bench), "ok"))


def opened(row, state):
    """How the meeting with a server should have ended."""
    detail = state["detail"] or ""
    if not row.failure:
        return "ok" if state["protocol"] == row.revision else f"{state['protocol']}: {detail}"
    missing = [words for words in row.failure if words not in detail]
    # A pinned era does not come by itself; a process that ends may do better next time.
    wanted = "reconnecting" if row.protocol == "auto" else "failed"
    return f"{missing} not in {state['state']}: {detail}" if missing or state["state"] != wanted else "ok"


def verdict(call, wanted):
    try:
        found = call()
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        return f"{type(error).__name__}: {error}"[:600]
    return "ok" if found == wanted and type(found) is type(wanted) else f"{found!r}, not {wanted!r}"[:600]
