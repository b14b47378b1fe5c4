// The views of the console, in the order of its navigation. A view is a module of `views/` and a line here;
// the node's file `config.json` names those that its listener has.
import * as agents from "./views/agents.js";
import * as cluster from "./views/cluster.js";
import * as conversation from "./views/conversation.js";
import * as conversations from "./views/conversations.js";
import * as inbox from "./views/inbox.js";
import * as why from "./views/why.js";

/** Each view exports `name`, `path` (the first part of its fragment), `title` and `View`; with an `icon` it is
 * in the navigation. `partOf` names the view that the node's list must have, if it is another. */
export const VIEWS = [inbox, conversations, conversation, agents, cluster, why];

/** The view for a path, the first one if there is none. */
export const viewAt = (path, names) => {
  const shown = VIEWS.filter((view) => names.includes(view.partOf ?? view.name));
  return shown.find((view) => view.path === path) ?? (path === "" ? shown[0] : undefined);
};
