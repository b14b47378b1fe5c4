// The console: its frame, which view is in it, and who is signed in.
import { html, render, useEffect, useErrorBoundary, useState } from "./html.js";
import { useNotices } from "./notices.js";
import { Badge, Dialog, Empty, Icon, Loading, NotYet, Notices } from "./parts.js";
import { fromQuery, link, parse, useRoute } from "./router.js";
import { change, credential, loadConfig, loadMe, setCredential, useSession } from "./session.js";
import { SignIn, finishSignIn } from "./sign-in.js";
import { clip, duration, visible } from "./text.js";
import { inNavigation, load, loadAll, loaded, viewAt } from "./views.js";

const THEME = "abide-theme";
const THEMES = ["light dark", "light", "dark"];
const KEYS = [["j, k", "the next, the previous entry"], ["Enter", "open its conversation"], ["a", "approve the entry"],
  ["d", "deny it"], ["e", "edit its arguments"], ["x", "approve all that are like it"], ["/", "filter"], ["g i, g c, g a", "inbox, conversations, agents"], ["g s, g w, g q, g n", "schedules, webhooks, queues, cluster"], ["?", "these keys"]];

function setTheme(theme) {
  document.documentElement.style.colorScheme = theme;
}

const isTyping = (target) => target.closest?.("input, textarea, select, dialog, [contenteditable]");

/** Keys of all views: `?`, and `g` with a view's letter. */
function useKeys(showKeys) {
  useEffect(() => {
    let wasG = 0;
    const press = (event) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "?") showKeys(true);
      const target = { i: "inbox", c: "conversations", a: "agents", s: "schedules", w: "webhooks", q: "queues", n: "cluster" }[event.key];
      if (Date.now() - wasG < 1_000 && target) {
        event.stopImmediatePropagation();
        location.hash = link(target);
      }
      wasG = event.key === "g" ? Date.now() : 0;
    };
    addEventListener("keydown", press, { capture: true });
    return () => removeEventListener("keydown", press, { capture: true });
  }, []);
}

function Navigation({ current, names, roles }) {
  return html`<nav aria-label="Views">${inNavigation(names, roles).map((view) => html`<a key=${view.name} href=${link(view.path)} title=${view.title}
    aria-current=${current?.name === view.name || current?.partOf === view.name ? "page" : undefined}>
    <${Icon} name=${view.icon} /><span>${view.title}</span></a>`)}</nav>`;
}

function ThemeButton() {
  const [theme, choose] = useState(localStorage.getItem(THEME) ?? THEMES[0]);
  useEffect(() => setTheme(theme), [theme]);
  const turn = () => {
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem(THEME, next);
    choose(next);
  };
  const name = theme === THEMES[0] ? "as the system" : theme;
  return html`<button type="button" class="icon-button" onClick=${turn} title=${`Colours: ${name}`} aria-label=${`Colours: ${name}`}>
    <${Icon} name="theme" /></button>`;
}

