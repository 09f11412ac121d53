"""What is called at each real server: programs, and the values that they must come to.

`mcp__S__` stands for the server's tools, FOLDER for its files and PAGE for a page on loopback.
"""


def refused(call, words):
    """A program around a call that the server must refuse, and what it comes to."""
    code = f"try:\n    await {call}\nexcept ToolError as e:\n    emit([e.kind, {words!r} in str(e)])"
    return code, ["tool_failed", True]


EVERYTHING = {
    "text": ("emit(await mcp__S__echo(message='hällo \\n there'))", "Echo: hällo \n there"),
    "sum": ("emit(await mcp__S__get_sum(a=40, b=2))", "The sum of 40 and 2 is 42."),
    "structured": (
        "emit(await mcp__S__get_structured_content(location='Chicago'))",
        {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82},
    ),
    "image": (
        "emit(await mcp__S__get_tiny_image())",
        {
            "data": "Here's the image you requested:\nThe image above is the MCP logo.",
            "_notes": ["[non-text content omitted: image (image/png)]"],
        },
    ),
    "links": (
        "emit((await mcp__S__get_resource_links(count=2))['_notes'])",
        [
            "[non-text content omitted: resource_link demo://resource/dynamic/blob/1 (text/plain)]",
            "[non-text content omitted: resource_link demo://resource/dynamic/text/2 (text/plain)]",
        ],
    ),
    "resource": (
        "r = await mcp__S__get_resource_reference(resourceType='Text', resourceId=1)\n"
        "emit('This is a plaintext resource' in r)",
        True,
    ),
    "blob": (
        "r = await mcp__S__get_resource_reference(resourceType='Blob', resourceId=1)\nemit(r['_notes'])",
        ["[non-text content omitted: resource demo://resource/dynamic/blob/1 (text/plain)]"],
    ),
    "progress": (
        "emit(await mcp__S__trigger_long_running_operation(duration=1, steps=4))",
        "Long running operation completed. Duration: 1 seconds, Steps: 4.",
    ),
    "at once": (
        "import asyncio\n"
        "emit(await asyncio.gather(*[mcp__S__get_sum(a=n, b=n) for n in range(8)]))",
        [f"The sum of {n} and {n} is {2 * n}." for n in range(8)],
    ),
    "wrong argument": (
        "try:\n    await mcp__S__get_sum(a='x', b=2)\nexcept ToolError as e:\n    emit(e.kind)",
        "invalid_arguments",
    ),
    "task only": refused("mcp__S__simulate_research_query(topic='x')", "requires task augmentation"),
}

FILESYSTEM = {
    "write": (
        "r = await mcp__S__write_file(path=FOLDER + '/note.txt', content='line one\\nzwei ä\\n')\n"
        "emit(r['content'].startswith('Successfully wrote to'))",
        True,
    ),
    "read": (
        "r = await mcp__S__read_text_file(path=FOLDER + '/note.txt')\nemit(r['content'])",
        "line one\nzwei ä\n",
    ),
    "list": ("emit((await mcp__S__list_directory(path=FOLDER))['content'])", "[FILE] note.txt"),
    "tree": (
        "import json\nemit(json.loads((await mcp__S__directory_tree(path=FOLDER))['content']))",
        [{"name": "note.txt", "type": "file"}],
    ),
    "outside": refused("mcp__S__read_text_file(path='/etc/passwd')", "Access denied"),
}

MEMORY = {
    "create": (
        "r = await mcp__S__create_entities(entities=[\n"
        "    {'name': 'Ada', 'entityType': 'person', 'observations': ['likes engines']}])\n"
        "emit(r['entities'])",
        [{"name": "Ada", "entityType": "person", "observations": ["likes engines"]}],
    ),
    "search": ("emit([e['name'] for e in (await mcp__S__search_nodes(query='engines'))['entities']])", ["Ada"]),
    "graph": (
        "emit(await mcp__S__read_graph())",
        {
            "entities": [{"name": "Ada", "entityType": "person", "observations": ["likes engines"]}],
            "relations": [],
        },
    ),
    "delete": (
        "await mcp__S__delete_entities(entityNames=['Ada'])\nemit((await mcp__S__read_graph())['entities'])",
        [],
    ),
}

