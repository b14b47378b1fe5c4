//! A cluster in one process: nodes over one store, with a membership and a network that tests break.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Timestamp};
use abide_registry::host::{HostMsg, RemoteCall};
use abide_registry::membership::{
    LinkState, LinkStates, Member, Membership, ObservedMember, Renewed,
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

use crate::flaky::{Flaky, Write};
use crate::rig::{self, LEASE, Rig, Site, Tools};

/// Several nodes, by number.
pub struct Town {
    nodes: Vec<Option<Node>>,
    pub clock: Arc<dyn Clock>,
    pub members: Arc<Members>,
    pub net: Arc<Net>,
    store: Arc<Memory>,
    pub writes: Arc<Mutex<Vec<Write>>>,
    /// Of all nodes that ever were.
    pub tools: Vec<Tools>,
    agent: String,
    policy: Policy,
    lives: u32,
}

struct Node {
    rig: Rig,
    process: String,
    store: Arc<Flaky>,
    /// Its way to the membership is cut.
    away: Arc<AtomicBool>,
}

/// How a dead node looks from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// Its address refuses them.
    Refused,
    /// Its connections stay, and nobody answers.
    HalfOpen,
}

impl Town {
    /// So many nodes, `n0` and on, with one agent, `a`, of this definition.
    pub async fn new(size: usize, agent: &str) -> Self {
        Self::placing(size, agent, Policy::Local).await
    }

    pub async fn placing(size: usize, agent: &str, policy: Policy) -> Self {
        let (members, net, store, writes) = Default::default();
        let clock = rig::clock();
        let (nodes, tools) = ((0..size).map(|_| None).collect(), Vec::new());
        let agent = agent.to_owned();
        let mut town =
            Self { nodes, clock, members, net, store, writes, tools, agent, policy, lives: 0 };
        for number in 0..size {
            town.start(number).await;
        }
        town.acquainted().await;
        town
    }

    /// Starts a node that does not run.
    pub async fn start(&mut self, number: usize) {
        let node = self.run(&format!("n{number}")).await;
        self.tools.push(node.rig.tools.clone());
        self.nodes[number] = Some(node);
    }

    /// Starts another process that goes by the name of a node. Returns its number.
    pub async fn start_namesake(&mut self, of: usize) -> usize {
        let node = self.run(&format!("n{of}")).await;
        self.tools.push(node.rig.tools.clone());
        self.nodes.push(Some(node));
        self.nodes.len() - 1
    }

    async fn run(&mut self, name: &str) -> Node {
        self.lives += 1;
        let holder = Holder { node: name.to_owned(), incarnation: self.lives.to_string() };
        let process = holder.to_string();
        let store = Arc::new(Flaky::to(self.store.clone(), self.writes.clone()));
        let away = Arc::new(AtomicBool::new(false));
        let membership = Way { members: self.members.clone(), away: away.clone() };
        let site = Site {
            clock: self.clock.clone(),
            store: store.clone(),
            membership: Arc::new(membership),
            holder,
            policy: self.policy,
            natives: Default::default(),
        };
        let (net, me) = (self.net.clone(), process.clone());
        let connect = |host, _| async { Ok(net.join(me, host) as Arc<dyn Peers>) };
        let rig = Rig::at(site, &self.agent, connect).await;
        Node { rig, process, store, away }
    }

    /// A node that runs.
    pub fn node(&self, number: usize) -> &Rig {
        &self.whole(number).rig
    }

    pub fn store(&self, number: usize) -> &Flaky {
        &self.whole(number).store
    }

    pub fn runs(&self, number: usize) -> bool {
        self.nodes[number].is_some()
    }

    fn whole(&self, number: usize) -> &Node {
        self.nodes[number].as_ref().unwrap()
    }

    fn process(&self, number: usize) -> &str {
        &self.whole(number).process
    }

