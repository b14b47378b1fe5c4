//! One node without HTTP: everything real but the clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::agent::{Format, from_text};
use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::exec::{Launcher, Limits, Sandbox, Shell};
use abide_actors::journal::Holder;
use abide_actors::request::{
    IdempotencyKey, Reply, Request, RequestError, ResolveRequest, SendRequest,
};
use abide_actors::tools::native::{Context, NativeTool};
use abide_actors::tools::{BuiltinServices, Executors, Extensions, ToolReturn};
use abide_actors::web_fetch::Fetcher;
use abide_actors::workspace::Workspaces;
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{AnswerFormat, Event, EventData, TurnOutcome};
use abide_conversation::{AgentName, CallId, ConversationId, Principal, State, replay, wanted};
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::host::{HostMsg, Quarantined};
use abide_registry::live::{self, Hub};
use abide_registry::membership::{Member, MemberState, Membership};
use abide_registry::peers::Peers;
use abide_registry::placement::Policy;
use abide_registry::router::Conversations;
use abide_registry::runtime::{NodeRuntime, RuntimeDeps};
use abide_registry::standalone::Standalone;
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;
use async_trait::async_trait;
use ractor::ActorRef;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::asking::Seat;
pub use crate::scene::Scene;
pub use crate::time::clock;

/// How long a silent rig is still believed alive.
pub const LEASE: Duration = Duration::from_secs(5);
/// How long an actor of the rig stays in memory.
pub const PASSIVATE_AFTER: Duration = Duration::from_secs(30);
/// Paused time runs ahead when nothing else does: no test really waits for this.
const DEADLINE: Duration = Duration::from_secs(7_200);

pub struct Rig {
    pub conversations: Conversations,
    pub store: Arc<dyn Store>,
    pub catalogue: Arc<AgentCatalog>,
    pub hub: Hub,
    pub tools: Tools,
    pub model: Arc<Scene>,
    pub life: NodeRuntime,
}

/// What a rig stands on.
pub struct Site {
    pub clock: Arc<dyn Clock>,
    pub store: Arc<dyn Store>,
    pub membership: Arc<dyn Membership>,
    pub holder: Holder,
    pub policy: Policy,
    pub natives: Extensions,
}

/// What the rig's native tools do and have done.
#[derive(Clone)]
pub struct Tools {
    /// How often `hold` was started.
    pub runs: Arc<AtomicU32>,
    /// A permit lets one `hold` return.
    pub release: Arc<Semaphore>,
    /// Every start of `hold` and `nap`: conversation, call, attempt.
    pub started: Arc<Mutex<Vec<(String, String, u32)>>>,
    /// What hooks were asked and told, as JSON.
    pub heard: Arc<Mutex<Vec<Value>>>,
}

impl Tools {
    fn note(&self, context: &Context<'_>) {
        let (of, call) = (context.conversation.to_string(), context.call.to_string());
        self.started.lock().unwrap().push((of, call, context.attempt));
    }
}

impl Default for Tools {
    fn default() -> Self {
        let (runs, started, heard) = Default::default();
        Self { runs, release: Arc::new(Semaphore::new(0)), started, heard }
    }
}

/// The built-in tools, with files below a directory of this process and without commands.
fn kit(clock: &Arc<dyn Clock>) -> BuiltinServices {
    let base = std::env::temp_dir().join(format!("abide-shell-{}", std::process::id()));
    let shell = Shell::new(Launcher::of("/nowhere"), Sandbox::Off, Limits::default());
    BuiltinServices {
        workspaces: Arc::new(Workspaces::new(base, clock.clone())),
        shell: Arc::new(shell),
        fetcher: Fetcher::new().unwrap(),
    }
}

impl Rig {
    /// A rig with one agent, `a`, of this definition.
    pub async fn new(agent: &str) -> Self {
        Self::over(Arc::new(Memory::default()), agent).await
    }

    pub async fn over(store: Arc<dyn Store>, agent: &str) -> Self {
        Self::with(Extensions::new(), store, agent).await
    }

    pub async fn with(natives: Extensions, store: Arc<dyn Store>, agent: &str) -> Self {
        let (clock, alone) = (clock(), Arc::new(Standalone::default()));
        let holder = Holder { node: "n".to_owned(), incarnation: "1".to_owned() };
        let (membership, policy) = (alone.clone(), Policy::Local);
        let site = Site { clock, store, membership, holder, policy, natives };
        Self::at(site, agent, |_, _| async { Ok(alone as Arc<dyn Peers>) }).await
    }