function Account({ me, onSignIn }) {
  const { config } = useSession();
  if (!config.sign_in.required) return html`<span class="account quiet" title="The node authenticates nobody">open node</span>`;
  if (!me) return html`<button type="button" class="plain" onClick=${onSignIn}><${Icon} name="key" />Sign in</button>`;
  return html`<span class="account" title=${`${me.subject}, ${me.roles.join(", ")}`}><span class="name">${visible(clip(me.name ?? me.subject, 24))}</span>
    ${me.tenant && html`<${Badge}>${me.tenant}<//>`}
    <button type="button" class="link" onClick=${() => setCredential()}>Sign out</button></span>`;
}

/** Bars about the node and the clock, above every view. */
function Bars() {
  const { away, skew } = useSession();
  return html`${away && html`<p class="bar bad" role="alert">The node does not answer. The page goes on trying, and keeps what you typed.</p>`}
    ${Math.abs(skew) > 60_000 && html`<p class="bar wait" role="status">This device’s clock is ${duration(Math.round(Math.abs(skew) / 60_000) * 60_000)} ${skew > 0 ? "behind" : "ahead"}. Times here are the node’s.</p>`}`;
}

/** The view in its frame. One of the navigation stays the same when another of its entries is opened. */
function View({ view, route }) {
  const [error, reset] = useErrorBoundary((thrown) => console.error(thrown));
  const [module, show] = useState(loaded(view));
  const [trouble, setTrouble] = useState();
  const attempt = () => {
    setTrouble(undefined);
    load(view).then(show, () => setTrouble("The node did not send this view."));
  };
  useEffect(() => {
    if (!module) attempt();
  }, []);
  useEffect(reset, [route]);
  if (error) return html`<${Empty} as="h1" title="This view has a mistake"><p>${String(error.message ?? error)}</p><//>`;
  if (trouble) return html`<${NotYet} title=${view.title} error=${trouble} retry=${attempt} />`;
  return module ? html`<${module.View} route=${route} />` : html`<${Loading} />`;
}

function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}><dl class="keys">${KEYS.map(([keys, what]) => html`<div>
    <dt>${keys.split(/(, )/).map((key) => (key === ", " ? key : html`<kbd>${key}</kbd>`))}</dt><dd>${what}</dd></div>`)}</dl>
    <p class="row end"><button type="button" class="primary" onClick=${onClose}>Close</button></p><//>`;
}

function Console() {
  const { config, me, refused, epoch } = useSession();
  const route = useRoute();
  const notices = useNotices();
  const [help, showKeys] = useState(false);
  const [signingIn, signIn] = useState(false);
  useKeys(showKeys);
  const view = viewAt(route.view, config.views, me?.roles);
  useEffect(() => {
    document.title = `${route.id ? `${clip(route.id, 40)} · ` : ""}${view?.title ?? "Not found"} · Abide`;
  }, [view, route]);
  useEffect(() => signIn(false), [epoch]);
  const mustSignIn = config.sign_in.required && (refused || me === null);
  return html`<a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    }}>Skip to the content</a>
    <header class="top"><a class="brand" href="#/"><svg viewBox="0 0 24 24" aria-hidden="true"><path d="M4 20V10a8 8 0 0 1 16 0v10M9 20v-9a3 3 0 0 1 6 0v9" /></svg>Abide</a>
      <${Navigation} current=${view} names=${config.views} roles=${me?.roles} />
      <div class="top-end"><${Account} me=${me} onSignIn=${() => signIn(true)} /><${ThemeButton} />
        <button type="button" class="icon-button" aria-label="Keys" title="Keys (?)" onClick=${() => showKeys(true)}>?</button></div></header>
    <main id="main" tabindex="-1"><${Bars} />
      ${mustSignIn || signingIn ? html`<${SignIn} config=${config} refused=${refused && credential() !== undefined} />` :
        me === undefined && config.sign_in.required ? html`<${Loading} />` :
        view ? html`<${View} key=${`${view.name}/${view.icon ? "" : route.id ?? ""}/${epoch}`} view=${view} route=${route} />` :
        html`<${Empty} as="h1" title="There is nothing here"><p><a href="#/">To the first page</a></p><//>`}</main>
    <${Notices} notices=${notices} />
    ${help && html`<${Help} onClose=${() => showKeys(false)} />`}`;
}

setTheme(localStorage.getItem(THEME) ?? THEMES[0]);
const config = await loadConfig();
change({ config });
await finishSignIn(config);
const old = fromQuery(location.search);
if (old) history.replaceState(null, "", `${location.pathname}${old}`);
const first = viewAt(parse(location.hash).view, config.views);
if (first) await load(first).catch(() => undefined);
loadMe();
const root = document.getElementById("console");
root.replaceChildren();
render(html`<${Console} />`, root);
loadAll(config.views);
