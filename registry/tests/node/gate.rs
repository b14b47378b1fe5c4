//! No path leads around the gate: every executor and kind of `run`, every way to be refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abide_actors::journal::{Commit, Holder, Journal};
use abide_actors::request::{DispatchRequest, Reply, Request, RequestError};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{ConversationId, Principal};
use abide_registry::store::memory::Memory;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::sub_agents::{KID, all_conversations, inbox};
use crate::test_node::{TestNode, results};

/// Where the calls are refused.
const ID: &str = "x";

/// A server of HTTP tools that counts its calls.
struct Server {
    url: String,
    calls: Arc<AtomicU32>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicU32::new(0));
        let seen = calls.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked).await;
                let _ =
                    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            }
        });
        Self { url, calls }
    }
}

/// A kind of tool: its name, how it is declared, and what it is called with.
struct Kind {
    name: &'static str,
    entry: Value,
    args: Value,
    /// Whether it may be called while the conversation plans.
    plans: bool,
}

impl Kind {
    fn is_server(&self) -> bool {
        self.entry["executor"].is_null()
    }

    /// Whether a person may have to approve it.
    fn may_ask(&self) -> bool {
        self.entry["executor"].is_null() || self.entry["executor"] == "client"
    }
}

/// One of every executor and kind of `run`; the last one changes the phase for those after it.
fn kinds(url: &str) -> Vec<Kind> {
    let kind = |name, entry, args| Kind { name, entry, args, plans: false };
    let builtin =
        |name, args, plans| Kind { name, entry: json!({"run": {"builtin": name}}), args, plans };
    let prompt = json!({"prompt": "tea"});
    vec![
        kind("http", json!({"run": {"http": {"url": url}}}), json!({"a": 1})),
        kind("native", json!({"run": {"native": "nap"}}), json!({"ms": 0})),
        kind("agent", json!({"run": {"agent": "kid"}}), prompt.clone()),
        builtin("read", json!({"path": "there"}), true),
        builtin("glob", json!({"pattern": "*"}), true),
        builtin("grep", json!({"pattern": "a"}), true),
        builtin("write", json!({"path": "there", "content": "a"}), false),
        builtin("edit", json!({"path": "there", "old_string": "a", "new_string": "b"}), false),
        builtin("bash", json!({"command": "true"}), false),
        builtin("web_fetch", json!({"url": url}), true),
        builtin("todo_write", json!({"todos": [{"content": "a", "status": "pending"}]}), false),
        builtin("spawn_agent", json!({"prompt": "tea", "agent": "kid"}), true),
        kind("human", json!({"executor": "human"}), json!({})),
        kind("page", json!({"executor": "client"}), json!({})),
        kind("silent", json!({"executor": "client", "requires_response": false}), json!({})),
        kind("hosted", json!({"executor": "provider"}), json!({})),
        builtin("plan_mode", json!({"action": "enter"}), true),
    ]
}

fn agent(kinds: &[Kind], permissions: &Value, approval: Option<&str>) -> String {
    let tools = kinds.iter().map(|kind| {
        let mut entry = kind.entry.clone();
        entry["name"] = json!(kind.name);
        if kind.is_server() {
            entry["audience"] = json!("all");
        }
        if let Some(approval) = approval.filter(|_| kind.may_ask()) {
            entry["approval"] = json!(approval);
        }
        entry
    });
    let call = |kind: &Kind| json!({"id": kind.name, "name": kind.name, "args": kind.args});
    let calls: Vec<Value> = kinds.iter().map(call).collect();
    json!({
        "name": "a",
        "permissions": permissions,
        "model": {"provider": "scripted", "script": [{"calls": calls}, {"text": "Well."}]},
        "tools": tools.collect::<Vec<_>>(),
    })
    .to_string()
}

async fn start_node(agent: &str) -> TestNode {
    let node = TestNode::new(agent).await;
    node.define(KID).await;
    node
}

fn dispatch(kind: &Kind, approved: bool) -> Request {
    let (tool, input, principal) = (kind.name.to_owned(), kind.args.clone(), Principal::new("ada"));
    Request::Dispatch(DispatchRequest { tool, input, approved, principal })
}

fn verdict_of(events: &[Event], call: &str) -> Verdict {
    let verdict = events.iter().find_map(|event| match &event.data {
        EventData::ToolCall(planned) if planned.call_id.as_str() == call => planned.gate.clone(),
        _ => None,
    });
    verdict.unwrap_or_else(|| panic!("the gate was not asked about {call}"))
}

