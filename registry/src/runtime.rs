//! The conversations of one node, composed of their parts; how they begin, and how they end.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::agent::Agents;
use abide_actors::audit::Recorder;
use abide_actors::clock::Clock;
use abide_actors::conversation::Services;
use abide_actors::conversation_client::ConversationClient;
use abide_actors::journal::StoreError;
use abide_actors::model::Model;
use abide_actors::node_lease::NodeLease;
use abide_actors::tools::Runner;
use ractor::{Actor, ActorRef, SpawnErr};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::cluster_client::ClusterClient;
use crate::cluster_view::ClusterView;
use crate::host::{self, Host, HostMsg, LiveTable};
use crate::live::{Hub, look_out, relay};
use crate::member::{LinkStates, Member, MemberState};
use crate::membership::Membership;
use crate::membership::heartbeat::{Heartbeat, HeartbeatInputs, OnStoreTime};
use crate::membership::lease_tracker::LeaseTracker;
use crate::peers::Peers;
use crate::placement::Policy;
use crate::router::Conversations;
use crate::router::rpc_server::{RpcServer, begin_drain};
use crate::store::Store;
use crate::{alarms, suspension_metrics, takeover};

/// How many calls of other nodes may wait to be looked at; their callers have bounds of their own.
const INCOMING: usize = 4_096;
/// How long what was stopped may take to give its claims up.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a node stands on.
pub struct RuntimeDeps {
    pub me: Member,
    /// How long it may be silent before it is dead.
    pub lease: Duration,
    pub store: Arc<dyn Store>,
    pub membership: Arc<dyn Membership>,
    pub agents: Arc<dyn Agents>,
    pub model: Arc<dyn Model>,
    pub runner: Arc<Runner>,
    pub clock: Arc<dyn Clock>,
    pub passivate_after: Duration,
    pub policy: Policy,
    pub on_time: OnStoreTime,
}

impl RuntimeDeps {
    /// What its conversations work with.
    fn deps(&self, standing: Arc<NodeLease>, hub: &Hub) -> Arc<Services> {
        let work = TaskTracker::new();
        Arc::new(Services {
            standing,
            journal: self.store.clone(),
            blobs: self.store.clone(),
            audit: Recorder::new(self.store.clone(), work.clone()),
            agents: self.agents.clone(),
            live: Arc::new(hub.clone()),
            model: self.model.clone(),
            runner: self.runner.clone(),
            clock: self.clock.clone(),
            door: Arc::default(),
            passivate_after: self.passivate_after,
            work,
        })
    }

    /// What keeps its node a member.
    fn keeper(
        self,
        standing: Arc<NodeLease>,
        members: watch::Sender<Vec<Member>>,
        view: watch::Sender<Arc<ClusterView>>,
    ) -> Heartbeat {
        let Self { membership, clock, on_time, me, lease, .. } = self;
        let tenure = LeaseTracker::new(me, lease);
        Heartbeat { membership, standing, clock, on_time, tenure, members, view }
    }
}

/// Why conversations did not begin to live.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] SpawnErr),
    #[error("{0}")]
    Peers(String),
}

