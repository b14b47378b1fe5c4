//! MCP clients: one session for each server whose tools a tenant's agents on this node use.
//!
//! An unavailable server never fails a model step: its last listing stays in use, and without one
//! its tools are absent. A call is sent once and never repeated automatically after an error.

mod call;
mod connection;
mod elicitation;
mod listing;
mod result;
mod session;
mod sse_server;
mod stdio;
mod tools;
mod transport;
mod unavailable;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::Tenant;
use futures::future::join_all;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde_json::Value;

use crate::definition::{Definition, McpServer, McpToolRef, Target, Tool};
use crate::environment::Env;
use crate::exec::Shell;
use crate::outbound::ClientPair;
use crate::signed_post::{CONNECT_TIMEOUT, IDLE_TIMEOUT};
use crate::tools::{Run, ToolReturn};
use connection::Connector;
pub use elicitation::check_answer;
pub use listing::Listing;
use session::McpSession;
pub(crate) use tools::tools;

/// The longest tool name of a server; some servers write paths into them.
pub(crate) const MAX_SERVER_TOOL_NAME_BYTES: usize = 256;
/// Distinct servers of a node. Each may have a connection or a process, and a listing in memory.
const MAX_SESSIONS: usize = 128;
/// A missing slash costs one redirect.
const MAX_REDIRECTS: usize = 3;

/// The listings of an agent's servers, by name. A server without one could not be listed.
pub type Listings = BTreeMap<String, Arc<Listing>>;

/// The node's sessions with MCP servers. Dropping it closes connections and ends processes.
pub struct Mcp {
    sessions: Mutex<HashMap<String, Arc<McpSession>>>,
    connector: Arc<Connector>,
}

impl Mcp {
    /// Makes the client without connecting. It follows redirects only within one origin and uses no
    /// proxy. The shell starts the servers that are programs, each in a directory of its own below
    /// `directory`.
    pub fn new(env: Env, shell: Arc<Shell>, directory: PathBuf) -> Result<Self, reqwest::Error> {
        let clients = ClientPair::build(|| {
            Client::builder()
                .redirect(within_origin())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
        })?;
        let connector = Arc::new(Connector { clients, env, shell, directory });
        Ok(Self { sessions: Mutex::default(), connector })
    }

    /// Fetches the listings of an agent's servers concurrently. Waits for each at most its
    /// `timeout`, and at most a second if an older listing is known.
    pub async fn listings(&self, tenant: &Tenant, definition: &Definition) -> Listings {
        let servers = servers(definition).into_iter();
        let fetches = servers.map(|(name, server)| async move {
            let session = self.session(tenant, server)?;
            Some((name.to_owned(), session.listing().await?))
        });
        join_all(fetches).await.into_iter().flatten().collect()
    }

