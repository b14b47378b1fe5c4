//! A cluster in one process: nodes that share a store, with a membership and a network that tests
//! can break.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::{ConversationId, Scoped, Timestamp};
use abide_registry::host::{HostMsg, RemoteCall};
use abide_registry::member::ProcessId;
use abide_registry::membership::{
    LinkState, LinkStates, Member, Membership, MembershipStatus, ObservedMember,
};
use abide_registry::peers::{CallError, Peers};
use abide_registry::placement::Policy;
use abide_registry::protocol::{CallRequest, Envelope};
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;
use async_trait::async_trait;
use ractor::ActorRef;
use ractor::rpc::CallResult;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::flaky_store::{FlakyStore, Write};
use crate::test_node::{self, LEASE, TestNode, TestNodeDeps, TestTools};

/// Nodes by number.
pub struct TestCluster {
    nodes: Vec<Option<RunningNode>>,
    pub clock: Arc<dyn Clock>,
    pub members: Arc<MemberTable>,
    pub network: Arc<TestNetwork>,
    store: Arc<Memory>,
    pub writes: Arc<Mutex<Vec<Write>>>,
    /// The tools of every node that was ever started.
    pub tools: Vec<TestTools>,
    agent: String,
    policy: Policy,
    incarnations: u32,
}

struct RunningNode {
    node: TestNode,
    process: ProcessId,
    store: Arc<FlakyStore>,
    /// While set, the node cannot reach the membership.
    membership_down: Arc<AtomicBool>,
}

/// What the other nodes see of a node that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathMode {
    /// Its address refuses connections.
    ConnectionRefused,
    /// Its connections stay open, and nobody answers.
    HalfOpen,
}

impl TestCluster {
    /// Starts `size` nodes, `n0` and on, that share one agent, `a`, of this definition.
    pub async fn new(size: usize, agent: &str) -> Self {
        Self::with_policy(size, agent, Policy::Local).await
    }

    pub async fn with_policy(size: usize, agent: &str, policy: Policy) -> Self {
        let mut cluster = Self {
            nodes: (0..size).map(|_| None).collect(),
            clock: test_node::clock(),
            members: Arc::default(),
            network: Arc::default(),
            store: Arc::default(),
            writes: Arc::default(),
            tools: Vec::new(),
            agent: agent.to_owned(),
            policy,
            incarnations: 0,
        };
        for number in 0..size {
            cluster.start(number).await;
        }
        cluster.wait_for_full_view().await;
        cluster
    }

    /// Starts a node that is not running.
    pub async fn start(&mut self, number: usize) {
        let node = self.run(&format!("n{number}")).await;
        self.tools.push(node.node.tools.clone());
        self.nodes[number] = Some(node);
    }

    /// Starts another process under the name of a node. Returns the number of the new process.
    pub async fn start_namesake(&mut self, number: usize) -> usize {
        let node = self.run(&format!("n{number}")).await;
        self.tools.push(node.node.tools.clone());
        self.nodes.push(Some(node));
        self.nodes.len() - 1
    }

    async fn run(&mut self, name: &str) -> RunningNode {
        self.incarnations += 1;
        let incarnation = Incarnation::new(self.incarnations.to_string());
        let holder = Holder { node: NodeName::new(name), incarnation };
        let process = ProcessId::new(holder.to_string());
        let store = Arc::new(FlakyStore::sharing(self.store.clone(), self.writes.clone()));
        let membership_down = Arc::new(AtomicBool::new(false));
        let membership =
            MembershipHandle { members: self.members.clone(), down: membership_down.clone() };
        let deps = TestNodeDeps {
            clock: self.clock.clone(),
            store: store.clone(),
            membership: Arc::new(membership),
            holder,
            policy: self.policy,
            extensions: Default::default(),
        };
        let (network, me) = (self.network.clone(), process.clone());
        let connect = |host, _| async { Ok(network.join(me, host) as Arc<dyn Peers>) };
        let node = TestNode::start(deps, &self.agent, connect).await;
        RunningNode { node, process, store, membership_down }
    }

    /// A running node.
    pub fn node(&self, number: usize) -> &TestNode {
        &self.running_node(number).node
    }

