//! The console in a real browser: an inbox with keys, forms and a node that dies, and the operators' views.
//! No page may report an error or break its own policy, and axe must find no fault.

use std::path::PathBuf;
use std::process::Stdio;

use abide_tests::browser;
use abide_tests::client::Client;
use abide_tests::deadline::DEADLINE;
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::ABIDE;
use crate::agents::{agent, call, gated_client, http};

/// A script that uses the console, and asks the test for what it needs.
pub(crate) struct Person {
    child: Child,
    needs: Lines<BufReader<ChildStdout>>,
    go_on: ChildStdin,
    _profile: TempDir,
}

impl Person {
    pub(crate) fn start(script: &str, url: &str) -> Self {
        Self::start_with(script, &[url])
    }

    /// Starts a script whose arguments stand between those of the browser and axe.
    pub(crate) fn start_with(script: &str, arguments: &[&str]) -> Self {
        browser::assert_installed();
        let home = PathBuf::from(std::env::var("HOME").unwrap());
        let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
        let axe = cache.join("abide-tests/console/node_modules/axe-core/axe.min.js");
        assert!(axe.exists(), "{} is missing: run .ci/console", axe.display());
        let profile = tempfile::tempdir().unwrap();
        let script = format!("{}/tests/cluster/{script}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("node");
        command.arg(script).arg(browser::PROGRAM).arg(profile.path()).args(arguments).arg(axe);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = command.kill_on_drop(true).spawn();
        let mut child = spawned.expect("node is missing: .ci/run installs it");
        let needs = BufReader::new(child.stdout.take().unwrap()).lines();
        let go_on = child.stdin.take().unwrap();
        Self { child, needs, go_on, _profile: profile }
    }

    /// Waits until the script needs this.
    pub(crate) async fn needs(&mut self, what: &str) {
        assert_eq!(self.next_need(what).await.as_deref(), Some(what));
    }

    /// Waits until the script needs something that begins like this. Returns the rest.
    pub(crate) async fn needs_some(&mut self, begin: &str) -> String {
        let need = self.next_need(begin).await;
        let rest = need.as_deref().and_then(|need| need.strip_prefix(begin));
        rest.unwrap_or_else(|| panic!("the page needs {need:?}, not {begin:?}")).to_owned()
    }

    async fn next_need(&mut self, what: &str) -> Option<String> {
        let line = timeout(browser::START_TIMEOUT + DEADLINE, self.needs.next_line()).await;
        line.unwrap_or_else(|_| panic!("the page did not get to {what:?}")).unwrap()
    }

    pub(crate) async fn go_on(&mut self) {
        self.go_on.write_all(b"\n").await.unwrap();
    }

    /// Waits until the script has ended well.
    pub(crate) async fn finish(self) {
        let Self { child, go_on, _profile, .. } = self;
        drop(go_on);
        let ended = timeout(browser::START_TIMEOUT + DEADLINE, child.wait_with_output()).await;
        let ended = ended.expect("the console's script did not end in time").unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// An agent whose calls of `book` need an approval, and must name a city and a number of nights.
fn booking(number: usize, tools: &ToolServer) -> Value {
    let args = json!({"city": format!("city {number}"), "nights": number});
    let calls = [call("b", "book", args)];
    let script = json!([{"text": "Let me book it.", "calls": calls}, {"text": "Booked."}]);
    let parameters = json!({"type": "object", "required": ["city", "nights"], "properties": {
        "city": {"type": "string", "minLength": 3}, "nights": {"type": "integer", "maximum": 30}}});
    let more = json!({"approval": "requires_approval", "parameters": parameters,
        "confirmation_message": "Book {{ args.nights }}?"});
    let book = http("book", tools, "/answer", more);
    let mut definition = agent(json!({"provider": "scripted", "script": script}), vec![book]);
    definition["suspension_timeout"] = json!(format!("{}m", number * 10));
    definition
}

/// A model that says this.
fn says(text: &str) -> Value {
    json!({"provider": "scripted", "script": [{"text": text}]})
}

/// Opens calls in five conversations, whose deadlines follow one another.
async fn open_calls(client: &Client, tools: &ToolServer) {
    for number in 1..=5 {
        client.define("a", &booking(number, tools)).await;
        client.send_message(&format!("c{number}"), "a", "go").await;
        client.wait_for_pending(&format!("c{number}"), "b", "approval").await;
    }
    let odd = "<img src=x onerror=alert(1)> **bold** \u{202e}gnp.exe [x](javascript:alert(1))";
    client.define("odd", &agent(says(odd), vec![])).await;
    client.send_message("odd", "odd", "<script>alert(1)</script>").await;
    client.wait_until_settled("odd", 1).await;
}

#[tokio::test]
async fn a_person_answers_from_the_inbox_also_when_others_are_quicker_and_the_node_dies() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    // The node that returns has another address, as behind a service of Kubernetes.
    let (node, proxy) = (site.start().await, Proxy::start());
    proxy.aim(&site.client.public_address());
    let mut person = Person::start("inbox.mjs", &format!("http://{}/console/", proxy.address()));
    person.needs("calls").await;
    open_calls(&site.client, &tools).await;
    person.go_on().await;
    person.needs("quicker").await;
    site.client.resolve("c2", "b", json!({"approved": true, "reason": "first"})).await.expect(200);
    person.go_on().await;
    person.needs("kill").await;
    node.kill().await;
    person.go_on().await;
    person.needs("start").await;
    let _node = site.start().await;
    proxy.aim(&site.client.public_address());
    person.go_on().await;
    person.finish().await;
    let edited = site.client.wait_until_settled("c1", 1).await;
    let args = &edited.of("resolution").next().unwrap()["data"]["args"];
    assert_eq!(*args, json!({"city": "Graz", "nights": 7}));
    let denied = site.client.wait_until_settled("c3", 1).await;
    assert_eq!(denied.result("b")["error_type"], "DENIED");
    for conversation in ["c4", "c5"] {
        let journal = site.client.wait_until_settled(conversation, 1).await;
        assert_eq!(journal.result("b")["ok"], true, "{conversation}");
    }
}

#[tokio::test]
async fn an_operator_sees_why_a_conversation_waits_and_helps_it() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let script = json!([{"calls": [call("s", "send", json!({}))]}, {"text": "Failed."}]);
    let mut send = gated_client("send");
    send["confirmation_message"] = json!("Send it?");
    let definition = agent(json!({"provider": "scripted", "script": script}), vec![send]);
    site.client.define("a", &definition).await;
    site.client.send_message("stuck", "a", "go").await;
    site.client.wait_for_pending("stuck", "s", "approval").await;
    let url = format!("http://{}/console/", site.client.admin_address());
    Person::start("operator.mjs", &url).finish().await;
    let journal = site.client.wait_until_settled("stuck", 1).await;
    assert_eq!(journal.result("s")["error"], "nobody is there");
    let nodes = site.client.admin(Method::GET, "/admin/nodes").await.expect(200);
    assert_ne!(nodes["nodes"][0]["state"], "up");
}

#[tokio::test]
async fn a_person_puts_schedules_and_webhooks_sees_queues_and_gives_a_call_more_time() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("greeter", &agent(says("Hello."), vec![])).await;
    let calls = json!([{"calls": [call("m", "send_mail", json!({}))]}, {"text": "Sent."}]);
    let mail = json!({"name": "send_mail", "description": "d", "run": {"queue": "mail"}});
    let mailer = agent(json!({"provider": "scripted", "script": calls}), vec![mail]);
    site.client.define("mailer", &mailer).await;
    site.client.send_message("mail", "mailer", "go").await;
    let asks = json!([{"calls": [call("s", "send", json!({}))]}, {"text": "Done."}]);
    let asks = json!({"provider": "scripted", "script": asks});
    site.client.define("asker", &agent(asks, vec![gated_client("send")])).await;
    site.client.send_message("asks", "asker", "go").await;
    site.client.wait_for_pending("asks", "s", "approval").await;
    let url = format!("http://{}/console/", site.client.admin_address());
    Person::start("later.mjs", &url).finish().await;
    let journal = site.client.journal("asks").await;
    assert_eq!(journal.of("suspension_extended").count(), 1);
}

#[tokio::test]
async fn a_person_finds_a_conversation_and_goes_back_to_an_earlier_revision() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let client = &site.client;
    let mut clerk = agent(says("Yes?"), vec![]);
    clerk["index"] = json!(["customer"]);
    client.define("clerk", &clerk).await;
    let revision = async || {
        let agents = client.get("/v1/agents").await.expect(200);
        agents["agents"][0]["revision"].clone()
    };
    let first = revision().await;
    let create = async |id: &str, more: Value| {
        let mut conversation = json!({"id": id, "agent": "clerk"});
        more.as_object().unwrap().iter().for_each(|(key, value)| {
            conversation[key] = value.clone();
        });
        client.post("/v1/conversations", &conversation).await.expect(201);
    };
    create("other", json!({"metadata": {"customer": "1"}})).await;
    create("third", json!({})).await;
    let title = "A question about a bill";
    create("bill", json!({"metadata": {"customer": "4711"}, "title": title})).await;
    clerk["system_prompt"] = json!("Be short.");
    client.define("clerk", &clerk).await;
    assert_ne!(revision().await, first);
    let url = format!("http://{}/console/", client.admin_address());
    Person::start("find.mjs", &url).finish().await;
    assert_eq!(revision().await, first);
}