THINKING = {
    "thought": (
        "emit(await mcp__S__sequentialthinking(\n"
        "    thought='a', nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1))",
        {
            "thoughtNumber": 1,
            "totalThoughts": 1,
            "nextThoughtNeeded": False,
            "branches": [],
            "thoughtHistoryLength": 1,
        },
    ),
}

TIME = {
    "now": ("emit((await mcp__S__get_current_time(timezone='UTC'))['timezone'])", "UTC"),
    "convert": (
        "r = await mcp__S__convert_time(\n"
        "    source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo')\n"
        "emit([r['time_difference'], r['target']['datetime'][11:]])",
        ["+9.0h", "21:00:00+09:00"],
    ),
    "unknown zone": refused("mcp__S__get_current_time(timezone='Mars/Base')", "Mars/Base"),
}

GIT = {
    "status": (
        "emit(await mcp__S__git_status(repo_path=FOLDER))",
        "Repository status:\nOn branch main\nnothing to commit, working tree clean",
    ),
    "log": (
        "r = await mcp__S__git_log(repo_path=FOLDER)\n"
        "emit([line for line in r.splitlines() if line.startswith(('Author', 'Message'))])",
        ["Author: Tester", "Message: first note"],
    ),
    "show": ("emit('+one' in await mcp__S__git_show(repo_path=FOLDER, revision='HEAD'))", True),
    "branches": ("emit(await mcp__S__git_branch(repo_path=FOLDER, branch_type='local'))", "* main"),
    "unknown": refused("mcp__S__git_show(repo_path=FOLDER, revision='nope')", "did not resolve"),
    "outside": refused("mcp__S__git_status(repo_path='/')", "outside the allowed repository"),
}

FETCH = {"loopback": refused("mcp__S__fetch(url=PAGE)", "not a public address")}
FETCH_OPEN = {
    "page": ("emit('Twelve **grey** geese.' in await mcp__S__fetch(url=PAGE))", True),
    "not there": refused("mcp__S__fetch(url=PAGE + 'absent')", "404"),
}

SQLITE = {
    "create": (
        "emit(await mcp__S__create_table(query='CREATE TABLE n (a INTEGER, b TEXT)'))",
        "Table created successfully",
    ),
    "insert": (
        "emit(await mcp__S__write_query(query=\"INSERT INTO n VALUES (9007199254740993, 'ä')\"))",
        "[{'affected_rows': 1}]",
    ),
    "select": (
        "import ast\nemit(ast.literal_eval(await mcp__S__read_query(query='SELECT * FROM n')))",
        [{"a": 9007199254740993, "b": "ä"}],
    ),
}

ADD = {"sum": ("emit(await mcp__S__add(a=40, b=2))", 42)}
LIST = {"list": ("emit(await mcp__S__names())", ["one", "two"])}
REFUSE = {"refusal": refused("mcp__S__refuse(why='not today')", "not today")}

FASTMCP = {
    **ADD,
    **LIST,
    "none": ("emit([await mcp__S__none()])", [None]),
    "big": (
        "r = await mcp__S__big()\nemit([r, r['n'] + 1 == 123456789012345678901234567891])",
        [{"n": 123456789012345678901234567890}, True],
    ),
    "big argument": (
        "emit(await mcp__S__add(a=123456789012345678901234567890, b=1))",
        123456789012345678901234567891,
    ),
    "sole result": ("emit(await mcp__S__wrapped())", {"result": {"x": 1}}),
    "progress": ("emit(await mcp__S__steps(count=5))", 5),
    "large": (
        "r = await mcp__S__long_text(size=2000000)\nemit([len(r), set(r) == {'ä'}])",
        [2000000, True],
    ),
    **REFUSE,
}
# A server of the older era asks and is told no; one of the newer era cannot ask.
DECLINED = {"elicitation": ("emit(await mcp__S__ask())", "the answer is decline")}
UNASKED = {"elicitation": refused("mcp__S__ask()", "licit")}

TS2 = {"sum": ("emit(await mcp__S__add(a=40, b=2))", {"sum": 42}), **REFUSE}