    pub fn store(&self, number: usize) -> &FlakyStore {
        &self.running_node(number).store
    }

    pub fn is_running(&self, number: usize) -> bool {
        self.nodes[number].is_some()
    }

    fn running_node(&self, number: usize) -> &RunningNode {
        self.nodes[number].as_ref().unwrap()
    }

    fn process(&self, number: usize) -> &ProcessId {
        &self.running_node(number).process
    }

    /// The numbers of the running nodes.
    pub fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|number| self.is_running(*number)).collect()
    }

    /// Ends a node without a shutdown.
    pub fn kill(&mut self, number: usize, mode: DeathMode) {
        let node = self.nodes[number].take().unwrap();
        self.network.leave(&node.process, mode);
        drop(node);
    }

    /// Drains a node and ends it, like a program that is shut down. Returns whether it drained in
    /// time.
    pub async fn shut_down(&mut self, number: usize, drain_timeout: Duration) -> bool {
        let in_time = self.node(number).runtime.drain(drain_timeout).await;
        self.node(number).runtime.leave().await;
        self.kill(number, DeathMode::ConnectionRefused);
        in_time
    }

    /// Cuts a node off from the membership, or reconnects it.
    pub fn set_membership_down(&self, number: usize, down: bool) {
        self.running_node(number).membership_down.store(down, Ordering::SeqCst);
    }

    pub fn set_link(&self, a: usize, b: usize, link: LinkState) {
        self.network.set(self.process(a), self.process(b), link);
        self.network.set(self.process(b), self.process(a), link);
    }

    /// Sets what `from` sees of its link to `to`; `to` sees no change.
    pub fn set_link_one_way(&self, from: usize, to: usize, link: LinkState) {
        self.network.set(self.process(from), self.process(to), link);
    }

    /// Waits until every node sees all running nodes and no others.
    pub async fn wait_for_full_view(&self) {
        let all = self.running();
        let agreed = async {
            let sees_all = |number: &usize| {
                let view = self.node(*number).conversations.cluster().view();
                let others = view.others().filter(|member| view.reaches(member)).count();
                view.members.len() == all.len() && others + 1 == all.len()
            };
            while !all.iter().all(sees_all) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), agreed)
            .await
            .expect("the nodes' views never agreed");
    }

    /// The numbers of the nodes on which the conversation's actor is live.
    pub fn live_on(&self, id: &str) -> Vec<usize> {
        let id = Scoped::parse(id).unwrap();
        let live = |number: &usize| self.node(*number).conversations.table().get(&id).is_some();
        self.running().into_iter().filter(live).collect()
    }

    pub async fn holder(&self, id: &str) -> Option<Holder> {
        let claim = self.store.current_claim(&Scoped::parse(id).unwrap()).await.unwrap();
        claim.map(|claim| claim.holder)
    }

    /// How often a tool run of this call was started, on any node.
    pub fn run_count(&self, id: &str, call: &str) -> usize {
        let on_node = |tools: &TestTools| {
            let started = tools.started.lock().unwrap();
            started
                .iter()
                .filter(|(conversation, name, _)| conversation == id && name == call)
                .count()
        };
        self.tools.iter().map(on_node).sum()
    }

    /// Lets every `hold` of every node return, including those that start later.
    pub fn release_all(&self) {
        for tools in &self.tools {
            tools.release.add_permits(1_000);
        }
    }

    /// A conversation id whose partition this node owns.
    pub fn id_in_partitions_of(&self, number: usize) -> String {
        let view = self.node(number).conversations.cluster().view();
        let owned =
            |id: &String| view.partitions.contains((&Scoped::parse(id.as_str()).unwrap()).into());
        (0..).map(|n| format!("x{n}")).find(owned).unwrap()
    }

    /// Checks that at most one node wrote in each epoch, and that epochs only grew.
    pub fn check_writes(&self) {
        let mut last: BTreeMap<&Scoped<ConversationId>, &abide_actors::journal::Claim> =
            BTreeMap::new();
        let writes = self.writes.lock().unwrap();
        for (id, claim) in writes.iter() {
            if let Some(before) = last.insert(id, claim) {
                let grows = before.epoch < claim.epoch || before == claim;
                assert!(grows, "{id}: {before:?}, then {claim:?}");
            }
        }
    }
}

