// The views of the console, in the order of its navigation.

/** A view is the module of its `name` in `views/`, which exports `View`, and a line here; the node's file
 * `config.json` names those that its listener has. `path` is the first part of its fragment; with an `icon` it is
 * in the navigation, for whom has one of its `roles`. `partOf` names the view that the node's list must have, if it
 * is another. */
export const VIEWS = [
  { name: "inbox", path: "inbox", title: "Inbox", icon: "inbox", roles: "user approver backend auditor" },
  { name: "conversations", path: "conversations", title: "Conversations", icon: "chat", roles: "user backend auditor" },
  { name: "conversation", path: "c", title: "Conversation", partOf: "conversations" },
  { name: "agents", path: "agents", title: "Agents", icon: "agents", roles: "user backend author tenant-admin auditor" },
  { name: "schedules", path: "schedules", title: "Schedules", icon: "clock", roles: "user backend auditor" },
  { name: "webhooks", path: "webhooks", title: "Webhooks", icon: "bell", roles: "tenant-admin" },
  { name: "erasures", path: "erasures", title: "Erasures", icon: "eraser", roles: "tenant-admin" },
  { name: "cluster", path: "cluster", title: "Cluster", icon: "cluster", roles: "operator" },
  { name: "queues", path: "queues", title: "Queues", icon: "stack", roles: "operator" },
  { name: "why", path: "why", title: "Why" },
];

const isShown = (view, names) => names.includes(view.partOf ?? view.name);

/** The views of the navigation, as far as the caller may use them: all of them until that is known. */
export const inNavigation = (names, roles) => {
  const all = VIEWS.filter((view) => view.icon && isShown(view, names));
  const usable = all.filter((view) => view.roles.split(" ").some((role) => roles?.includes(role)));
  return usable.length > 0 ? usable : all;
};

/** The view for a path; if there is none, the first of the navigation. */
export const viewAt = (path, names, roles) =>
  path === "" ? inNavigation(names, roles)[0] : VIEWS.find((view) => view.path === path && isShown(view, names));

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
