//! A cluster in one process: nodes that share a store, with a membership and a network that tests
//! can break.

mod membership;
mod network;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Scoped};
use abide_registry::member::ProcessId;
use abide_registry::membership::LinkState;
use abide_registry::peers::Peers;
use abide_registry::placement::Policy;
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;

use self::membership::{MemberTable, MembershipHandle};
use self::network::TestNetwork;
use crate::flaky_store::{FlakyStore, Write};
use crate::test_node::{self, TestNode, TestNodeDeps, TestTools};

pub use self::network::Fate;

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