fn refusal(tool: &str, rule: &str) -> Outcome {
    let error = format!("permission denied: {tool} is refused by {rule}");
    Outcome::Err(error, ErrorType::PermissionDenied)
}

fn envelope(outcome: &Outcome) -> Value {
    serde_json::to_value(outcome).unwrap()
}

/// Nothing that any kind of tool does has happened.
async fn check_nothing_happened(node: &TestNode, server: &Server) {
    assert_eq!(server.calls.load(Ordering::SeqCst), 0, "the server was called");
    assert!(node.tools.started.lock().unwrap().is_empty(), "the native tool ran");
    assert_eq!(all_conversations(node).await, [ID], "a child was asked");
    for event in node.journal(ID).await {
        let changes = matches!(
            event.data,
            EventData::PhaseChanged(_)
                | EventData::TodosChanged(_)
                | EventData::WorkspaceOpened(_)
                | EventData::ChildStarted(_)
                | EventData::ToolStarted(_)
                | EventData::DispatchStarted(_)
        );
        assert!(!changes, "{event:?}");
    }
}

#[tokio::test]
async fn no_tool_of_any_kind_does_what_a_list_or_the_phase_refuses() {
    let names = |kinds: &[Kind]| kinds.iter().map(|kind| kind.name).collect::<Vec<_>>();
    let server = Server::start().await;
    let all = kinds(&server.url);
    let refused: Vec<Kind> = kinds(&server.url).into_iter().filter(|kind| !kind.plans).collect();
    for (kinds, permissions, rule) in [
        (&all, json!({"disallowed_tools": names(&all)}), "disallowed_tools"),
        (&all, json!({"allowed_tools": ["another"]}), "allowed_tools"),
        (&all, json!({"allowed_tools": [], "phase": "bypass_permissions"}), "allowed_tools"),
        (&refused, json!({"phase": "plan"}), "phase: plan"),
    ] {
        for approval in [None, Some("requires_approval")] {
            let node = start_node(&agent(kinds, &permissions, approval)).await;
            node.send(ID, "go").await.unwrap();
            node.turn_end(ID, 1).await;
            let events = node.journal(ID).await;
            for kind in kinds.iter() {
                let refused = refusal(kind.name, rule);
                assert_eq!(results(&events, kind.name), [envelope(&refused)]);
                let verdict = verdict_of(&events, kind.name);
                assert_eq!((verdict.decision, verdict.rule.as_str()), (Decision::Deny, rule));
            }
            for kind in kinds.iter().filter(|kind| kind.is_server()) {
                for approved in [false, true] {
                    let reply = node.deliver(ID, dispatch(kind, approved)).await.unwrap();
                    let outcome = refusal(kind.name, rule);
                    assert_eq!(reply, Reply::Dispatched { outcome, ui: None });
                }
                let said = node.journal(ID).await.pop().unwrap();
                let EventData::Dispatch(done) = said.data else { panic!("{said:?}") };
                assert_eq!(done.gate.unwrap().rule, rule);
            }
            assert!(!events.iter().any(|event| matches!(event.data, EventData::Suspension(_))));
            check_nothing_happened(&node, &server).await;
            node.check(ID).await;
        }
    }
}

async fn all_wait(node: &TestNode, how_many: usize) {
    let look = async {
        while inbox(node).await.len() < how_many {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), look).await.expect("too few wait");
}

#[tokio::test]
async fn no_tool_does_what_a_person_denied_or_was_not_asked_about() {
    let server = Server::start().await;
    let kinds: Vec<Kind> = kinds(&server.url).into_iter().filter(Kind::may_ask).collect();
    let node = start_node(&agent(&kinds, &json!({}), Some("requires_approval"))).await;
    node.send(ID, "go").await.unwrap();
    all_wait(&node, kinds.len()).await;
    for kind in kinds.iter().filter(|kind| kind.is_server()) {
        let refused = node.deliver(ID, dispatch(kind, false)).await;
        assert_eq!(refused, Err(RequestError::ApprovalRequired(kind.name.to_owned())));
    }
    check_nothing_happened(&node, &server).await;
    for kind in &kinds {
        let answer = ResolutionAnswer::Approval { approved: false, reason: None, args: None };
        node.resolve(ID, kind.name, answer).await.unwrap();
    }
    node.turn_end(ID, 1).await;
    let events = node.journal(ID).await;
    let denied = Outcome::Err("denied by approver".to_owned(), ErrorType::Denied);
    for kind in &kinds {
        assert_eq!(results(&events, kind.name), [envelope(&denied)]);
        let verdict = verdict_of(&events, kind.name);
        let rule = "approval: requires_approval";
        assert_eq!((verdict.decision, verdict.rule.as_str()), (Decision::Ask, rule));
    }
    check_nothing_happened(&node, &server).await;
    node.check(ID).await;
}