/// Each member and when it last renewed, by node name.
type Registrations = BTreeMap<NodeName, (Member, Instant)>;

/// The membership's table, in memory and on paused time.
#[derive(Default)]
pub struct MemberTable {
    registrations: Mutex<Registrations>,
    /// All processes in the order in which they first entered.
    processes: Mutex<Vec<ProcessId>>,
}

impl MemberTable {
    /// The registrations whose lease has not lapsed.
    fn current(&self) -> MutexGuard<'_, Registrations> {
        let mut all = self.registrations.lock().unwrap();
        all.retain(|_, (_, renewed)| renewed.elapsed() <= LEASE);
        all
    }

    /// The holders that are alive.
    pub fn alive(&self) -> Vec<Holder> {
        self.current().values().map(|(member, _)| member.holder.clone()).collect()
    }
}

/// One node's access to the membership.
struct MembershipHandle {
    members: Arc<MemberTable>,
    down: Arc<AtomicBool>,
}

impl MembershipHandle {
    fn registrations(&self) -> Result<MutexGuard<'_, Registrations>, StoreError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("the membership is down".to_owned()));
        }
        Ok(self.members.current())
    }
}

fn alive(all: &Registrations) -> MembershipStatus {
    let silent = |renewed: &Instant| u64::try_from(renewed.elapsed().as_millis()).unwrap();
    let observed = |(member, renewed): &(Member, Instant)| ObservedMember {
        member: member.clone(),
        silent_ms: silent(renewed),
    };
    MembershipStatus::Alive {
        now: Timestamp::UNIX_EPOCH,
        members: all.values().map(observed).collect(),
    }
}

#[async_trait]
impl Membership for MembershipHandle {
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        Ok(self.registrations()?.values().map(|(member, _)| member.clone()).collect())
    }

    async fn enter(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        let mut all = self.registrations()?;
        let mut processes = self.members.processes.lock().unwrap();
        if !processes.contains(&me.process) {
            processes.push(me.process.clone());
        }
        let place = |process: &ProcessId| processes.iter().position(|known| known == process);
        let present = all.get(&me.holder.node).map(|(present, _)| &present.process);
        if present.is_some_and(|present| place(present) > place(&me.process)) {
            return Ok(MembershipStatus::Evicted);
        }
        all.insert(me.holder.node.clone(), (me.clone(), Instant::now()));
        Ok(alive(&all))
    }

    async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        let mut all = self.registrations()?;
        match all.get_mut(&me.holder.node) {
            Some((member, renewed)) if member.holder == me.holder => {
                (*member, *renewed) = (me.clone(), Instant::now());
                Ok(alive(&all))
            }
            _ => Ok(MembershipStatus::Evicted),
        }
    }

    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        let mut all = self.registrations()?;
        let there = all.get(&who.node).is_some_and(|(member, _)| member.holder == *who);
        if there && suspect {
            all.remove(&who.node);
        }
        Ok(!there || suspect)
    }

    async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        let mut all = self.registrations()?;
        if all.get(&who.node).is_some_and(|(member, _)| member.holder == *who) {
            all.remove(&who.node);
        }
        Ok(())
    }
}

/// What the network does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Carry,
    /// The call is carried out, and its reply is lost.
    LoseReply,
    /// The call never arrives.
    Drop,
    /// The call arrives late by this much.
    Delay(Duration),
    /// The call is refused: too many are in flight.
    RefuseAsFull,
    /// Something else arrives in the call's place.
    Garble,
}

type ChooseFate = Box<dyn FnMut(&ProcessId, &ProcessId, &CallRequest) -> Fate + Send>;

/// Carries calls between processes; the test decides each call's fate.
#[derive(Default)]
pub struct TestNetwork {
    hosts: Mutex<BTreeMap<ProcessId, ActorRef<HostMsg>>>,
    links: Mutex<BTreeMap<ProcessId, watch::Sender<LinkStates>>>,
    choose_fate: Mutex<Option<ChooseFate>>,
}