/// The conversations of a node, and what keeps them going. Dropping it ends them without a word.
pub struct NodeRuntime {
    pub conversations: Conversations,
    pub hub: Hub,
    /// What this node takes on.
    pub state: Arc<watch::Sender<MemberState>>,
    /// Ends when the node cannot live any longer.
    pub supervisor: JoinHandle<()>,
    host: ActorRef<HostMsg>,
    table: Arc<LiveTable>,
    membership: Arc<dyn Membership>,
    keeper: AbortOnDropHandle<()>,
    /// Whoever waits for a change waits in vain, and not in a hurry, when the keeper has ended.
    _view: watch::Sender<Arc<ClusterView>>,
    /// The conversations themselves reach it through a doorway that does not keep it.
    _door: Arc<dyn ConversationClient>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl NodeRuntime {
    /// Enters the membership, connects to the others by `connect`, and takes up what runs nowhere.
    pub async fn begin<F>(
        ground: RuntimeDeps,
        connect: impl FnOnce(ActorRef<HostMsg>, watch::Receiver<Vec<Member>>) -> F,
    ) -> Result<Self, StartError>
    where
        F: Future<Output = Result<Arc<dyn Peers>, String>>,
    {
        let hub = Hub::default();
        let standing = Arc::new(NodeLease::new(ground.me.holder.clone()));
        let deps = ground.deps(standing.clone(), &hub);
        let RuntimeDeps { me, store, membership, clock, .. } = &ground;
        let (store, membership, clock) = (store.clone(), membership.clone(), clock.clone());
        let (process, policy) = (me.process.clone(), ground.policy);
        let (state, around_state) = watch::channel(me.state);
        let first = ClusterView::new(me.holder.clone(), Vec::new(), LinkStates::default());
        let (view, seen) = watch::channel(Arc::new(first));
        let (members, known) = watch::channel(Vec::new());
        let mut keeper = ground.keeper(standing.clone(), members, view.clone());
        keeper.enter().await?;

        let table = Arc::new(LiveTable::default());
        let (incoming, calls) = mpsc::channel(INCOMING);
        let (left, leavings) = mpsc::unbounded_channel();
        let arguments =
            host::Arguments { deps: deps.clone(), table: table.clone(), incoming, left };
        let (host, supervisor) = Actor::spawn(None, Host, arguments).await?;
        let peers = connect(host.clone(), known).await.map_err(StartError::Peers)?;

        let stale = Arc::new(Notify::new());
        let around = HeartbeatInputs {
            host: host.clone(),
            table: table.clone(),
            links: peers.links(),
            state: around_state,
            stale: stale.clone(),
        };
        let cluster = ClusterClient::new(
            process,
            standing,
            membership.clone(),
            peers,
            clock.clone(),
            seen,
            stale,
        );
        let (doors, shelf) = (host.clone(), table.clone());
        let conversations =
            Conversations::new(doors, shelf, deps, store.clone(), cluster.clone(), policy);
        let door = conversations.install_client();
        let state = Arc::new(state);
        let desk = RpcServer {
            conversations: conversations.clone(),
            hub: hub.clone(),
            clock: clock.clone(),
            state: state.clone(),
        };
        let keeper = spawn(keeper.run(around));
        let _tasks = vec![
            spawn(desk.run(calls)),
            spawn(relay(hub.clone(), cluster.clone())),
            spawn(look_out(hub.clone(), store.clone(), cluster.clone())),
            spawn(alarms::run(conversations.clone(), store.clone(), clock.clone())),
            spawn(suspension_metrics::run(cluster.clone(), store.clone(), clock)),
            spawn(takeover::run(conversations.clone(), store)),
            spawn(takeover::hand_over(conversations.clone(), leavings)),
        ];
        Ok(Self {
            conversations,
            hub,
            state,
            supervisor,
            host,
            table,
            membership,
            keeper,
            _view: view,
            _door: door,
            _tasks,
        })
    }

    /// Takes no more work, lets running steps and tools finish, and hands over what they leave
    /// undone, for at most `patience`; what still runs then is cut off, and goes on elsewhere. Hooks
    /// are told what is queued for them as long as that takes no longer.
    /// Returns whether nothing had to be cut off.
    pub async fn drain(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.conversations.cluster().lease().drain();
        begin_drain(&self.state);
        // A host that has ended has nothing left to end.
        let _ = self.host.cast(HostMsg::Leave);
        let in_time = timeout_at(until, self.table.emptied()).await.is_ok();
        if !in_time {
            let _ = self.host.cast(HostMsg::Stop);
            let _ = tokio::time::timeout(LAST_WORDS, self.table.emptied()).await;
        }
        let told = timeout_at(until, self.conversations.flush_hooks()).await.is_ok();
        self.state.send_replace(MemberState::Drained);
        in_time && told
    }

    /// Leaves the membership: what this node may still hold is free at once.
    pub async fn leave(&self) {
        // It would take this for a burial, and come back.
        self.keeper.abort();
        let me = self.conversations.cluster().lease().me();
        let leaving = self.membership.leave(&me);
        if !matches!(tokio::time::timeout(LAST_WORDS, leaving).await, Ok(Ok(()))) {
            tracing::warn!("the membership could not be left; the lease runs out");
        }
    }
}

impl Drop for NodeRuntime {
    fn drop(&mut self) {
        self.host.kill();
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}
