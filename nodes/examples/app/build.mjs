// Builds the page and the shop's server into dist. The packages @abide/client and @abide/react are those of
// this tree; elsewhere they are installed like the others. PACKAGES: where the others are, else node_modules.
import { cpSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const packages = process.env.PACKAGES ?? resolve(here, "node_modules");
const out = process.argv[2] ?? resolve(here, "dist");
const { build } = createRequire(resolve(packages, "x.js"))("esbuild");
const clients = resolve(here, "../../clients/typescript");
const { dependencies } = JSON.parse(readFileSync(resolve(here, "package.json"), "utf8"));
const shared = {
  absWorkingDir: here,
  bundle: true,
  format: "esm",
  logLevel: "warning",
  // Its paths are for the types.
  tsconfigRaw: "{}",
  nodePaths: [packages],
  alias: {
    // The clients' modules use the same React as the page's.
    ...Object.fromEntries(Object.keys(dependencies).map((name) => [name, resolve(packages, name)])),
    "@abide/client/http-tools": `${clients}/client/src/http-tools.js`,
    "@abide/client": `${clients}/client/src/index.js`,
    "@abide/react/chat": `${clients}/react/src/chat.js`,
  },
};
await build({
  ...shared,
  entryPoints: ["page/page.tsx"],
  outfile: `${out}/page/page.js`,
  minify: true,
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
});
await build({ ...shared, entryPoints: ["shop/server.ts"], outfile: `${out}/server.mjs`, platform: "node", target: "node20" });
for (const file of ["index.html", "page.css", "icon.svg"]) cpSync(resolve(here, "page", file), `${out}/page/${file}`);
