// The views of the console, in the order of its navigation.

/** A view is the module of its `name` in `views/`, which exports `View`, and a line here; the node's file
 * `config.json` names those that its listener has. `path` is the first part of its fragment; with an `icon` it is
 * in the navigation. `partOf` names the view that the node's list must have, if it is another. */
export const VIEWS = [
  { name: "inbox", path: "inbox", title: "Inbox", icon: "inbox" },
  { name: "conversations", path: "conversations", title: "Conversations", icon: "chat" },
  { name: "conversation", path: "c", title: "Conversation", partOf: "conversations" },
  { name: "agents", path: "agents", title: "Agents", icon: "agents" },
  { name: "schedules", path: "schedules", title: "Schedules", icon: "clock" },
  { name: "webhooks", path: "webhooks", title: "Webhooks", icon: "bell" },
  { name: "queues", path: "queues", title: "Queues", icon: "stack" },
  { name: "cluster", path: "cluster", title: "Cluster", icon: "cluster" },
  { name: "why", path: "why", title: "Why" },
];

const isShown = (view, names) => names.includes(view.partOf ?? view.name);

/** The view for a path, the first one if there is none. */
export const viewAt = (path, names) => {
  const shown = VIEWS.filter((view) => isShown(view, names));
  return shown.find((view) => view.path === path) ?? (path === "" ? shown[0] : undefined);
};

const modules = new Map();
let failures = 0;

/** The module of a view, if it is loaded. */
export const loaded = (view) => modules.get(view.name);

/** Loads the module of a view. */
export async function load({ name }) {
  try {
    // Browsers remember the address of a module that could not be loaded.
    const module = modules.get(name) ?? await import(`./views/${name}.js${failures ? `?${failures}` : ""}`);
    if (!modules.has(name)) modules.set(name, module);
    return modules.get(name);
  } catch (error) {
    failures += 1;
    throw error;
  }
}

/** Loads all views that the page may come to, so that it needs no node for them any more. */
export async function loadAll(names) {
  for (const view of VIEWS.filter((it) => isShown(it, names))) await load(view).catch(() => undefined);
}
