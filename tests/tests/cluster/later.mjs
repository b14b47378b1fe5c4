// Somebody puts a schedule and a webhook, looks at a queue, and gives a call more time. Arguments: the browser, its
// profile, the URL of the console of the operators' listener, and axe.
import { visit } from "./person.mjs";

const [program, profile, url, axe] = process.argv.slice(2);
const page = await visit(program, profile, url);
const { until, click, fill, reads, lacks, audit, go, close } = page;

await go("#/schedules");
await reads("No schedule yet");
await audit(axe);
await click("button", "New …");
await fill("#new-name", "morning");
await until(`[...document.querySelectorAll("#new-agent option")].some((it) => it.value === "greeter")`);
await fill("#new-agent", "greeter");
await fill("#new-cron", "0 9 * * mon-fri");
await fill("#new-timezone", "Europe/Berlin");
await fill("#new-text", "good morning");
await audit(axe);
await click("dialog button", "Put it");
await reads("0 9 * * mon-fri Europe/Berlin");
await reads("a new one for each tick");
await audit(axe);
await click("button", "Pause");
await click("button", "Resume");
await click("button", "Send it now");
await reads("good morning");
await until(`location.hash.startsWith("#/c/morning-")`);
await go("#/schedules/morning");
await reads("a new one for each tick");
await reads("morning-manual_");
await click("button", "Delete …");
await click("dialog button", "Delete");
await lacks("good morning");

await go("#/webhooks");
await reads("No webhook yet");
await click("button", "New …");
await fill("#new-name", "ops");
// Nobody listens there.
await fill("#new-url", "http://127.0.0.1:9/");
await audit(axe);
await click("dialog button", "Put it");
await reads("whsec_");
await click("dialog button", "I have it");
await reads("everything");
await click("button", "Test");
await reads("The test was not delivered");
await audit(axe);
await click("button", "Delete …");
await click("dialog button", "Delete");
await reads("No webhook yet");

await go("#/queues");
await reads("no worker was seen");
await reads("send_mail");
await audit(axe);

await go("#/inbox");
await click("button", "an hour more");
await until(`document.querySelector(".countdown").textContent.startsWith("1 h")`);
close();
process.exit(0);
