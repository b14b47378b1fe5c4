// What the pages have in common.

export const query = new URLSearchParams(location.search);

/** Notes that the page has run a tool, also for the page that is loaded after it. */
export function note(tool) {
  sessionStorage.ran = [sessionStorage.ran, tool].filter(Boolean).join(' ');
}