    /// The numbers of those that run.
    pub fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|number| self.runs(*number)).collect()
    }

    /// Ends a node without a word.
    pub fn kill(&mut self, number: usize, how: Killed) {
        let node = self.nodes[number].take().unwrap();
        self.net.leave(&node.process, how);
        drop(node);
    }

    /// Drains a node as a program that ends does.
    pub async fn retire(&mut self, number: usize, patience: Duration) -> bool {
        let in_time = self.node(number).life.drain(patience).await;
        self.node(number).life.leave().await;
        self.kill(number, Killed::Refused);
        in_time
    }

    /// Cuts a node off from the membership, and back.
    pub fn away(&self, number: usize, away: bool) {
        self.whole(number).away.store(away, Ordering::SeqCst);
    }

    pub fn link(&self, a: usize, b: usize, link: LinkState) {
        self.net.set(self.process(a), self.process(b), link);
        self.net.set(self.process(b), self.process(a), link);
    }

    /// What one node sees of the way to another.
    pub fn link_one_way(&self, from: usize, to: usize, link: LinkState) {
        self.net.set(self.process(from), self.process(to), link);
    }

    /// Waits until every node sees exactly those that run.
    pub async fn acquainted(&self) {
        let all = self.running();
        let look = async {
            let knows = |number: &usize| {
                let view = self.node(*number).conversations.cluster().view();
                let others = view.others().filter(|member| view.reaches(member)).count();
                view.members.len() == all.len() && others + 1 == all.len()
            };
            while !all.iter().all(knows) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), look).await.expect("they never met");
    }

    /// The number of the node whose actor is live.
    pub fn lives_at(&self, id: &str) -> Vec<usize> {
        let id = ConversationId::new(id);
        let live = |number: &usize| self.node(*number).conversations.table().get(&id).is_some();
        self.running().into_iter().filter(live).collect()
    }

    pub async fn holder(&self, id: &str) -> Option<Holder> {
        let held = self.store.holding(&ConversationId::new(id)).await.unwrap();
        held.map(|held| held.holder)
    }

    /// How often a call was begun, anywhere.
    pub fn runs_of(&self, id: &str, call: &str) -> usize {
        let of = |tools: &Tools| {
            let started = tools.started.lock().unwrap();
            started.iter().filter(|(of, name, _)| of == id && name == call).count()
        };
        self.tools.iter().map(of).sum()
    }

    /// Lets every waiting `hold` of every node return, also those to come.
    pub fn release_all(&self) {
        for tools in &self.tools {
            tools.release.add_permits(1_000);
        }
    }

    /// An id of which this node's share has the partition.
    pub fn id_in_share_of(&self, number: usize) -> String {
        let view = self.node(number).conversations.cluster().view();
        let mine = |id: &String| view.share.contains((&ConversationId::new(id.as_str())).into());
        (0..).map(|n| format!("x{n}")).find(mine).unwrap()
    }

    /// At most one node writes in an epoch, and epochs only grow.
    pub fn check_writes(&self) {
        let mut last: BTreeMap<&ConversationId, &abide_actors::journal::Claim> = BTreeMap::new();
        let writes = self.writes.lock().unwrap();
        for (id, held) in writes.iter() {
            if let Some(before) = last.insert(id, held) {
                let grows = before.epoch < held.epoch || before == held;
                assert!(grows, "{id}: {before:?}, then {held:?}");
            }
        }
    }
}

/// Who is a member, and when each renewed last; by name.
type Present = BTreeMap<String, (Member, Instant)>;

/// The contract of the membership, in memory, by paused time.
#[derive(Default)]
pub struct Members {
    present: Mutex<Present>,
    /// All processes, in the order in which they first came.
    entered: Mutex<Vec<String>>,
}

impl Members {
    fn present(&self) -> MutexGuard<'_, Present> {
        let mut all = self.present.lock().unwrap();
        all.retain(|_, (_, renewed)| renewed.elapsed() <= LEASE);
        all
    }

    /// The holders that are alive.
    pub fn alive(&self) -> Vec<Holder> {
        self.present().values().map(|(member, _)| member.holder.clone()).collect()
    }
}

/// One node's way to the membership.
struct Way {
    members: Arc<Members>,
    away: Arc<AtomicBool>,
}

impl Way {
    fn up(&self) -> Result<MutexGuard<'_, Present>, StoreError> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the membership is away".to_owned())),
            false => Ok(self.members.present()),
        }
    }
}

fn alive(all: &Present) -> Renewed {
    let silent = |renewed: &Instant| u64::try_from(renewed.elapsed().as_millis()).unwrap();
    let seen = |(member, renewed): &(Member, Instant)| ObservedMember {
        member: member.clone(),
        silent_ms: silent(renewed),
    };
    Renewed::Alive { now: Timestamp::UNIX_EPOCH, members: all.values().map(seen).collect() }
}

#[async_trait]
impl Membership for Way {
    async fn enter(&self, me: &Member) -> Result<Renewed, StoreError> {
        let mut all = self.up()?;
        let mut entered = self.members.entered.lock().unwrap();
        if !entered.contains(&me.process) {
            entered.push(me.process.clone());
        }
        let place = |process: &String| entered.iter().position(|known| known == process);
        let present = all.get(&me.holder.node).map(|(present, _)| &present.process);
        if present.is_some_and(|present| place(present) > place(&me.process)) {
            return Ok(Renewed::Evicted);
        }
        all.insert(me.holder.node.clone(), (me.clone(), Instant::now()));
        Ok(alive(&all))
    }