    /// The servers that cannot be used now, and why, one line each: they are in use, and a model is
    /// asked without their tools or with those that were listed last.
    pub fn problems(&self) -> Vec<String> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = |session: &Arc<McpSession>| {
            Some(format!("mcp: {}: {}", session.server.name, session.problem()?))
        };
        let mut problems: Vec<String> = sessions.values().filter_map(problem).collect();
        problems.sort();
        problems
    }

    /// The listings without contacting a server; `None` if a server should be contacted because its
    /// listing is not fresh.
    pub fn cached_listings(&self, tenant: &Tenant, definition: &Definition) -> Option<Listings> {
        let mut known = Listings::new();
        for (name, server) in servers(definition) {
            let session = self.session(tenant, server);
            if let Some(listing) = session.map_or(Some(None), |session| session.cached_listing())? {
                known.insert(name.to_owned(), listing);
            }
        }
        Some(known)
    }

    /// The last known listings, however old they are.
    pub fn last_listings(&self, tenant: &Tenant, definition: &Definition) -> Listings {
        let last = |(name, server): (&str, &Arc<McpServer>)| {
            Some((name.to_owned(), self.session(tenant, server)?.last_listing()?))
        };
        servers(definition).into_iter().filter_map(last).collect()
    }

    /// Calls a tool once. Every failure becomes a result, and none reveals a secret.
    pub(crate) async fn call(
        &self,
        tool_ref: &McpToolRef,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> ToolReturn {
        if let Err(error) = tool_ref.server.check() {
            let server = &tool_ref.server.name;
            tracing::error!(server, %error, "outbound request refused");
            let message = format!("the MCP server may not be called: {}", error.reason());
            return ToolReturn::error(message);
        }
        match self.session(&run.conversation.tenant(), &tool_ref.server) {
            Some(session) => call::call(&session, tool_ref, run, report).await,
            None => ToolReturn::error("too many MCP servers are in use"),
        }
    }

    /// The session with a server, shared by all definitions of a tenant that configure the server
    /// identically; `None` if all sessions are in use.
    fn session(&self, tenant: &Tenant, server: &McpServer) -> Option<Arc<McpSession>> {
        let key = session_key(tenant, server);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get(&key) {
            return Some(Arc::clone(session));
        }
        if sessions.len() >= MAX_SESSIONS {
            let idle = sessions.iter().filter(|(_, session)| Arc::strong_count(session) == 1);
            let oldest =
                idle.min_by_key(|(_, session)| session.last_used()).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else {
                tracing::warn!(
                    server = server.name,
                    "MCP server not used: {MAX_SESSIONS} others are in use"
                );
                return None;
            };
            sessions.remove(&oldest);
        }
        let server = Arc::new(McpServer { key: key.clone(), ..server.clone() });
        let session = McpSession::new(server, Arc::clone(&self.connector));
        sessions.insert(key, Arc::clone(&session));
        Some(session)
    }
}

/// Identifies a session: a server keeps what it likes for its client, and so is a client of its own
/// to each tenant. Within one, what the operator's definitions may reach is nothing to the others. A
/// server's key is JSON, and begins with no tenant.
fn session_key(tenant: &Tenant, server: &McpServer) -> String {
    if *tenant == Tenant::default() && !server.outbound.is_bound() {
        server.key.clone()
    } else {
        format!("{tenant} {}", server.key)
    }
}

/// Older servers redirect `/mcp` to `/mcp/`. Any other redirect is treated as a wrong answer.
fn within_origin() -> Policy {
    Policy::custom(|attempt| {
        let same = attempt.previous().last().map(Url::origin) == Some(attempt.url().origin());
        let repeats = matches!(attempt.status().as_u16(), 307 | 308);
        if same && repeats && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// The servers whose tools the agent has and that it may use, by name.
fn servers(definition: &Definition) -> BTreeMap<&str, &Arc<McpServer>> {
    let prototypes = definition.sets.iter().map(|set| &set.prototype);
    let tools = definition.tools.iter().chain(prototypes);
    let tool_refs = tools.filter_map(|tool| match tool.target() {
        Some(Target::Mcp(tool_ref)) => Some(tool_ref),
        Some(
            Target::Http(_)
            | Target::Native(_)
            | Target::Builtin(_)
            | Target::Agent(_)
            | Target::Queue(_),
        )
        | None => None,
    });
    let servers = tool_refs.map(|tool_ref| (tool_ref.server.name.as_str(), &tool_ref.server));
    let servers: BTreeMap<&str, &Arc<McpServer>> = servers.collect();
    servers.into_iter().filter(|(_, server)| may_use(server)).collect()
}

fn may_use(server: &McpServer) -> bool {
    let error = server.check().err();
    if let Some(error) = &error {
        tracing::warn!(server = server.name, %error, "MCP server left out: not permitted");
    }
    error.is_none()
}

/// Whether the agent has tools of MCP servers.
pub(crate) fn uses_mcp(definition: &Definition) -> bool {
    !definition.sets.is_empty() || definition.tools.iter().any(is_listed)
}

/// Whether a tool of that name may exist that only a listing can show.
pub(crate) fn may_list(definition: &Definition, name: &str) -> bool {
    let here = |tool: &Tool| tool.name == name && !is_listed(tool);
    uses_mcp(definition) && !definition.tools.iter().any(here)
}

fn is_listed(tool: &Tool) -> bool {
    matches!(tool.target(), Some(Target::Mcp(_)))
}

#[cfg(test)]
mod tests;
