// A page of the tests: it follows conversation `c`, executes `locate`, approves what it is asked,
// and tells what it hears. With `frames` it is several pages, of which one leaves when it is told.
import { connect } from "/abide.js";

const query = new URLSearchParams(location.search);
const name = query.get("name");
const tell = (path, what) =>
  fetch(path, { method: "POST", body: JSON.stringify({ name, ...what }) });

const FRAMES = ["snapshot", "turn_started", "message_completed", "tool_call_started", "suspended",
  "tool_call_resolved", "tool_call_errored", "turn_completed", "turn_failed", "turn_cancelled"];

async function several(names) {
  for (const name of names) {
    const frame = document.createElement("iframe");
    frame.id = name;
    query.set("name", name);
    query.delete("frames");
    frame.src = `/?${query}`;
    document.body.append(frame);
  }
  document.getElementById(await (await fetch("/leave")).text()).remove();
}

/** Tells frames one after another, so that they arrive in order. */
function teller() {
  let last = Promise.resolve();
  return (what) => (last = last.then(() => tell("/told", what)));
}

function one() {
  const page = connect({ urls: query.getAll("url"), conversation: "c" });
  const told = teller();
  for (const frame of FRAMES) page.on(frame, (_, id) => told({ frame, id: id ?? null }));
  page.on("error", ({ message }) => told({ error: message }));
  page.tool("locate", async (_, { call_id }) => {
    await tell("/held", { ran: call_id });
    return { by: name };
  });
  const approved = new Set();
  page.on("change", ({ pending }) => {
    for (const { kind, call_id } of pending) {
      if (kind !== "approval" || approved.has(call_id)) continue;
      approved.add(call_id);
      page.resolve(call_id, { approved: true }).then(({ status }) => told({ approved: status }));
    }
  });
}

if (query.has("frames")) several(query.get("frames").split(","));
else one();
