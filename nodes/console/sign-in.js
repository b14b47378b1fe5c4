// Signing in: a pasted key or token, or an OpenID provider by the code flow with PKCE.
import { html, useId, useState } from "./html.js";
import { Icon, Trouble } from "./parts.js";
import { explain, get, setCredential } from "./session.js";

const PENDING = "abide-sign-in";

const base64url = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** The challenge of a verifier, RFC 7636. */
export async function challengeOf(verifier) {
  return base64url(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
}

const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));
const redirectUri = () => `${location.origin}${location.pathname}`;

async function discover(issuer) {
  const response = await fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (!response.ok) throw new Error("The provider's configuration cannot be read.");
  const found = await response.json();
  if (found.issuer !== issuer) throw new Error("The provider says that it is another one.");
  return found;
}

/** Leaves the page for the provider's; `finishSignIn` goes on when it comes back. */
async function begin({ issuer, client_id, scope, resource }) {
  if (!crypto.subtle) throw new Error("The browser allows this on https and localhost only.");
  const { authorization_endpoint } = await discover(issuer);
  const [state, verifier] = [random(), random()];
  const pending = { issuer, state, verifier, hash: location.hash };
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  const url = new URL(authorization_endpoint);
  const query = { response_type: "code", client_id, redirect_uri: redirectUri(), scope, state,
    code_challenge: await challengeOf(verifier), code_challenge_method: "S256", ...(resource && { resource }) };
  Object.entries(query).forEach(([name, value]) => url.searchParams.set(name, value));
  location.assign(url);
}

/** What a failed return from the provider says; shown by the sign-in. */
let failure;

/** Takes the code that the provider has sent the page back with, if it has. */
export async function finishSignIn(config) {
  const query = new URLSearchParams(location.search);
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "null");
  if (!pending || !query.has("state")) return;
  sessionStorage.removeItem(PENDING);
  // The code is in no history and in no copied address.
  history.replaceState(null, "", `${location.pathname}${pending.hash}`);
  try {
    if (query.get("state") !== pending.state) throw new Error("The answer belongs to another sign-in.");
    if (query.has("error")) throw new Error(query.get("error_description") ?? query.get("error"));
    const issuer = config.sign_in.issuers.find((it) => it.issuer === pending.issuer);
    if (!issuer) throw new Error("The node no longer names this provider.");
    setCredential(await exchange(issuer, { grant_type: "authorization_code", code: query.get("code"),
      redirect_uri: redirectUri(), client_id: issuer.client_id, code_verifier: pending.verifier,
      ...(issuer.resource && { resource: issuer.resource }) }));
  } catch (error) {
    failure = error.message;
  }
}

async function exchange({ issuer, token }, form) {
  const { token_endpoint } = await discover(issuer);
  const response = await fetch(token_endpoint, { method: "POST", body: new URLSearchParams(form) });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error_description ?? answer.error ?? "The provider refused the code.");
  const text = answer[token];
  if (!text) throw new Error(`The provider's answer has no ${token}.`);
  const life = Number(answer.expires_in);
  return { token: text, ...(life > 0 && { expires_at: new Date(Date.now() + life * 1_000).toISOString() }) };
}

/** The page that asks for a credential. */
export function SignIn({ config, refused }) {
  const id = useId();
  const [error, setError] = useState(failure);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token").trim();
    setBusy(true);
    try {
      await get("/v1/me", { as: { token } });
      await setCredential({ token });
    } catch (problem) {
      setError(problem.status === 401 ? "The node does not accept this credential." : explain(problem));
      setBusy(false);
    }
  };
  const leave = (issuer) => begin(issuer).catch((problem) => setError(problem.message));
  return html`<section class="sign-in" aria-labelledby=${id}><h1 id=${id}>Sign in</h1>
    ${refused && !error && html`<p class="note" role="status">Your credential has ended. What you typed stays here.</p>`}
    ${config.sign_in.issuers.map((issuer) => html`<button type="button" key=${issuer.issuer} class="primary wide"
      onClick=${() => leave(issuer)}><${Icon} name="key" />Continue with ${new URL(issuer.issuer).host}</button>`)}
    ${config.sign_in.issuers.length > 0 && html`<p class="or"><span>or</span></p>`}
    <form onSubmit=${submit}><div class="field"><label for=${`${id}-token`}>API key or token</label>
      <input id=${`${id}-token`} name="token" type="password" autocomplete="off" required placeholder="abide_…" /></div>
      <p class="note">It stays in this tab and is gone when you close it.</p>
      <${Trouble} error=${error} />
      <p class="row"><button class=${config.sign_in.issuers.length > 0 ? "plain" : "primary"} disabled=${busy}>Use it</button></p></form></section>`;
}
