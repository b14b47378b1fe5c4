// A person who signs in to the console with an OpenID provider, signs out, and tries a wrong key. Arguments:
// the browser, its profile, the console's URL, and axe.
import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const { run, until, click, fill, reads, audit, close } = await visit(program, profile, url);

await reads("API key or token");
await audit(axe);
await click(".sign-in .wide");
await fill("input[name=login]", "ada");
await fill("input[name=password]", "any");
await click("button[type=submit]");
// The provider asks once more whether the console may act for the person.
await until(`location.href.startsWith(${JSON.stringify(url)}) || document.querySelector("form button[type=submit]:not([disabled])") !== null
  && document.querySelector("input[name=login]") === null`);
if (!(await run("location.href")).startsWith(url)) await click("button[type=submit]");
await reads("Nothing waits for you");
await until(`document.querySelector(".account").textContent.includes("ada")`);
await until(`location.search === ""`);
await audit(axe);
await click(".account button", "Sign out");
await fill("input[name=token]", "abide_wrong_key");
await click(".sign-in form button");
await reads("The node does not accept this credential.");
close();
process.exit(0);
