// What each TypeScript client must be able to do through ptc-mcp; checks.py says the same for Python.

export const GOOD = "print((await mcp__m__add(a=20, b=22))['sum'])\nemit({'answer': 42})";
export const BAD = "print('before')\nraise ValueError('on purpose')";

function must(condition, shown) {
  if (!condition) throw new Error(JSON.stringify(shown).slice(0, 300));
}

const text = (result) => result.content[0].text;

export const ALL = {
  async era({ revision, wanted }) {
    must(revision === wanted, { revision, wanted });
  },
  async instructions({ instructions }) {
    must(instructions?.startsWith("Runs Python programs"), { instructions });
  },
  async tools({ client }) {
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    const expected = ["execute_program", "inspect_tool", "list_callable_tools"];
    must(JSON.stringify(names) === JSON.stringify(expected), names);
  },
  async names({ call }) {
    const listed = JSON.parse(text(await call("list_callable_tools", {})));
    must(listed.includes("mcp__m__add"), listed);
  },
  async inspect({ call }) {
    const shown = JSON.parse(text(await call("inspect_tool", { tool_name: "mcp__m__add" })));
    must(shown.inputSchema.required.join() === "a,b", shown);
    const unknown = await call("inspect_tool", { tool_name: "mcp__m__ad" });
    must(unknown.isError, unknown);
  },
  async program({ call }) {
    const result = await call("execute_program", { code: GOOD });
    must(!result.isError, result);
    must(text(result).startsWith("[Script executed successfully]\n42\n--- result ---\n"), result);
    must(result.structuredContent.result.answer === 42, result);
  },
  async failure({ call }) {
    const result = await call("execute_program", { code: BAD });
    must(result.isError && text(result).startsWith("[Script execution failed]\n"), result);
    must(text(result).includes("ValueError: on purpose"), result);
  },
  async cancel({ client, call }) {
    const stop = new AbortController();
    const params = { name: "execute_program", arguments: { code: "import time\ntime.sleep(60)" } };
    const options = { signal: stop.signal };
    const waiting = client.callTool.length > 2 ? client.callTool(params, undefined, options) : client.callTool(params, options);
    setTimeout(() => stop.abort("on purpose"), 500);
    const ended = await waiting.then(() => "answered", () => "given up");
    must(ended === "given up", ended);
    must(text(await call("execute_program", { code: "print('on')" })).includes("\non"), ended);
  },
};

export async function verdicts(party) {
  const found = {};
  for (const [name, check] of Object.entries(ALL)) {
    try {
      await check(party);
      found[name] = "ok";
    } catch (error) {
      found[name] = String(error).slice(0, 300);
    }
  }
  return found;
}
