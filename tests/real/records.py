"""What the official Python SDK must find of inspections, submissions, resources and the log, through ptc-mcp."""

import hashlib
import json
import pathlib

CODE = "print((await mcp__m__add(a=20, b=22))['sum'])\nemit({'answer': 42})\n"
NAMES = [
    "execute_program", "inspect_tool", "list_callable_tools", "run_python", "submit_execute_unconfirmed", "submit_outcome",
]  # fmt: skip
# What the daemon of these checks is configured with.
CONFIG = {
    "tools": {"expose": NAMES},
    "submit": {"witness_required": "on", "work_calls": 2, "submissions": 2},
}
GOOD = {
    "deliverable": "The sum is 42.",
    "programs": [{"name": "sum", "code": "print('WITNESS', 40 + 2)"}],
    "witness": {"form": "computed", "value": 42},
}


def member(result, *names):
    """The first of several spellings that the SDKs use for one member."""
    for name in names:
        if hasattr(result, name):
            return getattr(result, name)
    raise AttributeError(names)


def form_of(result):
    return member(result, "structured_content", "structuredContent")


def is_error(result):
    return member(result, "is_error", "isError")


def text_of(result):
    return result.content[0].text


async def handshake(client):
    assert client.server.name == "ptcd", client.server
    assert client.instructions.startswith("Runs Python "), client.instructions


async def schemas(client):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == NAMES, tools
    for tool in tools:
        schema = member(tool, "input_schema", "inputSchema")
        assert schema["type"] == "object" and schema["additionalProperties"] is False, schema
        assert 0 < len(tool.description) <= 2000, tool.name
    submit = tools[NAMES.index("submit_outcome")]
    assert "nothing verifies" in submit.description, submit.description


async def wrong_arguments(client):
    for arguments in ({}, {"code": 5}, {"code": "1", "more": 1}):
        refused = await client.call_tool("run_python", arguments)
        assert is_error(refused) and "code" in text_of(refused) or "more" in text_of(refused), text_of(refused)
    refused = await client.call_tool("submit_outcome", {"outcome": {"deliverable": 1, "programs": []}})
    paths = [error["path"] for error in form_of(refused)["errors"]]
    assert is_error(refused) and "outcome.deliverable" in paths and "outcome.programs" in paths, paths


async def inspection(client):
    code = "import sys\nprint(6 * 7)\nprint('aside', file=sys.stderr)"
    result = await client.call_tool("run_python", {"code": code})
    form = form_of(result)
    assert not is_error(result) and "for inspection, not evidence" in text_of(result), text_of(result)
    found = [form[key] for key in ("exit_status", "stdout", "stderr", "evidence", "limit", "work_calls_left")]
    # What was refused for its arguments has used up nothing.
    assert found == [0, "42\n", "aside\n", False, None, 1], form


async def no_tools(client):
    result = await client.call_tool("run_python", {"code": "await mcp__m__add(a=1, b=2)"})
    form = form_of(result)
    assert form["exit_status"] == 1 and "NameError" in form["stderr"], form
    assert form["work_calls_left"] == 0, form


async def submission(client):
    result = await client.call_tool("submit_execute_unconfirmed", {"outcome": GOOD})
    form, text = form_of(result), text_of(result)
    assert not is_error(result) and "nothing verifies" in text and form["ok"], text
    assert [fact["witness_printed"] for fact in form["facts"]] == [True], form
    run = form["result"]["run"]
    response, origin = await client.read(f"ptc://runs/{run}/response")
    assert response.startswith(GOOD["deliverable"]), response
    origin = json.loads(origin)
    assert [origin["kind"], origin["level"]] == ["submission", "checked"], origin
    # The program of a submission has a record of its own, which claims no more than it is.
    part = json.loads(await client.read_one(f"ptc://runs/{form['facts'][0]['run']}/provenance"))
    assert [part["kind"], part["level"]] == ["submission", "unverified"], part


async def rejection(client):
    programs = [{"name": "sum", "code": "raise ValueError('on purpose')"}]
    result = await client.call_tool("submit_outcome", {"outcome": GOOD | {"programs": programs}})
    form = form_of(result)
    assert is_error(result) and not form["ok"], form
    error = form["errors"][0]
    assert error["path"] == "outcome.programs[0]" and error["found"] and error["required"], error


