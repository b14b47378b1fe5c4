// Somebody finds a conversation among others, compares two revisions of its agent, rolls the
// first out to some conversations, and goes back to it.
// Arguments: the browser, its profile, the console's URL, and axe.
import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { until, run, click, reads, lacks, count, audit, go, close } = page;

/** Fills a field that is read when it is left. */
async function settle(label, text) {
  await until(`[...document.querySelectorAll(".filter label")].some((it) => it.innerText.startsWith(${JSON.stringify(label)}))`);
  await run(`(() => {
    const field = [...document.querySelectorAll(".filter label")].find((it) => it.innerText.startsWith(${JSON.stringify(label)})).querySelector("input");
    field.value = ${JSON.stringify(text)};
    field.dispatchEvent(new Event("change", { bubbles: true }));
  })()`);
}

await go("#/conversations");
await reads("A question about a bill");
await count(".row-item", 3);
await audit(axe);
await settle("Metadata", "customer=4711");
await lacks("other");
await count(".row-item", 1);
await settle("Metadata", "ticket=1");
await reads("Nothing fits this filter");
await go("#/conversations?agent=clerk&metadata=ticket%3D1");
await reads("metadata.ticket: is not in the index of agent clerk");
await go("#/conversations");
await count(".row-item", 3);
await settle("Owner", "nobody");
await reads("Nothing fits this filter");
await settle("Owner", "");
await count(".row-item", 3);

await go("#/agents/clerk");
await click("summary", "Revisions");
await reads("in force");
await click(".revisions button", "Compare");
await reads("system_prompt");
await reads("Be short.");
await audit(axe);
await click(".revisions button", "Roll out …");
await run(`(() => {
  const field = document.querySelector("dialog input[type=number]");
  field.value = "25";
  field.dispatchEvent(new Event("input", { bubbles: true }));
})()`);
await audit(axe);
await click("dialog button", "Roll out");
await reads("25 % of the conversations");
await click(".revisions button", "Roll out …");
await run(`(() => {
  const field = document.querySelector("dialog input[type=number]");
  field.value = "50";
  field.dispatchEvent(new Event("input", { bubbles: true }));
})()`);
await click("dialog button", "Roll out");
await reads("50 % of the conversations");
await click(".revisions button", "End the rollout");
await lacks("of the conversations");
await click(".revisions button", "Roll back …");
await click("dialog button", "Roll back");
await reads("again");
close();
process.exit(0);
