// Runs the conformance suite three times a revision and compares each verdict with the baseline.

import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";

const [cache, programs] = process.argv.slice(2, 4).map((folder) => path.resolve(folder));
const yaml = createRequire(path.join(cache, "package.json"))("yaml");
const suite = path.join(cache, "node_modules/@modelcontextprotocol/conformance");
const baseline = readYaml(path.join(import.meta.dirname, "conformance-baseline.yml"));
const results = fs.mkdtempSync(path.join(os.tmpdir(), "conformance-"));

const REVISIONS = ["2025-11-25", "2026-07-28"];
const LIMIT = 10 * 60 * 1000;

// The daemon has three tools of its own and not those of the suite, so only what asks for none counts.
const OF_PTCD = [
  "server-initialize", "ping", "tools-list", "server-session-lifecycle", "server-sse-polling",
  "server-sse-multiple-streams", "dns-rebinding-protection", "server-stateless", "caching",
  "sep-2164-resource-not-found", "http-header-validation", "input-required-result-unsupported-methods",
];

function readYaml(file) {
  return yaml.parse(fs.readFileSync(file, "utf8"));
}

// The scenarios that a revision requires of one side, or that came later; extensions are offered by nobody.
function wanted(side, revision) {
  const required = readYaml(path.join(suite, "requirements", `${revision}.yaml`));
  const later = required.not_scored.filter((one) => one.leg === side && one.reason !== "extension");
  return [...required[side], ...later.map((one) => one.scenario)];
}

// Each scenario's checks, by its name.
function run(side, revision, folder, args) {
  const command = [path.join(suite, "dist/index.js"), side, "--requirements", revision, "-o", folder, ...args];
  const ran = spawnSync(process.execPath, command, { encoding: "utf8", timeout: LIMIT, maxBuffer: 1 << 28 });
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, "log.txt"), `${ran.stdout}${ran.stderr}`);
  const found = new Map();
  for (const file of fs.globSync(`${folder}/**/checks.json`)) {
    const name = path.relative(folder, path.dirname(file)).replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, "");
    const checks = JSON.parse(fs.readFileSync(file, "utf8"));
    found.set(side === "server" ? name.replace(/^server-/, "") : name, checks);
  }
  return found;
}

// The reason an entry of the baseline gives for a failure, and the entry.
function excuse(entries, scenario, id) {
  const covers = (key) => key === scenario || key === `${scenario}:${id}` ||
    (key.endsWith("*") && scenario.startsWith(key.slice(0, -1)));
  return Object.keys(entries).find(covers);
}

// Compares one run with its part of the baseline; true if nothing is unexpected.
function compare(title, names, found, entries) {
  let good = true;
  const failing = new Map();
  const count = { pass: 0, expected: 0, wrong: 0 };
  console.log(`\n${title}`);
  for (const name of names) {
    const checks = found.get(name);
    const failed = [...new Set((checks ?? []).filter((one) => one.status === "FAILURE").map((one) => one.id))];
    const surprises = failed.filter((id) => excuse(entries, name, id) === undefined);
    failing.set(name, failed);
    let verdict;
    if (!checks || checks.length === 0) {
      verdict = "FAILED it did not run";
    } else if (surprises.length > 0) {
      verdict = `FAILED ${surprises.join(", ")}`;
    } else if (failed.length > 0) {
      verdict = `expected failure: ${entries[excuse(entries, name, failed[0])]}`;
    } else {
      verdict = "pass";
    }
    const kind = verdict === "pass" ? "pass" : verdict.startsWith("FAILED") ? "wrong" : "expected";
    count[kind] += 1;
    good &&= kind !== "wrong";
    console.log(`  ${name.padEnd(46)}${verdict}`);
  }
  for (const key of stale(entries, failing)) {
    good = false;
    console.log(`  ${key.padEnd(46)}FAILED it passes: take it out of the baseline`);
  }
  console.log(`  ${count.pass} pass, ${count.expected} expected failures, ${count.wrong} unexpected`);
  return good;
}

