//! What all conversations of a node share, and the executors of their calls among it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::agents::Agents;
use crate::audit::Recorder;
use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::conversation_client::ClientSlot;
use crate::credentials::Credentials;
use crate::environment::Env;
use crate::external::{CallbackIssuer, NoCallbacks, QueueArrivals};
use crate::hooks::HookCaller;
use crate::journal::Journal;
use crate::live::LiveSink;
use crate::model::Model;
use crate::near_alarms::NearAlarms;
use crate::node_lease::NodeLease;
use crate::notices::NearNotices;
use crate::tools::mcp::Mcp;
use crate::tools::runner::RunnerError;
use crate::tools::{BuiltinServices, Extensions, Runner};
use crate::webhooks::Webhooks;
use crate::workspace::Workspaces;

/// The dependencies of every conversation of a node.
pub struct Services {
    pub lease: Arc<NodeLease>,
    pub journal: Arc<dyn Journal>,
    pub blobs: Arc<dyn Blobs>,
    pub audit: Recorder,
    pub agents: Arc<dyn Agents>,
    pub live: Arc<dyn LiveSink>,
    pub model: Arc<dyn Model>,
    pub runner: Arc<Runner>,
    pub hooks: Arc<HookCaller>,
    pub mcp: Arc<Mcp>,
    pub workspaces: Arc<Workspaces>,
    pub clock: Arc<dyn Clock>,
    pub credentials: Arc<dyn Credentials>,
    /// Where conversations announce that they are to be woken soon.
    pub near_alarms: NearAlarms,
    /// The webhooks to which a commit owes notices.
    pub webhooks: Arc<dyn Webhooks>,
    /// Where conversations announce that they owe notices.
    pub near_notices: NearNotices,
    /// Where conversations announce the calls that go into queues.
    pub queue_arrivals: QueueArrivals,
    pub callbacks: Arc<dyn CallbackIssuer>,
    /// The way to other conversations.
    pub conversations: Arc<ClientSlot>,
    /// How long an actor with nothing to do stays in memory.
    pub passivate_after: Duration,
    /// The running model calls and tool runs, so that a drain can wait for them.
    pub work: TaskTracker,
}

/// What carries out calls outside of the conversation: tools, hooks, MCP servers and files.
///
/// One set for the whole program: each of them pools its connections. Cheap to clone.
#[derive(Clone)]
pub struct Executors {
    pub runner: Arc<Runner>,
    pub hooks: Arc<HookCaller>,
    pub mcp: Arc<Mcp>,
    pub workspaces: Arc<Workspaces>,
    /// Makes the callbacks of HTTP tools; none unless the program sets it.
    pub callbacks: Arc<dyn CallbackIssuer>,
}

impl Executors {
    /// Executors that read secrets from the environment of the process. The MCP servers that are
    /// programs work below the directory.
    pub fn new(
        extensions: Extensions,
        builtins: BuiltinServices,
        mcp_directory: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RunnerError> {
        let env: Env = Arc::new(|name| std::env::var(name).ok());
        let hooks = extensions.hooks().clone();
        let hooks = HookCaller::new(hooks, clock.clone(), env.clone()).map_err(RunnerError)?;
        let mcp = Mcp::new(env.clone(), builtins.shell.clone(), mcp_directory);
        let mcp = Arc::new(mcp.map_err(RunnerError)?);
        let workspaces = builtins.workspaces.clone();
        let runner = Runner::new(extensions, builtins, mcp.clone(), clock, env)?;
        let (runner, hooks) = (Arc::new(runner), Arc::new(hooks));
        Ok(Self { runner, hooks, mcp, workspaces, callbacks: Arc::new(NoCallbacks) })
    }
}
