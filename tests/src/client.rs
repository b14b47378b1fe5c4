//! An HTTP client, written from the public API alone, that finds its node again after a restart.

use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::deadline::{DEADLINE, poll, within};
use crate::frames::Frames;
use crate::history::{Exchange, History, JournalRead};
use crate::journal::Journal;

/// A node's answer: its status and its body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    /// Fails unless the answer has this status; returns the body.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:#}", self.body);
        self.body
    }

    /// Fails unless the answer is this problem.
    pub fn expect_problem(self, status: u16, name: &str) {
        let body = self.expect(status);
        assert_eq!(body["type"], format!("/problems/{name}"), "{body:#}");
    }
}

/// The addresses on which the node listens now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) public: String,
    pub(crate) admin: String,
    pub(crate) cluster: Option<String>,
}

/// A client of one node, across all processes that run it in turn.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    at: Arc<RwLock<Addresses>>,
    principal: Option<&'static str>,
    credential: Option<String>,
    history: Option<(History, String)>,
}

impl Default for Client {
    fn default() -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { http, at: Arc::default(), principal: None, credential: None, history: None }
    }
}

impl Client {
    /// Sends every request on behalf of this principal.
    pub fn named(mut self, principal: &'static str) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Authenticates every request to the public API with this credential.
    pub fn with_credential(mut self, credential: &str) -> Self {
        self.credential = Some(credential.to_owned());
        self
    }

    /// Records every request to the public API in this history, as sent to this node.
    pub fn with_history(mut self, history: &History, node: &str) -> Self {
        self.history = Some((history.clone(), node.to_owned()));
        self
    }

    /// The address at which other nodes reach this one, if there is one.
    pub fn cluster_address(&self) -> Option<String> {
        self.at.read().unwrap().cluster.clone()
    }

    /// The address at which clients reach this node.
    pub fn public_address(&self) -> String {
        self.at.read().unwrap().public.clone()
    }

    /// The address of the operators' API of this node.
    pub fn admin_address(&self) -> String {
        self.at.read().unwrap().admin.clone()
    }

    pub(crate) fn without_history(mut self) -> Self {
        self.history = None;
        self
    }

    pub(crate) fn move_to(&self, to: Addresses) {
        *self.at.write().unwrap() = to;
    }

    /// Sends a request to the public API. `None` when no complete answer came.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let base = self.at.read().unwrap().public.clone();
        let mut request = self.http.request(method.clone(), format!("http://{base}{path}"));
        request = request.timeout(DEADLINE);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(principal) = self.principal {
            request = request.header("Abide-Principal", principal);
        }
        if let Some(credential) = &self.credential {
            request = request.bearer_auth(credential);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let sent_at = Timestamp::now();
        let answer = answer(request).await;
        if let Some((history, node)) = &self.history {
            history.record(Exchange {
                node: node.clone(),
                method,
                path: path.to_owned(),
                key: key.map(str::to_owned),
                body: body.cloned(),
                sent_at,
                ended_at: Timestamp::now(),
                answer: answer.clone(),
            });
        }
        answer.ok()
    }

    /// Stores this text as a blob. `None` when no complete answer came. The history has no record of
    /// it.
    pub async fn store_blob(&self, text: &str) -> Option<Answer> {
        let base = self.public_address();
        let request = self.http.post(format!("http://{base}/v1/blobs")).timeout(DEADLINE);
        let mut request = request.header("Content-Type", "text/plain").body(text.to_owned());
        if let Some(principal) = self.principal {
            request = request.header("Abide-Principal", principal);
        }
        answer(request).await.ok()
    }

    /// Sends a GET, which must be answered.
    pub async fn get(&self, path: &str) -> Answer {
        let answer = self.ask(Method::GET, path, None, None).await;
        answer.unwrap_or_else(|| panic!("no answer to GET {path}"))
    }

    /// Sends a POST, which must be answered.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let answer = self.ask(Method::POST, path, None, Some(body)).await;
        answer.unwrap_or_else(|| panic!("no answer to POST {path}"))
    }

