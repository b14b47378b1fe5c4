//! No path leads around the gate: every executor, every kind of `run`, and every reason to refuse a
//! call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, Holder, Journal};
use abide_actors::request::{DispatchRequest, Reply, Request, RequestError};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{Principal, Scoped, Seq};
use abide_registry::store::memory::Memory;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::sub_agents::{KID, all_conversations, inbox};
use crate::test_node::{TestNode, results};

/// The conversation whose calls are checked.
const ID: &str = "x";

/// A server for HTTP tools that counts its calls. Requests for other paths are not counted: they
/// come from another process, which had a server at this port before.
struct Server {
    url: String,
    calls: Arc<AtomicU32>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let path = format!("/{}", std::process::id());
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicU32::new(0));
        let count = calls.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap_or_default();
                if String::from_utf8_lossy(&request[..length]).contains(&path) {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let _ =
                    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            }
        });
        Self { url, calls }
    }
}

/// One kind of tool: its name, its definition entry, and the arguments of its call.
struct ToolCase {
    name: &'static str,
    entry: Value,
    args: Value,
    /// Whether phase `plan` allows the tool.
    allowed_in_plan: bool,
}

impl ToolCase {
    fn is_server(&self) -> bool {
        self.entry["executor"].is_null()
    }

    /// Whether the definition may require an approval for the tool.
    fn needs_approval(&self) -> bool {
        self.entry["executor"].is_null() || self.entry["executor"] == "client"
    }
}

/// One tool of every executor and kind of `run`. The last one changes the phase for the calls after
/// it.
fn cases(url: &str) -> Vec<ToolCase> {
    let case = |name, entry, args| ToolCase { name, entry, args, allowed_in_plan: false };
    let builtin = |name, args, allowed_in_plan| ToolCase {
        name,
        entry: json!({"run": {"builtin": name}}),
        args,
        allowed_in_plan,
    };
    let prompt = json!({"prompt": "tea"});
    vec![
        case("http", json!({"run": {"http": {"url": url}}}), json!({"a": 1})),
        case("native", json!({"run": {"native": "nap"}}), json!({"ms": 0})),
        case("agent", json!({"run": {"agent": "kid"}}), prompt.clone()),
        builtin("read", json!({"path": "there"}), true),
        builtin("glob", json!({"pattern": "*"}), true),
        builtin("grep", json!({"pattern": "a"}), true),
        builtin("write", json!({"path": "there", "content": "a"}), false),
        builtin("edit", json!({"path": "there", "old_string": "a", "new_string": "b"}), false),
        builtin("bash", json!({"command": "true"}), false),
        builtin("web_fetch", json!({"url": url}), true),
        builtin("todo_write", json!({"todos": [{"content": "a", "status": "pending"}]}), false),
        builtin("spawn_agent", json!({"prompt": "tea", "agent": "kid"}), true),
        case("human", json!({"executor": "human"}), json!({})),
        case("page", json!({"executor": "client"}), json!({})),
        case("silent", json!({"executor": "client", "requires_response": false}), json!({})),
        case("hosted", json!({"executor": "provider"}), json!({})),
        builtin("plan_mode", json!({"action": "enter"}), true),
    ]
}

