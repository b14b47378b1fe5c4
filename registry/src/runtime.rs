//! Starts and stops all that one node needs to run conversations.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::agents::Agents;
use abide_actors::audit::Recorder;
use abide_actors::clock::Clock;
use abide_actors::conversation_client::ConversationClient;
use abide_actors::credentials::Credentials;
use abide_actors::external::QueueArrivals;
use abide_actors::journal::StoreError;
use abide_actors::model::Model;
use abide_actors::near_alarms::NearAlarms;
use abide_actors::node_lease::NodeLease;
use abide_actors::notices::NearNotices;
use abide_actors::services::{Executors, Services};
use abide_actors::webhooks::NoticeSender;
use abide_conversation::{ConversationId, Scoped};
use futures::FutureExt;
use ractor::{Actor, ActorRef, SpawnErr};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::cluster_client::ClusterClient;
use crate::cluster_view::ClusterView;
use crate::host::{self, Host, HostMsg, LiveTable, RemoteCall};
use crate::live::{Hub, detect_gaps, relay};
use crate::member::{LinkStates, Member, MemberState};
use crate::membership::Membership;
use crate::membership::heartbeat::{Heartbeat, HeartbeatInputs, OnStoreTime};
use crate::membership::lease_tracker::LeaseTracker;
use crate::notices::webhook_catalog::WebhookCatalog;
use crate::notices::{CourierDeps, LinkMaker};
use crate::partition::ShareCache;
use crate::peers::Peers;
use crate::placement::Policy;
use crate::queues::{Queues, count_depths};
use crate::router::ConversationRouter;
use crate::rpc_server::{RpcServer, begin_drain};
use crate::store::Store;
use crate::{alarms, notices, suspension_metrics, takeover};

/// How many calls of other nodes may wait to be taken up; the callers have bounds of their own.
const MAX_INCOMING_CALLS: usize = 4_096;
/// How long stopped actors may take to release their claims.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The delay before a task of the node that panicked starts again.
const TASK_RESTART_DELAY: Duration = Duration::from_secs(1);

/// What a node's runtime is built from.
pub struct RuntimeDeps {
    pub me: Member,
    /// How long this node may be silent before it counts as dead.
    pub lease: Duration,
    pub store: Arc<dyn Store>,
    pub membership: Arc<dyn Membership>,
    pub agents: Arc<dyn Agents>,
    pub model: Arc<dyn Model>,
    pub executors: Executors,
    pub clock: Arc<dyn Clock>,
    pub credentials: Arc<dyn Credentials>,
    pub passivate_after: Duration,
    pub policy: Policy,
    pub on_time: OnStoreTime,
    pub webhooks: Arc<WebhookCatalog>,
    pub notice_sender: Arc<NoticeSender>,
    /// Makes the links of notices; `None` if the node has no keys for them.
    pub links: Option<Arc<dyn LinkMaker>>,
}

impl RuntimeDeps {
    /// The services of its conversations.
    fn services(&self, lease: Arc<NodeLease>, hub: &Hub) -> Arc<Services> {
        let work = TaskTracker::new();
        let Executors { runner, hooks, mcp, workspaces, callbacks } = self.executors.clone();
        Arc::new(Services {
            lease,
            journal: self.store.clone(),
            blobs: self.store.clone(),
            audit: Recorder::new(self.store.clone(), work.clone()),
            agents: self.agents.clone(),
            live: Arc::new(hub.clone()),
            model: self.model.clone(),
            runner,
            hooks,
            mcp,
            workspaces,
            clock: self.clock.clone(),
            credentials: self.credentials.clone(),
            near_alarms: NearAlarms::default(),
            webhooks: self.webhooks.clone(),
            near_notices: NearNotices::default(),
            queue_arrivals: QueueArrivals::default(),
            callbacks,
            conversations: Arc::default(),
            passivate_after: self.passivate_after,
            work,
        })
    }

    /// What delivers its notices, once there is a cluster.
    fn courier(&self, near: NearNotices) -> impl FnOnce(ClusterClient) -> CourierDeps + use<> {
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let (catalog, sender) = (self.webhooks.clone(), self.notice_sender.clone());
        let (links, health) = (self.links.clone(), Arc::default());
        move |cluster| CourierDeps { store, clock, catalog, sender, links, near, cluster, health }
    }

    /// The heartbeat that keeps its node a member.
    fn heartbeat(
        self,
        node_lease: Arc<NodeLease>,
        members: watch::Sender<Vec<Member>>,
        view: watch::Sender<Arc<ClusterView>>,
    ) -> Heartbeat {
        let Self { membership, clock, credentials, on_time, me, lease, .. } = self;
        let tracker = LeaseTracker::new(me, lease);
        let shares = ShareCache::default();
        Heartbeat {
            membership,
            lease: node_lease,
            clock,
            credentials,
            on_time,
            tracker,
            shares,
            members,
            view,
        }
    }
}

