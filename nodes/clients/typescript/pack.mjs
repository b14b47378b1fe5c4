// Packs @abide/client and @abide/react: node pack.mjs [DIRECTORY]. Copies the module that nodes serve into the
// client, generates the types of the API, and writes two archives.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const repository = resolve(here, "../../..");
const output = resolve(process.argv[2] ?? join(here, "dist"));
const [CORE, SERVED] = ["src/core.js", "../../../../console/"];

/** Copies a module and those that it imports from beside it. */
function copyModule(name, into, copied = new Set()) {
  if (copied.has(name)) return;
  copied.add(name);
  const text = readFileSync(join(repository, "nodes/console", name), "utf8");
  writeFileSync(join(into, name), text);
  for (const [, imported] of text.matchAll(/from "\.\/([\w-]+\.js)"/g)) copyModule(imported, into, copied);
}

const work = mkdtempSync(join(tmpdir(), "abide-pack-"));
try {
  mkdirSync(output, { recursive: true });
  for (const name of ["client", "react"]) {
    const directory = join(work, name);
    cpSync(join(here, name), directory, { recursive: true, filter: (file) => !file.includes("node_modules") });
    cpSync(join(repository, "LICENSE"), join(directory, "LICENSE"));
  }
  const client = join(work, "client");
  mkdirSync(join(client, "core"));
  const core = readFileSync(join(client, CORE), "utf8");
  const served = new Set([...core.matchAll(/console\/([\w-]+\.js)"/g)].map(([, name]) => name));
  const copied = new Set();
  for (const name of served) copyModule(name, join(client, "core"), copied);
  writeFileSync(join(client, CORE), core.replaceAll(SERVED, "../core/"));
  const require = createRequire(process.env.ABIDE_PACKAGES ? join(process.env.ABIDE_PACKAGES, "_") : import.meta.url);
  const generator = join(dirname(require.resolve("openapi-typescript/package.json")), "bin/cli.js");
  execFileSync(process.execPath, [
    generator,
    join(repository, "nodes/openapi.json"),
    "--output",
    join(client, "src/api.d.ts"),
  ], { stdio: ["ignore", "ignore", "inherit"] });
  for (const name of ["client", "react"]) {
    execFileSync("npm", ["pack", "--silent", "--pack-destination", output], {
      cwd: join(work, name),
      stdio: ["ignore", "inherit", "inherit"],
    });
  }
} finally {
  rmSync(work, { recursive: true });
}
