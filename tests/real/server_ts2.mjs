// A server of the TypeScript SDK's 2.x line: MODULES stdio|PORT serve|stateless|reject.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [modules, transport, legacy] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${modules}/${path}`));
const { McpServer, createMcpHandler } = await load("@modelcontextprotocol/server/dist/index.mjs");
const { serveStdio } = await load("@modelcontextprotocol/server/dist/stdio.mjs");
const { z } = await load("zod/index.js");

function parts() {
  const server = new McpServer({ name: "parts", version: "1" }, { capabilities: { tools: { listChanged: true } } });
  const numbers = z.object({ a: z.number(), b: z.number() });
  server.registerTool(
    "add",
    { description: "Adds.", inputSchema: numbers, outputSchema: z.object({ sum: z.number() }) },
    async ({ a, b }) => ({ content: [{ type: "text", text: JSON.stringify({ sum: a + b }) }], structuredContent: { sum: a + b } }),
  );
  server.registerTool("refuse", { inputSchema: z.object({ why: z.string() }) }, async ({ why }) => {
    throw new Error(why);
  });
  server.registerTool("grow", { inputSchema: z.object({ name: z.string() }) }, async ({ name }) => {
    server.registerTool(name, { inputSchema: z.object({}) }, async () => ({ content: [{ type: "text", text: name }] }));
    return { content: [{ type: "text", text: "done" }] };
  });
  return server;
}

if (transport === "stdio") {
  serveStdio(parts, { legacy });
} else {
  const { toNodeHandler } = await load("@modelcontextprotocol/node/dist/index.mjs");
  createServer(toNodeHandler(createMcpHandler(parts, { legacy }))).listen(Number(transport), "127.0.0.1");
}