    /// Defines an agent.
    pub async fn define(&self, name: &str, definition: &Value) {
        let path = format!("/v1/agents/{name}");
        let answer = self.ask(Method::PUT, &path, None, Some(definition)).await.unwrap();
        assert!([200, 201].contains(&answer.status), "{:#}", answer.body);
    }

    /// Sends a message, which creates the conversation if it is new. Returns the body of the 202.
    pub async fn send_message(&self, id: &str, agent: &str, text: &str) -> Value {
        let body = json!({"text": text, "agent": agent});
        self.post(&format!("/v1/conversations/{id}/messages"), &body).await.expect(202)
    }

    /// Resolves a call.
    pub async fn resolve(&self, id: &str, call: &str, body: Value) -> Answer {
        self.post(&resolution(id, call), &body).await
    }

    pub async fn cancel(&self, id: &str) -> Answer {
        let path = format!("/v1/conversations/{id}/cancel");
        self.ask(Method::POST, &path, None, None).await.unwrap()
    }

    pub async fn snapshot(&self, id: &str) -> Value {
        self.get(&format!("/v1/conversations/{id}")).await.expect(200)
    }

    /// Reads the whole journal. `None` when the conversation, the node or its store is not there.
    pub async fn try_journal(&self, id: &str) -> Option<Journal> {
        let mut events = Vec::new();
        loop {
            let path = format!("/v1/conversations/{id}/journal?limit=1000&after={}", events.len());
            let page = self.ask(Method::GET, &path, None, None).await?;
            if page.status != 200 {
                return None;
            }
            let page = page.body;
            events.extend(page["events"].as_array().unwrap().iter().cloned());
            if events.len() as u64 >= page["last_seq"].as_u64().unwrap() {
                return Some(Journal(events));
            }
        }
    }

    /// Reads the whole journal, and records in the history what was read; also that there is no such
    /// conversation.
    pub async fn observe_journal(&self, id: &str) {
        let (sent_at, mut events) = (Timestamp::now(), Vec::new());
        loop {
            let path = format!("/v1/conversations/{id}/journal?limit=1000&after={}", events.len());
            let page = self.clone().without_history().ask(Method::GET, &path, None, None).await;
            match page {
                Some(Answer { status: 200, body }) => {
                    let page = body["events"].as_array().into_iter().flatten();
                    let known = events.len();
                    events.extend(page.map(JournalRead::hash));
                    let is_last = events.len() as u64 >= body["last_seq"].as_u64().unwrap_or(0);
                    if is_last || events.len() == known {
                        break;
                    }
                }
                Some(Answer { status: 404, .. }) => break,
                // Nothing was read.
                _ => return,
            }
        }
        self.record_read(id, sent_at, events.len() as u64, Some(events));
    }

    /// Records in the history that a read which began at `sent_at` showed a journal up to `last_seq`.
    pub(crate) fn record_read(
        &self,
        id: &str,
        sent_at: Timestamp,
        last_seq: u64,
        events: Option<Vec<u64>>,
    ) {
        let Some((history, node)) = &self.history else { return };
        history.record_read(JournalRead {
            conversation: id.to_owned(),
            node: node.clone(),
            sent_at,
            ended_at: Timestamp::now(),
            last_seq,
            events,
        });
    }

    pub async fn journal(&self, id: &str) -> Journal {
        self.try_journal(id).await.unwrap()
    }

    /// Polls the journal until the condition holds. Reading a journal starts no actor.
    pub async fn wait_for(
        &self,
        id: &str,
        what: &str,
        condition: impl Fn(&Journal) -> bool,
    ) -> Journal {
        let mut last = None;
        let found = tokio::time::timeout(DEADLINE, async {
            poll(what, async || {
                last = self.try_journal(id).await;
                last.clone().filter(&condition)
            })
            .await
        });
        match found.await {
            Ok(found) => found,
            Err(_) => panic!("timed out waiting for {what}: {last:#?}"),
        }
    }