#[tokio::test]
async fn arguments_that_an_approver_edits_pass_the_gate_as_it_is_by_then() {
    let server = Server::start().await;
    let all = kinds(&server.url).into_iter();
    let mut kinds: Vec<Kind> = all.filter(|kind| kind.may_ask() && !kind.plans).collect();
    for kind in &mut kinds {
        kind.entry["approval"] = json!("requires_approval");
    }
    let enters = json!({"run": {"builtin": "plan_mode"}});
    let args = json!({"action": "enter"});
    kinds.push(Kind { name: "plan_mode", entry: enters, args, plans: true });
    let node = start_node(&agent(&kinds, &json!({}), None)).await;
    node.send(ID, "go").await.unwrap();
    node.poll_for_event(ID, |data| matches!(data, EventData::PhaseChanged(_))).await;
    kinds.pop();
    all_wait(&node, kinds.len()).await;
    for kind in &kinds {
        let args = Some(kind.args.clone());
        let answer = ResolutionAnswer::Approval { approved: true, reason: None, args };
        node.resolve(ID, kind.name, answer).await.unwrap();
        let events = node.journal(ID).await;
        let refused = refusal(kind.name, "phase: plan");
        assert_eq!(results(&events, kind.name), [envelope(&refused)]);
        let judged = events.iter().rev().find_map(|event| match &event.data {
            EventData::Resolution(resolution) => resolution.gate.clone(),
            _ => None,
        });
        assert_eq!(judged.unwrap().decision, Decision::Deny);
    }
    node.turn_end(ID, 1).await;
    assert_eq!(server.calls.load(Ordering::SeqCst), 0);
    assert!(
        node.tools.started.lock().unwrap().is_empty() && all_conversations(&node).await == [ID]
    );
    node.check(ID).await;
}

/// The counterpart, without which the others would prove nothing.
#[tokio::test]
async fn what_the_gate_lets_through_happens_whatever_its_kind() {
    let server = Server::start().await;
    let kinds = kinds(&server.url);
    let node = start_node(&agent(&kinds, &json!({}), None)).await;
    node.send(ID, "go").await.unwrap();
    let done = |data: &EventData| matches!(data, EventData::ToolResult(_));
    for kind in kinds.iter().filter(|kind| !["human", "page"].contains(&kind.name)) {
        let is = |data: &EventData| {
            done(data)
                && matches!(data, EventData::ToolResult(it) if it.call_id.as_str() == kind.name)
        };
        node.poll_for_event(ID, is).await;
    }
    let events = node.journal(ID).await;
    for kind in &kinds {
        assert_eq!(verdict_of(&events, kind.name).decision, Decision::Allow);
        let denied =
            results(&events, kind.name).iter().any(|it| it["error_type"] == "PERMISSION_DENIED");
        assert!(!denied, "{}", kind.name);
    }
    assert!(server.calls.load(Ordering::SeqCst) >= 1);
    assert_eq!(node.tools.started.lock().unwrap().len(), 1);
    assert_eq!(all_conversations(&node).await.len(), 3, "two children");
    assert_eq!(inbox(&node).await.len(), 2, "a person and a page");
    assert!(events.iter().any(|event| matches!(event.data, EventData::TodosChanged(_))));
    assert!(events.iter().any(|event| matches!(event.data, EventData::PhaseChanged(_))));
}

#[tokio::test]
async fn a_users_own_call_runs_with_the_approval_that_it_brings() {
    let server = Server::start().await;
    let kinds: Vec<Kind> = kinds(&server.url).into_iter().filter(Kind::is_server).collect();
    let silent = r#"{"name": "a", "model": {"provider": "scripted", "script": []}}"#;
    let node = start_node(silent).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    node.define(&agent(&kinds, &json!({}), Some("requires_approval"))).await;
    for kind in &kinds {
        let reply = node.deliver(ID, dispatch(kind, true)).await.unwrap();
        let Reply::Dispatched { outcome, .. } = reply else { panic!("{reply:?}") };
        let denied = matches!(outcome, Outcome::Err(_, ErrorType::PermissionDenied));
        assert!(!denied, "{}", kind.name);
    }
    let events = node.journal(ID).await;
    let started = events.iter().filter_map(|event| match &event.data {
        EventData::DispatchStarted(started) => started.gate.clone(),
        _ => None,
    });
    let asked = started.filter(|verdict| verdict.decision == Decision::Ask).count();
    assert_eq!(asked, kinds.len());
    assert!(server.calls.load(Ordering::SeqCst) >= 1);
    assert_eq!(node.tools.started.lock().unwrap().len(), 1);
    assert_eq!(all_conversations(&node).await.len(), 3);
}