/// Why the runtime did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] SpawnErr),
    #[error("{0}")]
    Peers(String),
}

/// The running conversations of a node and the tasks that serve them. Dropping it ends all at once.
pub struct NodeRuntime {
    pub conversations: ConversationRouter,
    pub hub: Hub,
    pub queues: Queues,
    /// What this node takes on.
    pub state: Arc<watch::Sender<MemberState>>,
    /// Completes when the host has ended, after which the node cannot go on.
    pub supervisor: JoinHandle<()>,
    host: ActorRef<HostMsg>,
    table: Arc<LiveTable>,
    membership: Arc<dyn Membership>,
    heartbeat: AbortOnDropHandle<()>,
    /// Kept so that tasks that wait for a change of the view do not spin once the heartbeat has
    /// ended.
    _view: watch::Sender<Arc<ClusterView>>,
    /// Kept because the conversations themselves have only a weak reference to it.
    _client: Arc<dyn ConversationClient>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl NodeRuntime {
    /// Enters the membership, connects to the other nodes by `connect`, and starts all tasks.
    pub async fn start<F>(
        deps: RuntimeDeps,
        connect: impl FnOnce(ActorRef<HostMsg>, watch::Receiver<Vec<Member>>) -> F,
    ) -> Result<Self, StartError>
    where
        F: Future<Output = Result<Arc<dyn Peers>, String>>,
    {
        let hub = Hub::default();
        let lease = Arc::new(NodeLease::new(deps.me.holder.clone()));
        let services = deps.services(lease.clone(), &hub);
        let (store, clock) = (deps.store.clone(), deps.clock.clone());
        let near_alarms = services.near_alarms.clone();
        let courier = deps.courier(services.near_notices.clone());
        let arrivals = services.queue_arrivals.clone();
        let (membership, credentials) = (deps.membership.clone(), deps.credentials.clone());
        let (process, policy) = (deps.me.process.clone(), deps.policy);
        let state = Arc::new(watch::Sender::new(deps.me.state));
        let first = ClusterView::new(deps.me.holder.clone(), Vec::new(), LinkStates::default());
        let (view, view_receiver) = watch::channel(Arc::new(first));
        let (members, members_receiver) = watch::channel(Vec::new());
        let mut heartbeat = deps.heartbeat(lease.clone(), members, view.clone());
        heartbeat.enter().await?;

        let table = Arc::new(LiveTable::default());
        let RunningHost { host, supervisor, calls, unfinished } =
            RunningHost::start(services.clone(), table.clone()).await?;
        let peers = connect(host.clone(), members_receiver).await.map_err(StartError::Peers)?;

        let refresh = Arc::new(Notify::new());
        let inputs = HeartbeatInputs {
            host: host.clone(),
            table: table.clone(),
            links: peers.links(),
            state: state.subscribe(),
            refresh: refresh.clone(),
        };
        let cluster = ClusterClient::new(
            process,
            lease,
            membership.clone(),
            peers,
            clock.clone(),
            view_receiver,
            refresh,
        );
        let conversations = ConversationRouter::new(
            host.clone(),
            table.clone(),
            services,
            store.clone(),
            cluster,
            policy,
        );
        let courier = courier(conversations.cluster().clone());
        let queues = Queues::new(conversations.clone(), store.clone(), clock.clone());
        let rpc_server = RpcServer {
            conversations: conversations.clone(),
            hub: hub.clone(),
            queues: queues.clone(),
            clock,
            credentials,
            state: state.clone(),
        };
        Ok(Self {
            _client: conversations.install_client(),
            heartbeat: spawn(heartbeat.run(inputs)),
            _tasks: spawn_tasks(
                rpc_server,
                store,
                (near_alarms, arrivals, courier),
                calls,
                unfinished,
            ),
            conversations,
            hub,
            queues,
            state,
            supervisor,
            host,
            table,
            membership,
            _view: view,
        })
    }

    /// Takes no more work, lets running steps and tools finish, hands over the rest, and sends
    /// queued notifications of hooks, for at most `timeout`. What still runs then is interrupted
    /// and resumes on another node. Returns whether all was finished in time.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        self.conversations.cluster().lease().drain();
        begin_drain(&self.state);
        // A host that has ended has nothing left to drain.
        let _ = self.host.cast(HostMsg::Drain);
        let drained = timeout_at(deadline, self.table.wait_until_empty()).await.is_ok();
        if !drained {
            let _ = self.host.cast(HostMsg::Stop);
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, self.table.wait_until_empty()).await;
        }
        let flushed = timeout_at(deadline, self.conversations.flush_hooks()).await.is_ok();
        self.state.send_replace(MemberState::Drained);
        drained && flushed
    }

    /// Leaves the membership, which frees at once what this node still holds.
    pub async fn leave(&self) {
        // The heartbeat would take this for an eviction, and rejoin.
        self.heartbeat.abort();
        let me = self.conversations.cluster().lease().me();
        let leaving = self.membership.leave(&me);
        if !matches!(tokio::time::timeout(RELEASE_TIMEOUT, leaving).await, Ok(Ok(()))) {
            tracing::warn!("membership not left: the lease runs out instead");
        }
    }
}

