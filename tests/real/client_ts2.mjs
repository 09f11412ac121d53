// The official TypeScript SDK of the 2.x line as a client of ptc-mcp, in the mode that is asked for.
import { pathToFileURL } from "node:url";
import { verdicts } from "./checks.mjs";

const [modules, command, config, wanted, mode] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/client/dist/${path}`));
const { Client } = await load("index.mjs");
const { StdioClientTransport } = await load("stdio.mjs");

const negotiation = mode === "pinned" ? { pin: "2026-07-28" } : mode;
const client = new Client({ name: "ts2", version: "1" }, { versionNegotiation: { mode: negotiation } });
await client.connect(new StdioClientTransport({ command, args: ["--config", config], stderr: "inherit" }));
const call = (name, args) => client.callTool({ name, arguments: args });
const revision = client.getNegotiatedProtocolVersion();
console.log(JSON.stringify(await verdicts({ client, call, revision, wanted, instructions: client.getInstructions() })));
await client.close();