/// A rig over the journal of another, cut after the first event that `is`, which was changed.
async fn forged(
    agent: &str,
    of: &TestNode,
    is: fn(&EventData) -> bool,
    tamper: fn(&mut EventData),
) -> TestNode {
    let mut events = of.journal(ID).await;
    let last = events.iter().position(|event| is(&event.data)).unwrap();
    events.truncate(last + 1);
    tamper(&mut events[last].data);
    let store = Arc::new(Memory::default());
    let id = ConversationId::new(ID);
    let before = Holder { node: "n".to_owned(), incarnation: "0".to_owned() };
    let held = store.claim(&id, &before, None).await.unwrap();
    let mut head = of.store.head(&id).await.unwrap().unwrap();
    head.last_seq = last as u64 + 1;
    let (opened, closed, state, answers) = Default::default();
    let events = events.into();
    let commit = Commit { events, head, opened, closed, state, answers };
    store.append(&id, &held, commit).await.unwrap();
    store.release(&id, &held).await.unwrap();
    let node = TestNode::with_store(store, agent).await;
    node.define(KID).await;
    node
}

/// Changes the arguments under a verdict.
fn forge(data: &mut EventData) {
    let other = json!({"ms": 1, "a": 2, "prompt": "coffee", "path": "elsewhere", "action": "exit"});
    match data {
        EventData::ToolCall(call) => call.args = other,
        EventData::DispatchStarted(run) => run.input = other,
        _ => unreachable!(),
    }
}

/// What a call of a revived conversation comes to.
async fn outcome(node: &TestNode, done: fn(&EventData) -> Option<&Outcome>) -> Outcome {
    node.deliver(ID, Request::Wake).await.unwrap();
    let event = node.poll_for_event(ID, |data| done(data).is_some()).await;
    done(&event.data).cloned().unwrap()
}

fn model_call_done(data: &EventData) -> Option<&Outcome> {
    match data {
        EventData::ToolResult(result) => Some(&result.outcome),
        _ => None,
    }
}

fn users_call_done(data: &EventData) -> Option<&Outcome> {
    match data {
        EventData::Dispatch(done) => Some(&done.result),
        _ => None,
    }
}

#[tokio::test]
async fn a_verdict_permits_its_own_arguments_and_no_others() {
    let server = Server::start().await;
    let why = "permission denied: the gate gave no leave".to_owned();
    let refused = Outcome::Err(why, ErrorType::PermissionDenied);
    for kind in kinds(&server.url).into_iter().filter(Kind::is_server) {
        let (name, agent) = (kind.name, agent(std::slice::from_ref(&kind), &json!({}), None));
        let of = start_node(&agent).await;
        of.send(ID, "go").await.unwrap();
        of.turn_end(ID, 1).await;
        of.deliver(ID, dispatch(&kind, false)).await.unwrap();
        type Ways = [(fn(&EventData) -> bool, fn(&EventData) -> Option<&Outcome>); 2];
        let ways: Ways = [
            (|data| matches!(data, EventData::ToolCall(_)), model_call_done),
            (|data| matches!(data, EventData::DispatchStarted(_)), users_call_done),
        ];
        for (is, done) in ways {
            let honest = forged(&agent, &of, is, |_| {}).await;
            assert_ne!(outcome(&honest, done).await, refused, "{name}");
            server.calls.store(0, Ordering::SeqCst);
            let node = forged(&agent, &of, is, forge).await;
            assert_eq!(outcome(&node, done).await, refused, "{name}");
            assert_eq!(server.calls.load(Ordering::SeqCst), 0, "{name}");
            assert!(node.tools.started.lock().unwrap().is_empty(), "{name}");
            for id in all_conversations(&node).await.iter().filter(|id| *id != ID) {
                assert_eq!(node.state(id).await.turns, 0, "a child that may have been is stopped");
            }
        }
    }
}
