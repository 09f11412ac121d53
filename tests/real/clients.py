"""The cells of the table that belong to real clients."""

import json
import os
import pathlib
import subprocess

import checks

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 120
LEGACY, MODERN = "2025-11-25", "2026-07-28"


def cells(table, cache, shim, config, environment):
    """Every client in every era it has."""
    given = [str(shim), str(config)]
    old, new = (str(cache / folder / "bin/python") for folder in ("py1", "py"))
    modules = cache / "npm/node_modules"
    node = str(modules / "node/bin/node")
    scoped = modules / "@modelcontextprotocol"

    def python(row, program, script, *more):
        sdk(table, row, [program, str(HERE / script), *given, *more], [program], environment)

    def typescript(row, package, script, *more):
        command = [node, str(HERE / script), str(modules), *given, *more]
        sdk(table, row, command, [node, scoped / package], environment)

    python("Python SDK 1.x", old, "client_1.py", LEGACY)
    for mode, revision in (("legacy", LEGACY), ("auto", MODERN), (MODERN, MODERN)):
        python(f"Python SDK 2.3, {mode}", new, "client_2.py", revision, mode)
    typescript("TypeScript SDK 1.32", "sdk", "client_ts1.mjs", LEGACY)
    for mode, revision in (("legacy", LEGACY), ("auto", MODERN), ("pinned", MODERN)):
        typescript(f"TypeScript SDK 2.4, {mode}", "client", "client_ts2.mjs", revision, mode)
    fastmcp(table, cache, given, environment)
    for era in ("legacy", "auto", "modern"):
        inspector(table, cache, shim, config, environment, era)


def sdk(table, row, command, needed, environment):
    """The verdicts of one SDK's client, one process for all of them."""
    names = [*checks.OPENING, *checks.ALL]
    if not all(os.path.exists(path) for path in needed):
        for name in names:
            table.add(row, name, "ignored: the package is not installed")
        return
    said = ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
        )
        said = done.stderr
        found = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        found = dict.fromkeys(names, f"no verdict: {error} {said[-300:]}")
    for name in names:
        table.add(row, name, found.get(name, "no verdict"))


def by_process(table, row, cells, command, environment):
    """A process for each cell; what it prints must hold some words."""
    for name, (args, wanted) in cells.items():
        try:
            done = subprocess.run(
                [*command, *args], capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
            )
            missing = [word for word in wanted if word not in done.stdout]
            verdict = f"{missing} not in {done.stdout[-200:]}{done.stderr[-200:]}" if missing else "ok"
        except subprocess.TimeoutExpired:
            verdict = f"no answer in {LIMIT} s"
        table.add(row, name, verdict)


def absent(table, row, cells, needed):
    """Whether a package is not there; its cells then say so."""
    if all(path.exists() for path in needed):
        return False
    for name in cells:
        table.add(row, name, "ignored: the package is not installed")
    return True


def fastmcp(table, cache, given, environment):
    """FastMCP's command line."""
    program = cache / "fm/bin/fastmcp"
    shim, config = given
    server = ["--command", f"{shim} --config {config}", "--json"]

    def call(tool, arguments):
        return ["call", *server, "--target", tool, "--input-json", json.dumps(arguments)]

    cells = {
        "tools": (["list", *server], ["execute_program", "inspect_tool", "list_callable_tools"]),
        "names": (call("list_callable_tools", {}), ["mcp__m__add"]),
        "program": (call("execute_program", {"code": checks.GOOD}), ["[Script executed successfully]", "42"]),
        "failure": (call("execute_program", {"code": checks.BAD}), ["ValueError: on purpose"]),
    }
    if not absent(table, "FastMCP", cells, [program]):
        by_process(table, "FastMCP", cells, [str(program)], environment)


def inspector(table, cache, shim, config, environment, era):
    """The Inspector's command line in one era."""
    row = f"MCP Inspector, {era}"
    node = cache / "npm/node_modules/node/bin"
    program = cache / "npm/node_modules/.bin/mcp-inspector"

    def call(tool, arguments):
        return ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)]

    cells = {
        "tools": (["--method", "tools/list"], ["execute_program", "list_callable_tools"]),
        "names": (call("list_callable_tools", {}), ["mcp__m__add"]),
        "inspect": (call("inspect_tool", {"tool_name": "mcp__m__add"}), ["Adds two integers."]),
        "program": (call("execute_program", {"code": checks.GOOD}), ["[Script executed successfully]", "42"]),
        "failure": (
            call("execute_program", {"code": checks.BAD}),
            ["[Script execution failed]", "ValueError: on purpose"],
        ),
    }
    if absent(table, row, cells, [program, node / "node"]):
        return
    # The Inspector has a --config of its own, so ours goes through the environment.
    command = [
        str(program), "--cli", "--protocol-era", era, "--format", "json",
        "-e", f"PTC_MCP_CONFIG={config}", "-e", f"HOME={environment['HOME']}",
        "-e", f"XDG_RUNTIME_DIR={environment['XDG_RUNTIME_DIR']}", str(shim),
    ]  # fmt: skip
    environment = environment | {"PATH": f"{node}:{environment['PATH']}"}
    by_process(table, row, cells, command, environment)
