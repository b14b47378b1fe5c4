// The revisions of an agent: what each has changed since, the way back, and a share of the conversations for one.
import { html, useState } from "../../html.js";
import { notify } from "../../notices.js";
import { Badge, Confirm, Json, Loading, Trouble } from "../../parts.js";
import { useNow, usePoll } from "../../poll.js";
import { get, post, send, useSession } from "../../session.js";
import { ago, clip, visible } from "../../text.js";

const TONES = { added: "ok", removed: "bad", changed: "run" };

const at = (name, rest) => `/v1/agents/${encodeURIComponent(name)}/${rest}`;

export function Revisions({ name, newest }) {
  const { data, error, refresh } = usePoll((signal) => get(at(name, "revisions"), { signal }), `${name}@${newest}/revisions`, 0);
  const [shown, show] = useState();
  const [target, setTarget] = useState();
  const [canary, setCanary] = useState();
  const time = useNow();
  const mayDefine = useSession().me?.roles.includes("author") ?? true;
  if (!data) return error ? html`<${Trouble} error=${error} retry=${refresh} />` : html`<${Loading} />`;
  const rollBack = async () => {
    await post(at(name, "rollback"), { revision: target });
    notify(`${name} is at ${target.slice(0, 8)} again`);
  };
  const rollOut = async () => {
    await send("PUT", at(name, "rollout"), { revision: canary.revision, percent: Number(canary.percent) });
    notify(`${canary.percent} % of ${name} run on ${canary.revision.slice(0, 8)}`);
    refresh();
  };
  const endRollout = async () => {
    try {
      await send("DELETE", at(name, "rollout"));
      notify(`all of ${name} run on the newest revision`);
    } catch (problem) {
      notify(problem.message, "bad");
    }
    refresh();
  };
  return html`<ul class="rows flat revisions">${data.revisions.map(({ revision, put_at: put, newest: isNewest, rollout_percent: share }) => html`<li key=${revision} class="row-item">
      <p class="row spread"><span class="row"><code>${revision.slice(0, 8)}</code>${isNewest && html`<${Badge} tone="ok">in force<//>`}${share && html`<${Badge} tone="run">${share} % of the conversations<//>`}
        ${put && html`<time class="note" datetime=${put}>${ago(time - Date.parse(put))}</time>`}</span>
        ${!isNewest && html`<span class="row"><button type="button" class="plain" aria-expanded=${shown === revision} onClick=${() => show(shown === revision ? undefined : revision)}>Compare</button>
          ${mayDefine && html`${share && html`<button type="button" class="plain" onClick=${endRollout}>End the rollout</button>`}
          <button type="button" class="plain" onClick=${() => setCanary({ revision, percent: share ?? 10 })}>Roll out …</button>
          <button type="button" class="plain" onClick=${() => setTarget(revision)}>Roll back …</button>`}</span>`}</p>
      ${shown === revision && html`<${Difference} name=${name} from=${revision} to=${newest} />`}</li>`)}</ul>
    ${target && html`<${Confirm} title="Roll back" verb="Roll back" act=${rollBack} onClose=${() => setTarget(undefined)}>
      <p>New turns of <b>${visible(clip(name, 80))}</b> run on <code>${target.slice(0, 8)}</code>. Those that run go on as they began.</p><//>`}
    ${canary && html`<${Confirm} title="Roll out" verb="Roll out" act=${rollOut} onClose=${() => setCanary(undefined)}>
      <label>Percent of the conversations <input type="number" min="1" max="100" step="1" required value=${canary.percent} onInput=${(event) => setCanary({ ...canary, percent: event.target.value })} /></label>
      <p>New turns of these conversations of <b>${visible(clip(name, 80))}</b> run on <code>${canary.revision.slice(0, 8)}</code>, all others on the newest revision. A larger share keeps those of a smaller one.</p><//>`}`;
}

/** What has changed from one revision to another. */
function Difference({ name, from, to }) {
  const { data, error, refresh } = usePoll((signal) => get(at(name, `revisions/${from}/diff/${to}`), { signal }), `${from}..${to}`, 0);
  if (!data) return error ? html`<${Trouble} error=${error} retry=${refresh} />` : html`<${Loading} />`;
  if (data.changes.length === 0) return html`<p class="note">They say the same.</p>`;
  return html`<dl class="values difference">${data.changes.map(({ path, change, from: before, to: after }) => html`<div key=${path.join("/")}>
    <dt><${Badge} tone=${TONES[change]}>${change}<//> <code>${visible(clip(path.join(" › "), 200))}</code></dt>
    <dd>${before !== undefined && html`<${Json} value=${before} label="before" />`}${after !== undefined && html`<${Json} value=${after} label="since then" />`}</dd></div>`)}</dl>`;
}