    /// One node of a cluster.
    pub async fn at<F>(
        site: Site,
        agent: &str,
        connect: impl FnOnce(ActorRef<HostMsg>, watch::Receiver<Vec<Member>>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Arc<dyn Peers>, String>>,
    {
        let Site { clock, store, membership, holder, policy, natives } = site;
        let tools = Tools::default();
        let natives = natives
            .with_tool("hold", Hold(tools.clone()))
            .with_tool("nap", Nap(tools.clone()))
            .with_tool("boom", Boom)
            .with_tool("halt", Halt)
            .with_tool("echo", Echo)
            .with_tool("seat", Seat)
            .with_hooks(crate::hooks::hooks(&tools));
        let catalogue = AgentCatalog::new(store.clone(), Arc::new(natives.clone()), clock.clone());
        let catalogue = Arc::new(catalogue);
        let model = Arc::new(Scene::default());
        let ground = RuntimeDeps {
            me: Member {
                process: holder.to_string(),
                holder,
                address: String::new(),
                state: MemberState::Up,
                live_actors: 0,
                version: String::new(),
                wire: abide_registry::protocol::WIRE,
                since: clock.now(),
                lease_ms: u64::try_from(LEASE.as_millis()).unwrap(),
            },
            lease: LEASE,
            store: store.clone(),
            membership,
            agents: catalogue.clone(),
            model: model.clone(),
            executors: Executors::new(natives, kit(&clock), clock.clone()).unwrap(),
            clock,
            passivate_after: PASSIVATE_AFTER,
            policy,
            on_time: Box::new(|_, _| {}),
        };
        let life = NodeRuntime::start(ground, connect).await.unwrap();
        let conversations = life.conversations.clone();
        let hub = life.hub.clone();
        let rig = Self { conversations, store, catalogue, hub, tools, model, life };
        rig.define(agent).await;
        rig
    }

    /// Makes this the newest definition of its name.
    pub async fn define(&self, agent: &str) {
        let source = from_text(agent, Format::Yaml).unwrap();
        let parsed = Definition::parse(source, self.catalogue.natives()).unwrap();
        self.catalogue.put(parsed.definition, None).await.unwrap();
    }

    pub async fn ask(&self, id: &str, request: Request) -> Result<Reply, RequestError> {
        self.repeat(id, request, Vec::new()).await
    }

    pub async fn repeat(
        &self,
        id: &str,
        request: Request,
        repeats: Vec<IdempotencyKey>,
    ) -> Result<Reply, RequestError> {
        self.conversations.deliver(&ConversationId::new(id), request, repeats).await
    }

    pub async fn send(&self, id: &str, text: &str) -> Result<Reply, RequestError> {
        self.ask(id, say(text, IfBusy::Reject)).await
    }

    pub async fn approve(&self, id: &str, call: &str) -> Result<Reply, RequestError> {
        let answer = ResolutionAnswer::Approval { approved: true, reason: None, args: None };
        self.resolve(id, call, answer).await
    }

    pub async fn resolve(
        &self,
        id: &str,
        call: &str,
        answer: ResolutionAnswer,
    ) -> Result<Reply, RequestError> {
        let (call, by) = (CallId::new(call), Principal::new("bob"));
        self.ask(
            id,
            Request::Resolve(ResolveRequest { call, suspension: None, by, answer, remember: None }),
        )
        .await
    }

    /// Crashes its actor, if there is one.
    pub async fn kill(&self, id: &str) {
        self.conversations.kill(&ConversationId::new(id)).await.unwrap();
    }

    pub async fn quarantined(&self, id: &str) -> Option<Quarantined> {
        let sight = self.conversations.get_actor(&ConversationId::new(id)).await;
        sight.ok().flatten().and_then(|sight| sight.quarantined)
    }

    pub async fn journal(&self, id: &str) -> Vec<Event> {
        self.store.events(&ConversationId::new(id), 0, 10_000).await.unwrap()
    }

    /// Waits for an event of the journal.
    pub async fn until(&self, id: &str, is: impl Fn(&EventData) -> bool) -> Event {
        let mut signals = self.hub.subscribe(&ConversationId::new(id));
        let look = async {
            loop {
                let events = self.journal(id).await;
                if let Some(found) = events.into_iter().find(|event| is(&event.data)) {
                    return found;
                }
                signals.next().await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("the event never came")
    }

    /// The same, without being a page.
    pub async fn until_unseen(&self, id: &str, is: impl Fn(&EventData) -> bool) -> Event {
        let look = async {
            loop {
                let events = self.journal(id).await;
                if let Some(found) = events.into_iter().find(|event| is(&event.data)) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("the event never came")
    }

    /// Waits for the `n`th end of a turn; says how it ended.
    pub async fn ended(&self, id: &str, n: usize) -> (TurnOutcome, Option<String>) {
        let look = async {
            loop {
                let events = self.journal(id).await;
                let mut ends = events.into_iter().filter_map(|event| match event.data {
                    EventData::TurnEnded(ended) => Some((ended.outcome, ended.reason)),
                    _ => None,
                });
                if let Some(end) = ends.nth(n - 1) {
                    return end;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("the turn never ended")
    }

    /// Waits until the conversation's actor has left memory.
    pub async fn passivated(&self, id: &str) {
        let id = ConversationId::new(id);
        let look = async {
            while self.conversations.table().get(&id).is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("the actor never left");
    }

    /// Waits until `hold` was started so often.
    pub async fn held(&self, runs: u32) {
        let look = async {
            while self.tools.runs.load(Ordering::SeqCst) < runs {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("the tool never ran");
    }

    /// What the journal comes to.
    pub async fn state(&self, id: &str) -> State {
        replay(State::default(), &self.journal(id).await)
    }

    /// Everything that must hold of a conversation whose turns have ended.
    pub async fn check(&self, id: &str) {
        let events = self.journal(id).await;
        for (place, event) in events.iter().enumerate() {
            assert_eq!(event.seq, place as u64 + 1, "seq has no gaps");
        }
        let state = self.state(id).await;
        assert!(wanted(&state).is_empty() && state.turn.is_none(), "it settled: {state:?}");
        let loaded = self.store.load(&ConversationId::new(id)).await.unwrap().unwrap();
        assert_eq!(replay(loaded.state, &loaded.events), state, "the cache is a fold");
        for event in &events {
            let EventData::AssistantMsg(spoken) = &event.data else { continue };
            for call in &spoken.message.tool_calls {
                let results = results(&events, call.id.as_str());
                assert_eq!(results.len(), 1, "one result for {}", call.id);
            }
        }
    }
}

/// The results of a call, as envelopes.
pub fn results(events: &[Event], call: &str) -> Vec<Value> {
    let result = |event: &Event| match &event.data {
        EventData::ToolResult(result) if result.call_id.as_str() == call => {
            Some(serde_json::to_value(&result.outcome).unwrap())
        }
        _ => None,
    };
    events.iter().filter_map(result).collect()
}

pub fn say(text: &str, if_busy: IfBusy) -> Request {
    Request::Send(SendRequest {
        agent: Some(AgentName::new("a")),
        content: vec![json!({"type": "text", "text": text})],
        message_id: None,
        principal: Principal::new("ada"),
        assigns: Default::default(),
        shape: AnswerFormat::Agent,
        if_busy,
    })
}

struct Hold(Tools);
struct Nap(Tools);
struct Boom;
struct Halt;
struct Echo;

#[async_trait]
impl NativeTool for Hold {
    fn description(&self) -> String {
        "Holds until it is released.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, context: Context<'_>) -> ToolReturn {
        self.0.note(&context);
        self.0.runs.fetch_add(1, Ordering::SeqCst);
        self.0.release.acquire().await.unwrap().forget();
        ToolReturn::ok(json!({"attempt": context.attempt, "principal": context.principal}))
    }
}

#[async_trait]
impl NativeTool for Nap {
    fn description(&self) -> String {
        "Takes its time.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]})
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        self.0.note(&context);
        let ms = args["ms"].as_u64().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        ToolReturn::ok(json!({"attempt": context.attempt}))
    }
}

#[async_trait]
impl NativeTool for Boom {
    fn description(&self) -> String {
        "Panics.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, _context: Context<'_>) -> ToolReturn {
        panic!("secret");
    }
}

#[async_trait]
impl NativeTool for Halt {
    fn description(&self) -> String {
        "Halts the turn.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, _context: Context<'_>) -> ToolReturn {
        ToolReturn::halt("enough")
    }
}

#[async_trait]
impl NativeTool for Echo {
    fn description(&self) -> String {
        "Says what it was told.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "m"}},
            "required": ["n"],
        })
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        ToolReturn::ok(json!({"args": args, "assigns": context.assigns}))
    }
}

/// A subscription that counts as an open page.
pub fn page(rig: &Rig, id: &str) -> live::Subscription {
    rig.hub.subscribe(&ConversationId::new(id))
}
