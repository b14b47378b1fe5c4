// The credential of a page: asked for when it is needed, kept until it is about to expire.

/** A credential is replaced this long before it expires, or after half of a shorter life. */
const REFRESH_BEFORE_MS = 30_000;

/** A `fetch` that sends the credential that `token` returns: a text, or `{token, expires_at}`, or a
 * promise of one. It is called again before `expires_at`, and when a node has refused the credential. */
export function withCredential(fetch, token) {
  /** A promise of the credential, which all requests share. */
  let current;
  const read = async () => {
    const given = await token();
    const { token: text, expires_at } = typeof given === "string" ? { token: given } : given;
    const left = expires_at === undefined ? Infinity : Date.parse(expires_at) - Date.now();
    return { text, until: Date.now() + Math.max(left - REFRESH_BEFORE_MS, left / 2) };
  };
  const renew = (old) => {
    // Several requests may find the same credential too old: the first asks for the next one.
    if (current === old) current = read();
    return current;
  };
  const valid = async () => {
    const known = (current ??= read());
    // One that could not be had is asked for again.
    const credential = await known.catch(() => undefined);
    return credential && Date.now() < credential.until ? credential : renew(known);
  };
  return async (url, init = {}) => {
    const send = ({ text }) =>
      fetch(url, { ...init, headers: { ...init.headers, authorization: `Bearer ${text}` } });
    const credential = await valid();
    const asked = current;
    const response = await send(credential);
    return response.status === 401 ? send(await renew(asked)) : response;
  };
}
