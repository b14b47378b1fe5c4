// A customer and an approver of the example application, each with a browser. Arguments: the browser, a
// directory for profiles, the shop's URL, the consoles of two nodes, the approver's key, and axe. Writes a line when a
// step needs the test, and goes on with each line that it gets.
import { once } from "node:events";

import { visit } from "./person.mjs";

const [program, profiles, shop, inbox, evening, key, axe] = process.argv.slice(2);
const needs = async (what) => {
  console.log(what);
  await once(process.stdin, "data");
};

const customer = await visit(program, `${profiles}/customer`, shop);
await customer.click("button", "I am Ada");
await customer.reads("Pour-over kettle");
await customer.audit(axe);
await customer.click(".orders button", "It arrived damaged");
await customer.until(`document.querySelector("textarea").value === "Order 1042 arrived damaged."`);
await customer.click("form button", "Send");
await customer.until(`document.querySelector("[data-card=order]")?.innerText.includes("€ 64.00") === true`);
await customer.until(`document.querySelector("[data-card=waiting]")?.innerText.includes("Refund of € 64.00") === true`);
// The shop's own server was told of it, too.
await customer.until(`document.querySelector(".orders .waiting")?.innerText === "A colleague looks at it"`);
await customer.audit(axe);
const conversation = (await customer.run("location.hash")).slice(1);

const approver = await visit(program, `${profiles}/approver`, inbox);
await approver.fill("input[name=token]", key);
await approver.click("button", "Use it");
await approver.reads("Refund € 64 for order 1042?");
await needs(`asked ${conversation}`);

// The node that had the conversation is dead.
await approver.press("j");
await approver.click(".answer button", "Approve");
await customer.reads("Approved. The bank is being asked");
await approver.lacks("Refund € 64 for order 1042?");
await needs("approved");

// So is the one that had made the call.
await customer.until(`document.querySelector("[data-card=done]")?.innerText.includes("Reference R-1042") === true`);
await customer.reads("Done: € 64.00 go back to your card");
await customer.until(`document.querySelector(".refunded")?.innerText === "€ 64.00 refunded"`);
await customer.until(`document.querySelectorAll("[data-card=done]").length === 1`);
await customer.until(`document.querySelector("[data-card=label]")?.innerText.includes("The warehouse prints it") === true`);
await needs("paid");

// So is the worker that had printed, and another one prints.
await customer.until(`document.querySelector("[data-card=label]")?.innerText.includes("Printed: L-1042") === true`);
await customer.reads("The warehouse sends you the label L-1042");
await customer.until(`document.querySelectorAll("[data-card=label]").length === 1`);
await customer.audit(axe);
await needs("printed");

// A page that is loaded again shows the same, and the customer of another order sees nothing of it.
await customer.run(`window.isOld = true`);
await customer.request("Page.reload");
await customer.until(`window.isOld === undefined && document.querySelectorAll("[data-card=done]").length === 1`);
await customer.reads("Done: € 64.00 go back to your card");

// The schedule has come. The node of the first console is dead.
const auditor = await visit(program, `${profiles}/auditor`, evening);
await auditor.fill("input[name=token]", key);
await auditor.click("button", "Use it");
await auditor.go("#/schedules/evening");
await auditor.reads("0 18 * * * Europe/Berlin");
await auditor.click("dd a[href^='#/c/evening-manual_']");
await auditor.reads("Paid back so far: € 64.00, refunds: 1.");
for (const page of [customer, approver, auditor]) page.close();
process.exit(0);
