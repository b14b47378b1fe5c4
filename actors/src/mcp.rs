//! MCP: the servers whose tools agents use, one connection to each for the whole node.
//!
//! Nothing here fails a model step: a server that is away keeps its last listing in use, and without
//! one its tools are absent. A call is sent once and never again by itself.

mod call;
mod connection;
mod elicitation;
mod listing;
mod result;
mod server;
mod session;
mod stdio;
mod tools;
mod transport;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde_json::Value;

use crate::agent::Definition;
use crate::signed_post::{CONNECT_TIMEOUT, IDLE_TIMEOUT};
use crate::tools::native::ToolReturn;
use crate::tools::runner::{Env, Run};
use crate::tools::tool::{Target, Tool};
pub use elicitation::check_answer;
pub use listing::Listing;
pub use server::{McpServer, McpToolRef, McpToolSet, McpTransport};
use session::McpSession;
pub(crate) use tools::tools;

/// The longest name of a tool that a server may have; some write paths into them.
pub(crate) const LONGEST_TOOL_NAME: usize = 256;
/// Distinct servers of a node. Each may have a connection or a process, and keeps its listing.
const MOST_LINKS: usize = 128;
/// One is what a missing slash takes.
const MOST_REDIRECTS: usize = 3;

/// What is known of an agent's servers, by name. One that is absent could not be listed.
pub type Listings = BTreeMap<String, Arc<Listing>>;

/// The node's connections to MCP servers. Dropping it closes them and ends the processes.
pub struct Mcp {
    links: Mutex<HashMap<String, Arc<McpSession>>>,
    client: Client,
    variables: Env,
}

impl Mcp {
    /// Connects to nothing yet. Follows redirects within one origin only, uses no proxy.
    pub fn new(variables: Env) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .redirect(within_origin())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build()?;
        Ok(Self { links: Mutex::default(), client, variables })
    }

    /// The listings of an agent's servers, all asked at once; waits for none of them longer than
    /// its `timeout`, and for one that was listed before not longer than a second.
    pub async fn listings(&self, definition: &Definition) -> Listings {
        let servers = servers(definition).into_iter();
        let asked = servers.map(|(name, server)| async move {
            let link = self.link(server)?;
            Some((name.to_owned(), link.listing().await?))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The same without asking anybody; `None` if asking would tell more.
    pub fn known(&self, definition: &Definition) -> Option<Listings> {
        let mut known = Listings::new();
        for (name, server) in servers(definition) {
            if let Some(listing) = self.link(server).map_or(Some(None), |link| link.known())? {
                known.insert(name.to_owned(), listing);
            }
        }
        Some(known)
    }

    /// The last listings, however old they are.
    pub fn last(&self, definition: &Definition) -> Listings {
        let last = |(name, server): (&str, &Arc<McpServer>)| {
            Some((name.to_owned(), self.link(server)?.last()?))
        };
        servers(definition).into_iter().filter_map(last).collect()
    }

    /// Runs a call of a tool, once. Every failure is a result; none of them shows a secret.
    pub(crate) async fn call(
        &self,
        pick: &McpToolRef,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> ToolReturn {
        match self.link(&pick.server) {
            Some(link) => call::call(&link, pick, run, report).await,
            None => ToolReturn::error("too many MCP servers are in use"),
        }
    }

    /// The way to a server, shared by all that say the same of it; `None` if there are too many.
    fn link(&self, server: &Arc<McpServer>) -> Option<Arc<McpSession>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(&server.key) {
            return Some(Arc::clone(link));
        }
        if links.len() >= MOST_LINKS {
            let idle = links.iter().filter(|(_, link)| Arc::strong_count(link) == 1);
            let oldest = idle.min_by_key(|(_, link)| link.used()).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else {
                tracing::warn!(server = server.name, "{MOST_LINKS} MCP servers are in use");
                return None;
            };
            links.remove(&oldest);
        }
        let link = McpSession::new(Arc::clone(server), self.client.clone(), self.variables.clone());
        links.insert(server.key.clone(), Arc::clone(&link));
        Some(link)
    }
}

/// Older servers send `/mcp` to `/mcp/`. Anywhere else a redirect is an answer, and a wrong one.
fn within_origin() -> Policy {
    Policy::custom(|attempt| {
        let same = attempt.previous().last().map(Url::origin) == Some(attempt.url().origin());
        let repeats = matches!(attempt.status().as_u16(), 307 | 308);
        match same && repeats && attempt.previous().len() <= MOST_REDIRECTS {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}

/// The servers whose tools the agent has, by name.
fn servers(definition: &Definition) -> BTreeMap<&str, &Arc<McpServer>> {
    let templates = definition.sets.iter().map(|set| &set.template);
    let tools = definition.tools.iter().chain(templates);
    let picks = tools.filter_map(|tool| match &tool.target {
        Some(Target::Mcp(pick)) => Some(pick),
        Some(Target::Http(_) | Target::Native(_) | Target::Builtin(_) | Target::Agent(_))
        | None => None,
    });
    picks.map(|pick| (pick.server.name.as_str(), &pick.server)).collect()
}

/// Whether the agent has tools of MCP servers.
pub(crate) fn uses(definition: &Definition) -> bool {
    !definition.sets.is_empty() || definition.tools.iter().any(is_listed)
}

/// Whether that name may be of a tool that only a listing tells of.
pub(crate) fn may_have(definition: &Definition, name: &str) -> bool {
    let here = |tool: &Tool| tool.name == name && !is_listed(tool);
    uses(definition) && !definition.tools.iter().any(here)
}

fn is_listed(tool: &Tool) -> bool {
    matches!(tool.target, Some(Target::Mcp(_)))
}

#[cfg(test)]
mod tests;