impl Drop for NodeRuntime {
    fn drop(&mut self) {
        self.host.kill();
    }
}

/// The host of a node that starts, and what it passes on to the node's tasks.
struct RunningHost {
    host: ActorRef<HostMsg>,
    supervisor: JoinHandle<()>,
    calls: mpsc::Receiver<RemoteCall>,
    unfinished: mpsc::UnboundedReceiver<Scoped<ConversationId>>,
}

impl RunningHost {
    async fn start(services: Arc<Services>, table: Arc<LiveTable>) -> Result<Self, SpawnErr> {
        let (incoming, calls) = mpsc::channel(MAX_INCOMING_CALLS);
        let (unfinished_sender, unfinished) = mpsc::unbounded_channel();
        let arguments =
            host::Arguments { services, table, incoming, unfinished: unfinished_sender };
        let (host, supervisor) = Actor::spawn(None, Host, arguments).await?;
        Ok(Self { host, supervisor, calls, unfinished })
    }
}

/// Starts what serves the conversations of a node beside their host.
fn spawn_tasks(
    rpc_server: RpcServer,
    store: Arc<dyn Store>,
    (near_alarms, arrivals, courier): (NearAlarms, QueueArrivals, CourierDeps),
    calls: mpsc::Receiver<RemoteCall>,
    unfinished: mpsc::UnboundedReceiver<Scoped<ConversationId>>,
) -> Vec<AbortOnDropHandle<()>> {
    let RpcServer { conversations, hub, queues, clock, .. } = rpc_server.clone();
    let cluster = conversations.cluster().clone();
    let relaying = (hub.clone(), cluster.clone());
    let detecting = (hub, store.clone(), cluster.clone());
    let waking = (conversations.clone(), store.clone(), clock.clone(), near_alarms);
    let measuring = (queues.clone(), store.clone(), clock.clone());
    let counting = (cluster, store.clone(), clock);
    let sweeping = (conversations.clone(), store);
    vec![
        spawn(rpc_server.run(calls)),
        keep("relay", relaying, |(hub, cluster)| relay(hub, cluster)),
        keep("detect gaps", detecting, |(hub, store, cluster)| detect_gaps(hub, store, cluster)),
        keep("alarms", waking, |(router, store, clock, near_alarms)| {
            alarms::run(router, store, clock, near_alarms)
        }),
        keep("suspension metrics", counting, |(cluster, store, clock)| {
            suspension_metrics::run(cluster, store, clock)
        }),
        keep("queue arrivals", (queues, arrivals), |(queues, arrivals)| {
            queues.run_announcer(arrivals)
        }),
        keep("permits", conversations.clone(), ConversationRouter::observe_members),
        keep("queue depths", measuring, count_depths),
        keep("take-over", sweeping, |(router, store)| takeover::run(router, store)),
        spawn(takeover::hand_over(conversations, unfinished)),
        keep("webhooks", courier.catalog.clone(), WebhookCatalog::follow),
        keep("notices", courier.clone(), notices::run),
        keep("notice metrics", courier, notices::count),
    ]
}

/// Runs a task of the node, and starts it again with the same arguments if it panics: without it,
/// alarms or take-overs would be missing on a node that seems sound.
fn keep<A, F>(
    task: &'static str,
    arguments: A,
    run: impl Fn(A) -> F + Send + Sync + 'static,
) -> AbortOnDropHandle<()>
where
    A: Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    spawn(async move {
        while AssertUnwindSafe(run(arguments.clone())).catch_unwind().await.is_err() {
            tracing::error!(task, "task of the node panicked");
            tokio::time::sleep(TASK_RESTART_DELAY).await;
        }
    })
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_starts_again_and_one_that_ends_does_not() {
        let runs = Arc::new(AtomicU32::new(0));
        let task = keep("test", runs.clone(), |runs| async move {
            assert!(runs.fetch_add(1, Ordering::SeqCst) >= 2, "a bug");
        });
        task.await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}