async def budgets(client):
    for tool, arguments, key in (
        ("run_python", {"code": "print(1)"}, "submit.work_calls"),
        ("submit_outcome", {"outcome": GOOD}, "submit.submissions"),
    ):
        refused = await client.call_tool(tool, arguments)
        assert is_error(refused) and key in text_of(refused), text_of(refused)


async def resources(client):
    run = await client.program(CODE)
    listed = await client.list_resources()
    newest = listed.resources[0]
    assert str(newest.uri) == f"ptc://runs/{run}/response", newest
    assert newest.description.startswith("finished, unverified: "), newest
    for part in ("response", "program-output"):
        _, origin = await client.read(f"ptc://runs/{run}/{part}")
        assert json.loads(origin)["run"] == run, origin
    response, origin = await client.read(f"ptc://runs/{run}/response")
    origin = json.loads(origin)
    assert response.startswith('42\n--- result ---\n{"answer":42}'), response
    assert await client.read_one(f"ptc://runs/{run}/program") == CODE
    for key, kept in (("program_sha256", CODE), ("output_sha256", "42\n"), ("deliverable_sha256", '{"answer":42}')):
        assert origin[key] == hashlib.sha256(kept.encode()).hexdigest(), (key, origin)
    assert [origin["level"], origin["ending"]] == ["unverified", "finished"] and origin["reason"], origin
    calls = json.loads(await client.read_one(f"ptc://runs/{run}/calls"))["calls"]
    assert [call["tool"] for call in calls] == ["mcp__m__add"], calls


async def strange_uris(client):
    run = await client.program("print('here')")
    for uri in (
        "ptc://runs/../response", f"ptc://runs/{run}/../journal/response", f"ptc://runs/{run}%2fresponse/response",
        f"ptc://runs/{run}/journal", "file:///etc/passwd", f"ptc://runs/{'a' * 5000}/response",
    ):  # fmt: skip
        try:
            found = await client.read(uri)
        except Exception as error:
            assert "found" in str(error).lower() or "resource" in str(error).lower(), error
        else:
            raise AssertionError(f"{uri}: {found}")


async def log(client):
    run = await client.program(CODE)
    (path,) = pathlib.Path(client.home).rglob("journal/calls.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    events = [line["event"] for line in lines if line["run"] == run]
    # What the kernel counted is added once the worker is gone.
    assert events[:4] == ["run", "call", "result", "end"], events
    call = next(line for line in lines if line["run"] == run and line["event"] == "call")
    assert json.loads(call["arguments"]) == {"a": 20, "b": 22}, call
    assert [path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777] == [0o600, 0o700]


ALL = {
    "handshake": handshake, "schemas": schemas, "wrong arguments": wrong_arguments, "inspection": inspection,
    "no tools": no_tools, "submission": submission, "rejection": rejection, "budgets": budgets,
    "resources": resources, "strange URIs": strange_uris, "log": log,
}  # fmt: skip


class Client:
    """What both lines of the SDK have in common."""

    def __init__(self, sdk, server, instructions, home, uri=str):
        self.server, self.instructions, self.home = server, instructions, home
        self.list_tools, self.call_tool, self.list_resources = sdk.list_tools, sdk.call_tool, sdk.list_resources
        self._read, self._uri = sdk.read_resource, uri

    async def read(self, uri):
        """The texts of a resource, in order."""
        return [content.text for content in (await self._read(self._uri(uri))).contents]

    async def read_one(self, uri):
        (text,) = await self.read(uri)
        return text

    async def program(self, code):
        """Runs a program that must succeed, and gives its run's id."""
        result = await self.call_tool("execute_program", {"code": code})
        assert not is_error(result), text_of(result)
        return form_of(result)["run"]


async def verdicts(client):
    """One word or one error a check, in the order in which they use up their budgets."""
    found = {}
    for name, check in ALL.items():
        try:
            await check(client)
            found[name] = "ok"
        except Exception as error:  # a check's failure is its verdict
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found
