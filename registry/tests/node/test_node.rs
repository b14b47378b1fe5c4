//! One node without HTTP; only its clock, its store and its model are made for tests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::agent::{Format, from_text};
use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::exec::{Launcher, Limits, Sandbox, Shell};
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_actors::request::{
    IdempotencyKey, Reply, Request, RequestError, ResolveRequest, SendRequest,
};
use abide_actors::services::Executors;
use abide_actors::tools::{BuiltinServices, Extensions};
use abide_actors::web_fetch::Fetcher;
use abide_actors::webhooks::NoticeSender;
use abide_actors::workspace::Workspaces;
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{AnswerFormat, Event, EventData, TurnOutcome};
use abide_conversation::{
    AgentName, CallId, Principal, Scoped, Seq, State, Tenant, replay, wanted,
};
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::host::{HostMsg, Quarantined};
use abide_registry::live::{self, Hub};
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, MemberState, Membership};
use abide_registry::notices::webhook_catalog::WebhookCatalog;
use abide_registry::peers::Peers;
use abide_registry::placement::Policy;
use abide_registry::router::ConversationRouter;
use abide_registry::runtime::{NodeRuntime, RuntimeDeps};
use abide_registry::standalone::Standalone;
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;
use ractor::ActorRef;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::elicitation::Seat;
pub use crate::test_clock::clock;
pub use crate::test_model::TestModel;
pub use crate::test_tools::TestTools;
use crate::test_tools::{Boom, Echo, Halt, Hold, Nap};

/// How long a silent node still counts as alive.
pub const LEASE: Duration = Duration::from_secs(5);
/// How long an idle actor stays in memory.
pub const PASSIVATE_AFTER: Duration = Duration::from_secs(30);
/// Generous, since paused time advances as soon as every task waits: no test waits for it in real
/// time.
const DEADLINE: Duration = Duration::from_secs(7_200);

pub struct TestNode {
    pub conversations: ConversationRouter,
    pub store: Arc<dyn Store>,
    pub catalog: Arc<AgentCatalog>,
    pub hub: Hub,
    pub tools: TestTools,
    pub model: Arc<TestModel>,
    pub runtime: NodeRuntime,
}

/// What a test node is built from.
pub struct TestNodeDeps {
    pub clock: Arc<dyn Clock>,
    pub store: Arc<dyn Store>,
    pub membership: Arc<dyn Membership>,
    pub holder: Holder,
    pub policy: Policy,
    pub extensions: Extensions,
}

/// The directory of this process below which the workspaces are.
pub fn builtin_base() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("abide-shell-{}", std::process::id()))
}

/// Services for the built-in tools: files live below a directory of this process, and no command
/// can be started.
fn builtin_services(clock: &Arc<dyn Clock>) -> BuiltinServices {
    let base = builtin_base();
    let shell = Shell::new(Launcher::of("/nowhere"), Sandbox::Off, Limits::default());
    BuiltinServices {
        workspaces: Arc::new(Workspaces::new(base, clock.clone())),
        shell: Arc::new(shell),
        fetcher: Fetcher::new().unwrap(),
    }
}

impl TestNode {
    /// A node with one agent, `a`, of this definition.
    pub async fn new(agent: &str) -> Self {
        Self::with_store(Arc::new(Memory::default()), agent).await
    }

    pub async fn with_store(store: Arc<dyn Store>, agent: &str) -> Self {
        Self::with_extensions(Extensions::new(), store, agent).await
    }

    pub async fn with_extensions(
        extensions: Extensions,
        store: Arc<dyn Store>,
        agent: &str,
    ) -> Self {
        Self::alone((clock(), extensions, store), agent).await
    }

    pub async fn with_clock(clock: Arc<dyn Clock>, agent: &str) -> Self {
        Self::alone((clock, Extensions::new(), Arc::new(Memory::default())), agent).await
    }

    async fn alone(
        (clock, extensions, store): (Arc<dyn Clock>, Extensions, Arc<dyn Store>),
        agent: &str,
    ) -> Self {
        let standalone = Arc::new(Standalone::default());
        let deps = TestNodeDeps {
            clock,
            store,
            membership: standalone.clone(),
            holder: Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") },
            policy: Policy::Local,
            extensions,
        };
        Self::start(deps, agent, |_, _| async { Ok(standalone as Arc<dyn Peers>) }).await
    }

