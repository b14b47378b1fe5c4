// Starting a conversation, and the things to try when there is nothing yet.
import { html, useState } from "./html.js";
import { pathOf } from "./journal.js";
import { Icon, Trouble } from "./parts.js";
import { go, link } from "./router.js";
import { post, randomKey } from "./session.js";
import { clip, visible } from "./text.js";

/** Creates a conversation with an agent, says `text` in it if there is one, and shows it. */
export async function start(agent, text) {
  const id = `${agent.toLowerCase().replace(/[^a-z0-9_.-]+/g, "-").slice(0, 40)}-${randomKey().slice(0, 8)}`;
  await post("/v1/conversations", { id, agent });
  if (text) await post(`${pathOf(id)}/messages`, { text, message_id: randomKey() }, { key: null });
  go(link("c", id));
}

const TRIES = [
  ["Approve a mail", "The agent wants to send an e-mail. You decide, and may change it first.", "Please send a mail"],
  ["Answer a question", "A call that only a person can answer, with a form.", "Choose a seat for me"],
  ["Watch a tool run", "End the node while it runs: the call goes on as attempt 2.", "Look up the weather"],
];

/** Three things to try, as far as there are agents. */
export function ThreeThings({ agents }) {
  const [error, setError] = useState();
  const run = (agent, text) => start(agent, text).catch(setError);
  const hasDemo = agents.some(({ name }) => name === "demo");
  const cards = hasDemo ? TRIES.map(([title, about, text]) => [title, about, () => run("demo", text)]) :
    agents.slice(0, 3).map(({ name, description }) => [`Talk to ${clip(name, 40)}`, description ?? "A new conversation.", () => run(name)]);
  if (cards.length === 0) {
    return html`<p>There is no agent yet. Define one:</p>
      <pre class="snippet" tabindex="0">${`curl -X PUT --json '{"model": {"provider": "scripted", "script": [{"text": "Hello."}]}}' \\\n  ${location.origin}/v1/agents/hello`}</pre>`;
  }
  return html`<ul class="tries">${cards.map(([title, about, act]) => html`<li key=${title}><button type="button" onClick=${act}>
    <strong>${visible(title)}</strong><span>${visible(clip(about, 160))}</span><${Icon} name="send" /></button></li>`)}</ul><${Trouble} error=${error} />`;
}
