// A browser page of the tests: it follows conversation `c`, executes `locate`, approves every call,
// and reports the frames that it receives. With `frames` it consists of several pages in frames, one of
// which is removed when the test dismisses it.
import { connect } from "/abide.js";

const query = new URLSearchParams(location.search);
const name = query.get("name");
const post = (path, report) =>
  fetch(path, { method: "POST", body: JSON.stringify({ name, ...report }) });

const FRAMES = ["snapshot", "user_message", "turn_started", "message_completed", "tool_call_started", "suspended",
  "answered",
  "tool_call_resolved", "tool_call_errored", "turn_completed", "turn_failed", "turn_cancelled"];

async function openFrames(names) {
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

/** Sends reports one after another, so that they arrive in order. */
function reporter() {
  let last = Promise.resolve();
  return (what) => (last = last.then(() => post("/report", what)));
}

function follow() {
  const page = connect({ urls: query.getAll("url"), conversation: "c" });
  const report = reporter();
  for (const frame of FRAMES) page.on(frame, (_, id) => report({ frame, id: id ?? null }));
  page.on("error", ({ message }) => report({ error: message }));
  page.tool("locate", async (_, { call_id }) => {
    await post("/hold", { ran: call_id });
    return { by: name };
  });
  const approved = new Set();
  page.on("change", ({ pending }) => {
    for (const { kind, call_id } of pending) {
      if (kind !== "approval" || approved.has(call_id)) continue;
      approved.add(call_id);
      page.resolve(call_id, { approved: true }).then(({ status }) => report({ approved: status }));
    }
  });
}

if (query.has("frames")) openFrames(query.get("frames").split(","));
else follow();