fn agent(cases: &[ToolCase], permissions: &Value, approval: Option<&str>) -> String {
    let tools = cases.iter().map(|case| {
        let mut entry = case.entry.clone();
        entry["name"] = json!(case.name);
        if case.is_server() {
            entry["audience"] = json!("all");
        }
        if let Some(approval) = approval.filter(|_| case.needs_approval()) {
            entry["approval"] = json!(approval);
        }
        entry
    });
    let call = |case: &ToolCase| json!({"id": case.name, "name": case.name, "args": case.args});
    let calls: Vec<Value> = cases.iter().map(call).collect();
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

fn dispatch(case: &ToolCase, approved: bool) -> Request {
    let tool = case.name.to_owned();
    let input = case.args.clone();
    let principal = Principal::new("ada");
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

/// Checks that no tool of any kind has had an effect.
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
    let names = |cases: &[ToolCase]| cases.iter().map(|case| case.name).collect::<Vec<_>>();
    let server = Server::start().await;
    let all = cases(&server.url);
    let refused: Vec<ToolCase> =
        cases(&server.url).into_iter().filter(|case| !case.allowed_in_plan).collect();
    for (cases, permissions, rule) in [
        (&all, json!({"disallowed_tools": names(&all)}), "disallowed_tools"),
        (&all, json!({"allowed_tools": ["another"]}), "allowed_tools"),
        (&all, json!({"allowed_tools": [], "phase": "bypass_permissions"}), "allowed_tools"),
        (&refused, json!({"phase": "plan"}), "phase: plan"),
    ] {
        for approval in [None, Some("requires_approval")] {
            let node = start_node(&agent(cases, &permissions, approval)).await;
            node.send(ID, "go").await.unwrap();
            node.turn_end(ID, 1).await;
            let events = node.journal(ID).await;
            for case in cases.iter() {
                let refused = refusal(case.name, rule);
                assert_eq!(results(&events, case.name), [envelope(&refused)]);
                let verdict = verdict_of(&events, case.name);
                assert_eq!((verdict.decision, verdict.rule.as_str()), (Decision::Deny, rule));
            }
            for case in cases.iter().filter(|case| case.is_server()) {
                for approved in [false, true] {
                    let reply = node.deliver(ID, dispatch(case, approved)).await.unwrap();
                    let outcome = refusal(case.name, rule);
                    assert_eq!(reply, Reply::Dispatched { outcome, ui: None });
                }
                let dispatched = node.journal(ID).await.pop().unwrap();
                let EventData::DispatchFinished(done) = dispatched.data else {
                    panic!("{dispatched:?}")
                };
                assert_eq!(done.verdict.unwrap().rule, rule);
            }
            assert!(!events.iter().any(|event| matches!(event.data, EventData::Suspension(_))));
            check_nothing_happened(&node, &server).await;
            node.check(ID).await;
        }
    }
}

async fn wait_for_inbox(node: &TestNode, size: usize) {
    let filled = async {
        while inbox(node).await.len() < size {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), filled)
        .await
        .expect("too few suspensions are open");
}

#[tokio::test]
async fn no_tool_does_what_a_person_denied_or_was_not_asked_about() {
    let server = Server::start().await;
    let cases: Vec<ToolCase> =
        cases(&server.url).into_iter().filter(ToolCase::needs_approval).collect();
    let node = start_node(&agent(&cases, &json!({}), Some("requires_approval"))).await;
    node.send(ID, "go").await.unwrap();
    wait_for_inbox(&node, cases.len()).await;
    for case in cases.iter().filter(|case| case.is_server()) {
        let refused = node.deliver(ID, dispatch(case, false)).await;
        assert_eq!(refused, Err(RequestError::ApprovalRequired(case.name.to_owned())));
    }
    check_nothing_happened(&node, &server).await;
    for case in &cases {
        let answer = ResolutionAnswer::Approval { approved: false, reason: None, args: None };
        node.resolve(ID, case.name, answer).await.unwrap();
    }
    node.turn_end(ID, 1).await;
    let events = node.journal(ID).await;
    let denied = Outcome::Err("denied by approver".to_owned(), ErrorType::Denied);
    for case in &cases {
        assert_eq!(results(&events, case.name), [envelope(&denied)]);
        let verdict = verdict_of(&events, case.name);
        let rule = "approval: requires_approval";
        assert_eq!((verdict.decision, verdict.rule.as_str()), (Decision::Ask, rule));
    }
    check_nothing_happened(&node, &server).await;
    node.check(ID).await;
}

#[tokio::test]
async fn arguments_that_an_approver_edits_pass_the_gate_as_it_is_by_then() {
    let server = Server::start().await;
    let all = cases(&server.url).into_iter();
    let mut cases: Vec<ToolCase> =
        all.filter(|case| case.needs_approval() && !case.allowed_in_plan).collect();
    for case in &mut cases {
        case.entry["approval"] = json!("requires_approval");
    }
    let enters = json!({"run": {"builtin": "plan_mode"}});
    let args = json!({"action": "enter"});
    cases.push(ToolCase { name: "plan_mode", entry: enters, args, allowed_in_plan: true });
    let node = start_node(&agent(&cases, &json!({}), None)).await;
    node.send(ID, "go").await.unwrap();
    node.poll_for_event(ID, |data| matches!(data, EventData::PhaseChanged(_))).await;
    cases.pop();
    wait_for_inbox(&node, cases.len()).await;
    for case in &cases {
        let args = Some(case.args.clone());
        let answer = ResolutionAnswer::Approval { approved: true, reason: None, args };
        node.resolve(ID, case.name, answer).await.unwrap();
        let events = node.journal(ID).await;
        let refused = refusal(case.name, "phase: plan");
        assert_eq!(results(&events, case.name), [envelope(&refused)]);
        let gate_verdict = events.iter().rev().find_map(|event| match &event.data {
            EventData::Resolution(resolution) => resolution.verdict.clone(),
            _ => None,
        });
        assert_eq!(gate_verdict.unwrap().decision, Decision::Deny);
    }
    node.turn_end(ID, 1).await;
    assert_eq!(server.calls.load(Ordering::SeqCst), 0);
    assert!(
        node.tools.started.lock().unwrap().is_empty() && all_conversations(&node).await == [ID]
    );
    node.check(ID).await;
}

/// The counterpart of the tests of refusals, which prove nothing without it.
#[tokio::test]
async fn a_call_that_the_gate_allows_is_carried_out_whatever_its_kind() {
    let server = Server::start().await;
    let cases = cases(&server.url);
    let node = start_node(&agent(&cases, &json!({}), None)).await;
    node.send(ID, "go").await.unwrap();
    let done = |data: &EventData| matches!(data, EventData::ToolResult(_));
    for case in cases.iter().filter(|case| !["human", "page"].contains(&case.name)) {
        let matches = |data: &EventData| {
            done(data)
                && matches!(data, EventData::ToolResult(it) if it.call_id.as_str() == case.name)
        };
        node.poll_for_event(ID, matches).await;
    }
    let events = node.journal(ID).await;
    for case in &cases {
        assert_eq!(verdict_of(&events, case.name).decision, Decision::Allow);
        let denied =
            results(&events, case.name).iter().any(|it| it["error_type"] == "PERMISSION_DENIED");
        assert!(!denied, "{}", case.name);
    }
    assert!(server.calls.load(Ordering::SeqCst) >= 1);
    assert_eq!(node.tools.started.lock().unwrap().len(), 1);
    assert_eq!(all_conversations(&node).await.len(), 3, "there are not two children");
    assert_eq!(
        inbox(&node).await.len(),
        2,
        "a person's call and a client's call are not both open"
    );
    assert!(events.iter().any(|event| matches!(event.data, EventData::TodosChanged(_))));
    assert!(events.iter().any(|event| matches!(event.data, EventData::PhaseChanged(_))));
}

#[tokio::test]
async fn a_users_own_call_runs_with_the_approval_that_it_brings() {
    let server = Server::start().await;
    let cases: Vec<ToolCase> = cases(&server.url).into_iter().filter(ToolCase::is_server).collect();
    let silent = r#"{"name": "a", "model": {"provider": "scripted", "script": []}}"#;
    let node = start_node(silent).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    node.define(&agent(&cases, &json!({}), Some("requires_approval"))).await;
    for case in &cases {
        let reply = node.deliver(ID, dispatch(case, true)).await.unwrap();
        let Reply::Dispatched { outcome, .. } = reply else { panic!("{reply:?}") };
        let denied = matches!(outcome, Outcome::Err(_, ErrorType::PermissionDenied));
        assert!(!denied, "{}", case.name);
    }
    let events = node.journal(ID).await;
    let started = events.iter().filter_map(|event| match &event.data {
        EventData::DispatchStarted(started) => started.verdict.clone(),
        _ => None,
    });
    let asking = started.filter(|verdict| verdict.decision == Decision::Ask).count();
    assert_eq!(asking, cases.len());
    assert!(server.calls.load(Ordering::SeqCst) >= 1);
    assert_eq!(node.tools.started.lock().unwrap().len(), 1);
    assert_eq!(all_conversations(&node).await.len(), 3);
}

/// A node over the journal of another node, which is cut after its first event that `matches`;
/// `change` alters this event.
async fn with_forged_journal(
    agent: &str,
    original: &TestNode,
    matches: fn(&EventData) -> bool,
    tamper: fn(&mut EventData),
) -> TestNode {
    let mut events = original.journal(ID).await;
    let last = events.iter().position(|event| matches(&event.data)).unwrap();
    events.truncate(last + 1);
    tamper(&mut events[last].data);
    let store = Arc::new(Memory::default());
    let id = Scoped::parse(ID).unwrap();
    let before = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("0") };
    let held = store.claim(&id, &before, None).await.unwrap();
    let mut summary = original.store.summary(&id).await.unwrap().unwrap();
    summary.last_seq = Seq::new(last as u64 + 1);
    store.append(&id, &held, Commit::new(events.into(), summary)).await.unwrap();
    store.release(&id, &held).await.unwrap();
    let node = TestNode::with_store(store, agent).await;
    node.define(KID).await;
    node
}

