// What the console offers to whom: a person, an author and a tenant's admin. Arguments: the browser, its profile,
// the console's URL, the keys by their ids, and axe.
import { visit } from "./person.mjs";

const [program, profile, url, keys, axe] = process.argv.slice(2);
const { until, click, fill, reads, lacks, audit, go, close } = await visit(program, profile, url);
const signIn = async (id) => {
  await fill("input[name=token]", JSON.parse(keys)[id]);
  await click(".sign-in form button");
  await until(`document.querySelector(".account")?.textContent.includes("${id}")`);
};
const signOut = () => click(".account button", "Sign out");
const offers = (view, isOffered) =>
  until(`[...document.querySelectorAll(".top nav a")].some((it) => it.title === "${view}") === ${isOffered}`);
const openRevisions = async () => {
  await go("#/agents/a");
  await click("summary", "Revisions");
  await reads("in force");
  await until(`document.querySelectorAll(".revisions li").length === 2`);
};

// Whoever talks to agents sees what they were, and changes nothing.
await signIn("user");
await offers("Agents", true);
await offers("Erasures", false);
await openRevisions();
await click(".revisions button", "Compare");
await reads("system_prompt");
await reads("30 % of the conversations");
for (const act of ["Roll out …", "Roll back …", "End the rollout"]) await lacks(act);
await go("#/erasures");
await reads("it needs manage_erasures");
await lacks("New …");
await audit(axe);
await signOut();

await signIn("author");
await offers("Erasures", false);
await openRevisions();
await reads("Roll out …");
await reads("Roll back …");
await click(".revisions button", "End the rollout");
await lacks("% of the conversations");
await signOut();

await signIn("admin");
await offers("Erasures", true);
await go("#/erasures");
await reads("Nobody was erased");
await reads("New …");
close();
process.exit(0);