// Entries that excuse nothing, or of a pattern's scenarios not each.
function stale(entries, failing) {
  return Object.keys(entries).filter((key) => {
    if (key.endsWith("*")) {
      const matching = [...failing].filter(([name]) => name.startsWith(key.slice(0, -1)));
      return matching.length === 0 || matching.some(([, failed]) => failed.length === 0);
    }
    const [scenario, id] = key.split(":");
    const failed = failing.get(scenario) ?? [];
    return id === undefined ? failed.length === 0 : !failed.includes(id);
  });
}

// Starts a program that says its address on its first line.
async function front(...args) {
  const stdio = ["ignore", "pipe", "inherit"];
  const child = spawn(path.join(programs, "conformance-server"), args, { stdio });
  const lines = readline.createInterface({ input: child.stdout });
  const { value: url } = await lines[Symbol.asyncIterator]().next();
  if (!url) throw new Error("conformance-server did not start");
  return { child, url };
}

// Starts a daemon in a home of its own.
async function daemon() {
  const home = fs.mkdtempSync("/tmp/ptcconf");
  for (const name of ["home", "run"]) fs.mkdirSync(path.join(home, name), { mode: 0o700 });
  const [config, socket] = ["config.yaml", "socket"].map((name) => path.join(home, name));
  const servers = [{ name: "m", transport: "stdio", command: path.join(programs, "mock-mcp") }];
  fs.writeFileSync(config, JSON.stringify({ servers }));
  const env = { HOME: path.join(home, "home"), XDG_RUNTIME_DIR: path.join(home, "run"), PATH: process.env.PATH };
  const log = fs.openSync(path.join(results, "ptcd.log"), "w");
  const args = ["serve", "--config", config, "--socket", socket];
  const child = spawn(path.join(programs, "ptcd"), args, { env, stdio: ["ignore", log, log] });
  const end = Date.now() + 60_000;
  while (!fs.existsSync(socket)) {
    if (Date.now() > end || child.exitCode !== null) throw new Error(`ptcd did not start: see ${results}/ptcd.log`);
    await new Promise((wake) => setTimeout(wake, 100));
  }
  return { child, home, config, socket };
}

async function ended(child) {
  const gone = new Promise((done) => (child.exitCode === null ? child.once("exit", done) : done()));
  child.kill("SIGTERM");
  await gone;
}

async function main() {
  let good = true;
  const of = (who, revision) => baseline[who]?.[revision] ?? {};
  const server = async (who, names, url) => {
    for (const revision of REVISIONS) {
      const found = run("server", revision, path.join(results, `${who}-${revision}`), ["--url", url]);
      const title = `${who}, ${revision}`;
      good = compare(title, names(revision), found, of(who, revision)) && good;
    }
  };
  const fixture = await front("fixture");
  await server("session-layer", (revision) => wanted("server", revision), fixture.url);
  await ended(fixture.child);

  const ptcd = await daemon();
  const before = await front("ptcd", ptcd.socket, ptcd.config);
  const of_ptcd = (revision) => wanted("server", revision).filter((name) => OF_PTCD.includes(name));
  await server("ptcd", of_ptcd, before.url);
  await ended(before.child);
  await ended(ptcd.child);
  fs.rmSync(ptcd.home, { recursive: true, force: true });

  const command = path.join(programs, "ptc-conformance-client");
  for (const revision of REVISIONS) {
    const found = run("client", revision, path.join(results, `client-${revision}`), ["--command", command]);
    good = compare(`client, ${revision}`, wanted("client", revision), found, of("client", revision)) && good;
  }
  console.log(good ? "\nas expected" : `\nnot as expected; everything is in ${results}`);
  if (good) fs.rmSync(results, { recursive: true, force: true });
  process.exit(good ? 0 : 1);
}

await main();