/// Replaces the arguments that a verdict was given for.
fn forge(data: &mut EventData) {
    let other = json!({"ms": 1, "a": 2, "prompt": "coffee", "path": "elsewhere", "action": "exit"});
    match data {
        EventData::ToolCall(call) => call.args = other.into(),
        EventData::DispatchStarted(run) => run.input = other.into(),
        _ => unreachable!(),
    }
}

/// The outcome of the call of a revived conversation.
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
        EventData::DispatchFinished(done) => Some(&done.result),
        _ => None,
    }
}

#[tokio::test]
async fn a_verdict_permits_its_own_arguments_and_no_others() {
    let server = Server::start().await;
    let why = "permission denied: the gate did not grant this call".to_owned();
    let refused = Outcome::Err(why, ErrorType::PermissionDenied);
    for case in cases(&server.url).into_iter().filter(ToolCase::is_server) {
        let (name, agent) = (case.name, agent(std::slice::from_ref(&case), &json!({}), None));
        let original = start_node(&agent).await;
        original.send(ID, "go").await.unwrap();
        original.turn_end(ID, 1).await;
        original.deliver(ID, dispatch(&case, false)).await.unwrap();
        type CallPaths = [(fn(&EventData) -> bool, fn(&EventData) -> Option<&Outcome>); 2];
        let paths: CallPaths = [
            (|data| matches!(data, EventData::ToolCall(_)), model_call_done),
            (|data| matches!(data, EventData::DispatchStarted(_)), users_call_done),
        ];
        for (matches, done) in paths {
            let honest = with_forged_journal(&agent, &original, matches, |_| {}).await;
            assert_ne!(outcome(&honest, done).await, refused, "{name}");
            server.calls.store(0, Ordering::SeqCst);
            let node = with_forged_journal(&agent, &original, matches, forge).await;
            assert_eq!(outcome(&node, done).await, refused, "{name}");
            assert_eq!(server.calls.load(Ordering::SeqCst), 0, "{name}");
            assert!(node.tools.started.lock().unwrap().is_empty(), "{name}");
            for id in all_conversations(&node).await.iter().filter(|id| *id != ID) {
                assert_eq!(
                    node.state(id).await.turns_started,
                    0,
                    "a child that was created before its turn ran is not stopped"
                );
            }
        }
    }
}