impl TestNetwork {
    fn join(self: &Arc<Self>, me: ProcessId, host: ActorRef<HostMsg>) -> Arc<TestPeers> {
        let mut hosts = self.hosts.lock().unwrap();
        let links = hosts.keys().map(|other| (other.clone(), LinkState::Connected)).collect();
        self.links.lock().unwrap().insert(me.clone(), watch::Sender::new(Arc::new(links)));
        for other in hosts.keys() {
            self.set(other, &me, LinkState::Connected);
        }
        hosts.insert(me.clone(), host);
        Arc::new(TestPeers { network: self.clone(), me })
    }

    fn leave(&self, process: &ProcessId, mode: DeathMode) {
        self.hosts.lock().unwrap().remove(process);
        self.links.lock().unwrap().remove(process);
        if mode == DeathMode::ConnectionRefused {
            let others: Vec<ProcessId> = self.hosts.lock().unwrap().keys().cloned().collect();
            for other in others {
                self.set(&other, process, LinkState::Refused);
            }
        }
    }

    fn set(&self, from: &ProcessId, to: &ProcessId, link: LinkState) {
        if let Some(links) = self.links.lock().unwrap().get(from) {
            links.send_modify(|links| {
                Arc::make_mut(links).insert(to.clone(), link);
            });
        }
    }

    /// Lets the function decide the fate of every call from now on.
    pub fn set_fates(
        &self,
        choose: impl FnMut(&ProcessId, &ProcessId, &CallRequest) -> Fate + Send + 'static,
    ) {
        *self.choose_fate.lock().unwrap() = Some(Box::new(choose));
    }

    /// Carries every call again.
    pub fn carry_everything(&self) {
        *self.choose_fate.lock().unwrap() = None;
    }

    fn fate(&self, from: &ProcessId, to: &ProcessId, call: &[u8]) -> Fate {
        let mut choose_fate = self.choose_fate.lock().unwrap();
        let Some(choose_fate) = choose_fate.as_mut() else { return Fate::Carry };
        let envelope: Envelope = abide_conversation::from_json(call).unwrap();
        choose_fate(from, to, &envelope.call)
    }

    async fn carry(&self, to: &ProcessId, call: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let host = self.hosts.lock().unwrap().get(to).cloned();
        // No reply tells the caller that the process is gone.
        let Some(host) = host else { return std::future::pending().await };
        let message = |reply| HostMsg::Remote(RemoteCall { call, reply });
        match host.call(message, None).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            // The host died during the call; only the link may show it.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

/// One process's view of the network.
struct TestPeers {
    network: Arc<TestNetwork>,
    me: ProcessId,
}

#[async_trait]
impl Peers for TestPeers {
    async fn call(
        &self,
        process: &ProcessId,
        call: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let mut links = self.links();
        if links.borrow_and_update().get(process) != Some(&LinkState::Connected) {
            return Err(CallError::Unconnected);
        }
        let carried = async {
            match self.network.fate(&self.me, process, &call) {
                Fate::RefuseAsFull => Err(CallError::Full),
                Fate::Carry => self.network.carry(process, call).await,
                Fate::Garble => self.network.carry(process, b"{\"ask\": \"dance\"}".to_vec()).await,
                Fate::Drop => std::future::pending().await,
                Fate::LoseReply => {
                    let _ = self.network.carry(process, call).await;
                    Err(CallError::Lost)
                }
                Fate::Delay(by) => {
                    let (network, to) = (self.network.clone(), process.clone());
                    // The call is on its way even when the caller gives up.
                    let late = tokio::spawn(async move {
                        tokio::time::sleep(by).await;
                        network.carry(&to, call).await
                    });
                    late.await.unwrap()
                }
            }
        };
        let cut = links.wait_for(|links| links.get(process) != Some(&LinkState::Connected));
        tokio::select! {
            answer = tokio::time::timeout(within, carried) => answer.unwrap_or(Err(CallError::Lost)),
            _ = cut => Err(CallError::Lost),
        }
    }

    fn links(&self) -> watch::Receiver<LinkStates> {
        self.network.links.lock().unwrap().get(&self.me).map_or_else(
            || watch::Sender::new(LinkStates::default()).subscribe(),
            watch::Sender::subscribe,
        )
    }
}
