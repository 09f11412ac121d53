// The official TypeScript SDK of the 1.x line as a client of ptc-mcp.
import { pathToFileURL } from "node:url";
import { verdicts } from "./checks.mjs";

const [modules, command, config, wanted] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/sdk/dist/esm/${path}`));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");

const transport = new StdioClientTransport({ command, args: ["--config", config], stderr: "inherit" });
let revision;
const setter = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  revision = version;
  setter?.(version);
};
const client = new Client({ name: "ts1", version: "1" });
await client.connect(transport);
const call = (name, args) => client.callTool({ name, arguments: args });
console.log(JSON.stringify(await verdicts({ client, call, revision, wanted, instructions: client.getInstructions() })));
await client.close();