    /// One node of a cluster.
    pub async fn start<F>(
        deps: TestNodeDeps,
        agent: &str,
        connect: impl FnOnce(ActorRef<HostMsg>, watch::Receiver<Vec<Member>>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Arc<dyn Peers>, String>>,
    {
        let TestNodeDeps { clock, store, membership, holder, policy, extensions } = deps;
        let tools = TestTools::default();
        let extensions = extensions
            .with_tool("hold", Hold(tools.clone()))
            .with_tool("nap", Nap(tools.clone()))
            .with_tool("boom", Boom)
            .with_tool("halt", Halt)
            .with_tool("echo", Echo)
            .with_tool("seat", Seat)
            .with_hooks(crate::hooks::hooks(&tools));
        let catalog = AgentCatalog::new(store.clone(), Arc::new(extensions.clone()), clock.clone());
        let catalog = Arc::new(catalog);
        let model = Arc::new(TestModel::default());
        let clock_of_notices = clock.clone();
        let runtime_deps = RuntimeDeps {
            me: Member {
                process: ProcessId::new(holder.to_string()),
                holder,
                address: String::new(),
                state: MemberState::Up,
                live_actors: 0,
                version: String::new(),
                protocol_version: abide_registry::protocol::PROTOCOL_VERSION,
                handshake_version: abide_registry::protocol::HANDSHAKE_VERSION,
                live_directory_version: abide_registry::protocol::LIVE_DIRECTORY_VERSION,
                stored_form_version: abide_registry::protocol::STORED_FORM_VERSION,
                cookie: None,
                auth: None,
                ports: Vec::new(),
                since: clock.now(),
                lease_ms: u64::try_from(LEASE.as_millis()).unwrap(),
            },
            lease: LEASE,
            store: store.clone(),
            membership,
            agents: catalog.clone(),
            model: model.clone(),
            credentials: Arc::new(abide_actors::credentials::NoCredentials),
            executors: Executors::new(
                extensions,
                builtin_services(&clock),
                builtin_base().join(".mcp"),
                clock.clone(),
            )
            .unwrap(),
            clock,
            passivate_after: PASSIVATE_AFTER,
            policy,
            on_time: Box::new(|_, _| {}),
            webhooks: Arc::new(WebhookCatalog::new(store.clone())),
            notice_sender: Arc::new(NoticeSender::new(clock_of_notices, None).unwrap()),
            links: None,
        };
        let runtime = NodeRuntime::start(runtime_deps, connect).await.unwrap();
        let conversations = runtime.conversations.clone();
        let hub = runtime.hub.clone();
        let node = Self { conversations, store, catalog, hub, tools, model, runtime };
        node.define(agent).await;
        node
    }

    /// Publishes this definition as the newest of its name.
    pub async fn define(&self, agent: &str) {
        self.define_for(&Tenant::default(), agent).await;
    }

    /// Publishes this definition as the newest of its name in a tenant.
    pub async fn define_for(&self, tenant: &Tenant, agent: &str) {
        let source = from_text(agent, Format::Yaml).unwrap();
        let parsed = Definition::parse(source, self.catalog.natives()).unwrap();
        self.catalog.put(tenant, parsed.definition, None).await.unwrap();
    }

    pub async fn deliver(&self, id: &str, request: Request) -> Result<Reply, RequestError> {
        self.deliver_keyed(id, request, Vec::new()).await
    }

    pub async fn deliver_keyed(
        &self,
        id: &str,
        request: Request,
        keys: Vec<IdempotencyKey>,
    ) -> Result<Reply, RequestError> {
        self.conversations.deliver(&Scoped::parse(id).unwrap(), request, keys).await
    }

    pub async fn send(&self, id: &str, text: &str) -> Result<Reply, RequestError> {
        self.deliver(id, user_message(text, IfBusy::Reject)).await
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
        let resolution = ResolveRequest {
            call: CallId::new(call),
            suspension: None,
            by: Principal::new("bob"),
            answer,
            remember: None,
        };
        self.deliver(id, Request::Resolve(resolution)).await
    }

    /// Crashes the conversation's actor, if there is one.
    pub async fn kill(&self, id: &str) {
        self.conversations.kill(&Scoped::parse(id).unwrap()).await.unwrap();
    }

    pub async fn quarantine(&self, id: &str) -> Option<Quarantined> {
        let details = self.conversations.get_actor(&Scoped::parse(id).unwrap()).await;
        details.ok().flatten().and_then(|details| details.quarantined)
    }

    pub async fn journal(&self, id: &str) -> Vec<Event> {
        self.store.events(&Scoped::parse(id).unwrap(), Seq::ZERO, 10_000).await.unwrap()
    }

    /// Waits for a journalled event. Its subscription counts as a connected client.
    pub async fn wait_for_event(&self, id: &str, matches: impl Fn(&EventData) -> bool) -> Event {
        let mut signals = self.hub.subscribe(&Scoped::parse(id).unwrap());
        let event = async {
            loop {
                let events = self.journal(id).await;
                if let Some(found) = events.into_iter().find(|event| matches(&event.data)) {
                    return found;
                }
                signals.next().await;
            }
        };
        tokio::time::timeout(DEADLINE, event).await.expect("the event never came")
    }

    /// Waits for a journalled event without a subscription, and so without counting as a client.
    pub async fn poll_for_event(&self, id: &str, matches: impl Fn(&EventData) -> bool) -> Event {
        let event = async {
            loop {
                let events = self.journal(id).await;
                if let Some(found) = events.into_iter().find(|event| matches(&event.data)) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, event).await.expect("the event never came")
    }

    /// Waits for the end of the `n`th turn. Returns its outcome and reason.
    pub async fn turn_end(&self, id: &str, n: usize) -> (TurnOutcome, Option<String>) {
        let nth_end = async {
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
        tokio::time::timeout(DEADLINE, nth_end).await.expect("the turn never ended")
    }

    /// Waits until the conversation's actor has left memory.
    pub async fn wait_until_passivated(&self, id: &str) {
        let id = Scoped::parse(id).unwrap();
        let passivated = async {
            while self.conversations.table().get(&id).is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, passivated).await.expect("the actor never left memory");
    }

    /// Waits until `hold` was started this often.
    pub async fn wait_for_holds(&self, runs: u32) {
        let started = async {
            while self.tools.runs.load(Ordering::SeqCst) < runs {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, started).await.expect("the tool never ran");
    }

    /// The state that the journal folds to.
    pub async fn state(&self, id: &str) -> State {
        replay(State::default(), &self.journal(id).await)
    }

    /// Checks everything that must hold for a conversation whose turns have ended.
    pub async fn check(&self, id: &str) {
        let events = self.journal(id).await;
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event.seq.get(), index as u64 + 1, "seq has a gap");
        }
        let state = self.state(id).await;
        assert!(
            wanted(&state).is_empty() && state.turn.is_none(),
            "the conversation has not settled: {state:?}"
        );
        let loaded = self.store.load(&Scoped::parse(id).unwrap()).await.unwrap().unwrap();
        assert_eq!(
            replay(loaded.state, &loaded.events),
            state,
            "the cached state differs from the journal's fold"
        );
        for event in &events {
            let EventData::AssistantMsg(reply) = &event.data else { continue };
            for call in &reply.message.tool_calls {
                let results = results(&events, call.id.as_str());
                assert_eq!(results.len(), 1, "{} has not exactly one result", call.id);
            }
        }
    }
}

/// The results of a call, as JSON envelopes.
pub fn results(events: &[Event], call: &str) -> Vec<Value> {
    let result = |event: &Event| match &event.data {
        EventData::ToolResult(result) if result.call_id.as_str() == call => {
            Some(serde_json::to_value(&result.outcome).unwrap())
        }
        _ => None,
    };
    events.iter().filter_map(result).collect()
}

pub fn user_message(text: &str, if_busy: IfBusy) -> Request {
    Request::Send(SendRequest {
        agent: Some(AgentName::new("a")),
        content: vec![json!({"type": "text", "text": text})],
        message_id: None,
        principal: Principal::new("ada"),
        assigns: Default::default(),
        answer_format: AnswerFormat::Agent,
        tools: Default::default(),
        context: Vec::new(),
        if_busy,
    })
}

/// Subscribes to a conversation; the subscription counts as a connected client.
pub fn connect_client(node: &TestNode, id: &str) -> live::Subscription {
    node.hub.subscribe(&Scoped::parse(id).unwrap())
}