    async fn renew(&self, me: &Member) -> Result<Renewed, StoreError> {
        let mut all = self.up()?;
        match all.get_mut(&me.holder.node) {
            Some((member, renewed)) if member.holder == me.holder => {
                (*member, *renewed) = (me.clone(), Instant::now());
                Ok(alive(&all))
            }
            _ => Ok(Renewed::Evicted),
        }
    }

    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        let mut all = self.up()?;
        let there = all.get(&who.node).is_some_and(|(member, _)| member.holder == *who);
        if there && suspect {
            all.remove(&who.node);
        }
        Ok(!there || suspect)
    }

    async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        let mut all = self.up()?;
        if all.get(&who.node).is_some_and(|(member, _)| member.holder == *who) {
            all.remove(&who.node);
        }
        Ok(())
    }
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Carried,
    /// It is carried out, and the answer is lost.
    Swallowed,
    /// It never arrives.
    Dropped,
    /// It arrives so much later.
    Delayed(Duration),
    /// Too much is under way.
    Full,
    /// It arrives, as something else.
    Garbled,
}

type Judge = Box<dyn FnMut(&str, &str, &CallRequest) -> Fate + Send>;

/// Carries calls between processes as a test wants it.
#[derive(Default)]
pub struct Net {
    hosts: Mutex<BTreeMap<String, ActorRef<HostMsg>>>,
    links: Mutex<BTreeMap<String, watch::Sender<LinkStates>>>,
    judge: Mutex<Option<Judge>>,
}

impl Net {
    fn join(self: &Arc<Self>, me: String, host: ActorRef<HostMsg>) -> Arc<Line> {
        let mut hosts = self.hosts.lock().unwrap();
        let mine = hosts.keys().map(|other| (other.clone(), LinkState::Connected)).collect();
        let line = watch::Sender::new(Arc::new(mine));
        self.links.lock().unwrap().insert(me.clone(), line);
        for other in hosts.keys() {
            self.set(other, &me, LinkState::Connected);
        }
        hosts.insert(me.clone(), host);
        Arc::new(Line { net: self.clone(), me })
    }

    fn leave(&self, process: &str, how: Killed) {
        self.hosts.lock().unwrap().remove(process);
        self.links.lock().unwrap().remove(process);
        if how == Killed::Refused {
            let others: Vec<String> = self.hosts.lock().unwrap().keys().cloned().collect();
            for other in others {
                self.set(&other, process, LinkState::Refused);
            }
        }
    }

    fn set(&self, from: &str, to: &str, link: LinkState) {
        if let Some(links) = self.links.lock().unwrap().get(from) {
            links.send_modify(|links| {
                Arc::make_mut(links).insert(to.to_owned(), link);
            });
        }
    }

    /// From here on this decides what becomes of every call.
    pub fn judge(&self, judge: impl FnMut(&str, &str, &CallRequest) -> Fate + Send + 'static) {
        *self.judge.lock().unwrap() = Some(Box::new(judge));
    }

    /// Every call is carried again.
    pub fn trust(&self) {
        *self.judge.lock().unwrap() = None;
    }

    fn fate(&self, from: &str, to: &str, call: &[u8]) -> Fate {
        let mut judge = self.judge.lock().unwrap();
        let Some(judge) = judge.as_mut() else { return Fate::Carried };
        let envelope: Envelope = abide_conversation::from_json(call).unwrap();
        judge(from, to, &envelope.call)
    }

    async fn carry(&self, to: &str, call: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let host = self.hosts.lock().unwrap().get(to).cloned();
        // Nobody says that nobody is there.
        let Some(host) = host else { return std::future::pending().await };
        let ask = |reply| HostMsg::Remote(RemoteCall { call, reply });
        match host.call(ask, None).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            // It died of it: its connection says so, or not.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

/// One process's end of the network.
struct Line {
    net: Arc<Net>,
    me: String,
}

#[async_trait]
impl Peers for Line {
    async fn call(
        &self,
        process: &str,
        call: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let mut links = self.links();
        if links.borrow_and_update().get(process) != Some(&LinkState::Connected) {
            return Err(CallError::Unconnected);
        }
        let carried = async {
            match self.net.fate(&self.me, process, &call) {
                Fate::Full => Err(CallError::Full),
                Fate::Carried => self.net.carry(process, call).await,
                Fate::Garbled => self.net.carry(process, b"{\"ask\": \"dance\"}".to_vec()).await,
                Fate::Dropped => std::future::pending().await,
                Fate::Swallowed => {
                    let _ = self.net.carry(process, call).await;
                    Err(CallError::Lost)
                }
                Fate::Delayed(by) => {
                    let (net, to) = (self.net.clone(), process.to_owned());
                    // It is on its way, whether anybody still waits for it or not.
                    let late = tokio::spawn(async move {
                        tokio::time::sleep(by).await;
                        net.carry(&to, call).await
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
        self.net.links.lock().unwrap().get(&self.me).map_or_else(
            || watch::Sender::new(LinkStates::default()).subscribe(),
            watch::Sender::subscribe,
        )
    }
}

/// The attempts of a call that were journalled, in order.
pub fn attempts(events: &[Event], call: &str) -> Vec<u32> {
    let attempt = |event: &Event| match &event.data {
        EventData::ToolStarted(started) if started.call_id.as_str() == call => {
            Some(started.attempt)
        }
        _ => None,
    };
    events.iter().filter_map(attempt).collect()
}