    /// Waits until `turns` turns have ended, and checks that nothing is open in the journal.
    pub async fn wait_until_settled(&self, id: &str, turns: usize) -> Journal {
        let what = format!("the end of turn {turns} of {id}");
        let journal =
            self.wait_for(id, &what, |journal| journal.of("turn_ended").count() >= turns).await;
        journal.assert_settled();
        journal
    }

    /// Waits until a call has an open suspension of this kind. Returns its entry in the snapshot.
    pub async fn wait_for_pending(&self, id: &str, call: &str, kind: &str) -> Value {
        poll(&format!("{call} to be open as {kind}"), async || {
            let snapshot = self.get(&format!("/v1/conversations/{id}")).await.expect(200);
            let pending = snapshot["pending"].as_array().unwrap();
            let is = |entry: &&Value| entry["call_id"] == call && entry["kind"] == kind;
            pending.iter().find(is).cloned()
        })
        .await
    }

    /// Opens the event stream, starting after this event if one is given.
    pub async fn events(&self, id: &str, after: Option<u64>) -> Frames {
        let opened = self.try_events(id, after).await;
        opened.unwrap_or_else(|| panic!("no event stream of {id}"))
    }

    /// Opens the event stream. `None` when the conversation or the node is not there.
    pub async fn try_events(&self, id: &str, after: Option<u64>) -> Option<Frames> {
        let base = self.at.read().unwrap().public.clone();
        let mut request = self.http.get(format!("http://{base}/v1/conversations/{id}/events"));
        if let Some(after) = after {
            request = request.header("Last-Event-ID", after.to_string());
        }
        let response = request.send().await.ok()?.error_for_status().ok()?;
        Some(Frames { response, unread: Vec::new() })
    }

    /// Sends a request whose answer is a stream, which must be accepted.
    pub(crate) async fn open_stream(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> reqwest::Response {
        let base = self.at.read().unwrap().public.clone();
        let request = self.http.request(method, format!("http://{base}{path}")).json(body);
        let response = within(path, request.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response
    }

    /// Sends a request to the operators' API, which must be answered.
    pub async fn admin(&self, method: Method, path: &str) -> Answer {
        let answer = self.try_admin(method, path).await;
        answer.unwrap_or_else(|| panic!("no answer to {path}"))
    }

    /// Applies an operator's verb to a conversation, on behalf of the client's principal.
    pub async fn repair(&self, id: &str, verb: &str, body: Option<&Value>) -> Answer {
        let base = self.at.read().unwrap().admin.clone();
        let url = format!("http://{base}/admin/actors/{id}/{verb}");
        let mut request = self.http.post(url).timeout(DEADLINE);
        if let Some(principal) = self.principal {
            request = request.header("Abide-Principal", principal);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request).await.unwrap_or_else(|why| panic!("no answer to {verb} {id}: {why}"))
    }

    /// Sends a request to the operators' API. `None` when no complete answer came.
    pub async fn try_admin(&self, method: Method, path: &str) -> Option<Answer> {
        let base = self.at.read().unwrap().admin.clone();
        let request = self.http.request(method, format!("http://{base}{path}"));
        answer(request.timeout(DEADLINE)).await.ok()
    }
}

/// The path to which the resolution of a call is posted.
pub fn resolution(id: &str, call: &str) -> String {
    format!("/v1/conversations/{id}/calls/{call}/resolution")
}

async fn answer(request: reqwest::RequestBuilder) -> Result<Answer, String> {
    let read = async {
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok((status, response.text().await?))
    };
    let (status, text) = read.await.map_err(|error: reqwest::Error| format!("{error:?}"))?;
    Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
}
