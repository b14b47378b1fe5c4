//! The example application in real browsers: a customer asks for a refund, somebody else approves it, and the
//! node that has the conversation dies twice meanwhile. So does a worker, and the schedule's sum is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::{poll, within};
use abide_tests::redis::Redis;
use abide_tests::signal::{signal, stop};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::ABIDE;
use crate::clients::{clients, installed};
use crate::console::Person;

/// The directory of the application.
pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nodes/examples/app").canonicalize().unwrap()
}

/// The directory of the packages that its page is built with.
pub(crate) fn packages() -> PathBuf {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/example-app/node_modules");
    assert!(packages.exists(), "{} is missing: run .ci/example-app", packages.display());
    packages
}

/// Copies the application to its place below a directory, and links what it uses of the tree.
pub(crate) fn place(root: &Path) -> PathBuf {
    let (source, place) = (source(), root.join("nodes/examples/app"));
    std::fs::create_dir_all(&place).unwrap();
    for entry in std::fs::read_dir(&source).unwrap().map(Result::unwrap) {
        // What somebody has built or set up there is not the test's.
        if ["node_modules", "dist", ".run"].iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("-r").arg(entry.path()).arg(&place).status().unwrap().success());
    }
    for name in ["clients", "console"] {
        let link = root.join("nodes").join(name);
        std::os::unix::fs::symlink(source.join("../..").join(name), link).unwrap();
    }
    place
}

/// Where an application listens, and what its servers know.
struct Setup {
    dir: TempDir,
    /// A loopback address on which no other test listens; the application's ports are always the same.
    address: String,
    variables: BTreeMap<String, String>,
    maria: String,
}

impl Setup {
    /// Makes the keys and secrets, and builds the page and the shop's server.
    async fn new() -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = format!("127.79.{high}.{}", low.max(1));
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let mut setup = Command::new(source().join("setup"));
        setup.arg(&address).env("SHOP_RUN", &run);
        succeeds("the setup", setup).await;
        let mut build = Command::new(installed().join("node-oldest"));
        build.arg(source().join("build.mjs")).arg(dir.path().join("dist"));
        build.env("PACKAGES", packages());
        succeeds("the build", build).await;
        let read = |name: &str| std::fs::read_to_string(run.join(name)).unwrap().trim().to_owned();
        let pair = |line: &str| {
            let (name, value) = line.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let variables = read("env").lines().map(pair).collect();
        Self { address, variables, maria: read("maria.key"), dir }
    }

    fn url(&self, port: u16) -> String {
        format!("http://{}:{port}/", self.address)
    }

    async fn start_nodes(&self, count: usize) -> Cluster {
        let auth = self.dir.path().join("run/auth.yaml");
        let origin = format!("http://{}:3000", self.address);
        let flags = ["--auth", auth.to_str().unwrap(), "--allow-origin", &origin];
        let plan = Plan::new(ABIDE).with(&flags).with(&["--lease", "2s"]);
        let with = |plan: Plan, name: &str| plan.with_env(name, &self.variables[name]);
        let plan = ["SHOP_TOOLS_SECRET", "SHOP_NOTICES_SECRET"].into_iter().fold(plan, with);
        plan.start(Redis::start().await, count).await
    }

    /// Starts the payments on the oldest Python, and waits until they are served.
    async fn start_payments(&self) -> Child {
        let mut command = python("payments/payments.py");
        command.env("PAYMENTS_BANK_SECONDS", "0.2");
        command.env("PAYMENTS_LEDGER", self.dir.path().join("ledger.db"));
        command.env("PAYMENTS_LISTEN", format!("{}:3001", self.address));
        let payments = self.spawn(&mut command);
        assert_eq!(self.refunds().await, json!([]));
        payments
    }

    /// Starts the worker of the warehouse on the oldest Python, for nodes of Abide at these addresses.
    fn start_warehouse(&self, nodes: &str, print_seconds: &str) -> Child {
        let mut command = python("warehouse/warehouse.py");
        command.env("WAREHOUSE_PRINT_SECONDS", print_seconds);
        command.env("WAREHOUSE_ROLL", self.roll()).env("ABIDE_URL", nodes);
        command.env("ABIDE_TOKEN", &self.variables["WAREHOUSE_KEY"]);
        self.spawn(&mut command)
    }

    /// Starts the shop's own server on the oldest node, for nodes of Abide at these addresses, and waits until
    /// it serves.
    async fn start_shop(&self, nodes: &str) -> Shop {
        let mut command = Command::new(installed().join("node-oldest"));
        command.arg(self.dir.path().join("dist/server.mjs"));
        command.env("SHOP_LISTEN", format!("{}:3000", self.address));
        command.env("SHOP_URL", self.url(3000)).env("PAYMENTS_URL", self.url(3001));
        command.env("SHOP_NODES", nodes).env("ABIDE_URL", nodes);
        command.env("ABIDE_TOKEN", &self.variables["SHOP_KEY"]);
        let mut server = self.spawn(command.stdout(Stdio::piped()));
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        poll("the shop", async || reqwest::get(self.url(3000)).await.ok()).await;
        Shop { _server: server, lines }
    }

    fn spawn(&self, command: &mut Command) -> Child {
        command.envs(&self.variables).stdin(Stdio::null()).kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// Sends the shop's server a request. Returns the status, the cookie that it sets, and the body.
    async fn ask(&self, request: reqwest::RequestBuilder) -> (u16, String, Value) {
        let answer = request.send().await.unwrap();
        let cookie = answer.headers().get("set-cookie").map(|it| it.to_str().unwrap());
        let cookie = cookie.unwrap_or_default().split(';').next().unwrap().to_owned();
        let status = answer.status().as_u16();
        (status, cookie, answer.json().await.unwrap_or_default())
    }

    /// The token of a customer who signs in.
    async fn token(&self, customer: &str) -> String {
        let http = reqwest::Client::new();
        let login = http.post(self.url(3000) + "api/login").json(&json!({"customer": customer}));
        let (_, cookie, _) = self.ask(login).await;
        let request = http.get(self.url(3000) + "api/token").header("cookie", cookie);
        self.ask(request).await.2["token"].as_str().unwrap().to_owned()
    }

    fn roll(&self) -> PathBuf {
        self.dir.path().join("labels.txt")
    }

    /// What was paid back, once the server answers.
    async fn refunds(&self) -> Value {
        let read = async || reqwest::get(self.url(3001)).await.ok()?.json().await.ok();
        poll("the refunds", read).await
    }
}

/// The shop's own server, and what it tells its people.
struct Shop {
    _server: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shop {
    /// Waits for the next thing that its people are told.
    async fn tells(&mut self) -> String {
        let mut next = async || loop {
            let line = self.lines.next_line().await.unwrap().expect("the shop has ended");
            if let Some(told) = line.strip_prefix("team: ") {
                break told.to_owned();
            }
        };
        within("what the shop's people are told", next()).await
    }
}

/// A program of the application, on the oldest Python.
fn python(program: &str) -> Command {
    let mut command = Command::new(installed().join("python-oldest/bin/python"));
    command.arg(source().join(program)).env("PYTHONPATH", clients().join("python/src"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("SHOP_ORDERS", source().join("orders.json"));
    command
}

async fn succeeds(what: &str, mut command: Command) {
    let output = within(what, command.kill_on_drop(true).output()).await.unwrap();
    let said = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{what}: {}", said.concat());
}

/// The node that has a conversation, as a client of another sees it.
async fn holder(cluster: &Cluster, client: &Client, conversation: &str) -> usize {
    let path = format!("/v1/conversations/{conversation}");
    poll("a holder", async || {
        let snapshot = client.get(&path).await.body;
        (0..3).find(|node| snapshot["holder"]["node"] == cluster.name(*node))
    })
    .await
}

#[tokio::test]
async fn a_refund_is_paid_once_although_its_node_dies_before_the_approval_and_while_it_is_paid() {
    let setup = Setup::new().await;
    let mut cluster = setup.start_nodes(3).await;
    let payments = setup.start_payments().await;
    let nodes: Vec<_> =
        cluster.clients().map(|it| format!("http://{}", it.public_address())).collect();
    let nodes_list = nodes.join(",");
    let mut team = setup.start_shop(&nodes_list).await;
    // It prints for as long as it lives.
    let mut warehouse = setup.start_warehouse(&nodes_list, "600");
    let maria = |node: usize| cluster.client(node).clone().with_credential(&setup.maria);
    // The customer's page asks the first node first; the approver is at the second, the test at the third.
    let [inbox, evening] = [1, 2].map(|node| format!("{}/console/", nodes[node]));
    let (shop, third) = (setup.url(3000), maria(2));
    let arguments = [shop.as_str(), &inbox, &evening, &setup.maria];
    let mut people = Person::start_with("example_app.mjs", &arguments);
    let conversation = people.needs_some("asked ").await;
    let call = format!("{conversation}/call_2_1");
    let asks = format!("Refund € 64 for order 1042? It waits in the inbox as {call}.");
    assert_eq!(team.tells().await, asks);
    let asked = holder(&cluster, &third, &conversation).await;
    assert_eq!(asked, 0);
    cluster.kill(asked).await;
    // The bank is slow: the call is open when the next node dies.
    stop(&payments).await;
    people.go_on().await;
    people.needs("approved").await;
    let approved = holder(&cluster, &third, &conversation).await;
    assert_eq!(approved, 1);
    cluster.kill(approved).await;
    let again = |attempt: u64| move |it: &Value| it["data"]["attempt"] == attempt;
    third
        .wait_for(&conversation, "the second attempt", |it| it.of("tool_started").any(again(2)))
        .await;
    signal(&payments, Signal::CONT);
    people.go_on().await;
    people.needs("paid").await;
    assert_eq!(team.tells().await, format!("{call} is approved by key:maria."));
    // So does the worker, which has the call of the last node, and another one takes it.
    poll("the printer", async || setup.roll().exists().then_some(())).await;
    warehouse.kill().await.unwrap();
    let _warehouse = setup.start_warehouse(&nodes_list, "0.1");
    people.go_on().await;
    people.needs("printed").await;
    let by_shop = third.clone().with_credential(&setup.variables["SHOP_KEY"]);
    by_shop.post("/v1/schedules/evening/trigger", &json!({})).await.expect(202);
    assert_eq!(team.tells().await, "Paid back so far: € 64.00, refunds: 1.");
    people.go_on().await;
    people.finish().await;
    let once = json!([{"order": "1042", "amount": 64.0, "approved_by": "key:maria"}]);
    assert_eq!(setup.refunds().await, once);
    let journal = third.wait_until_settled(&conversation, 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.of("resolution").count(), 1);
    assert_eq!(journal.result("call_2_1")["result"]["reference"], "R-1042");
    assert!(journal.of("tool_leased").any(again(2)), "the second worker had the call");
    let printed = std::fs::read_to_string(setup.roll()).unwrap();
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

#[tokio::test]
async fn the_example_application_gives_nobody_more_than_is_theirs() {
    let setup = Setup::new().await;
    let cluster = setup.start_nodes(1).await;
    let _payments = setup.start_payments().await;
    let _shop = setup.start_shop(&format!("http://{}", cluster.client(0).public_address())).await;
    let (http, shop) = (reqwest::Client::new(), setup.url(3000));
    for path in ["api/session", "api/token", "api/orders"] {
        let forged = "customer=ada.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        for cookie in ["", forged] {
            let request = http.get(shop.clone() + path).header("cookie", cookie);
            assert_eq!(setup.ask(request).await.0, 401, "{path}");
        }
    }
    let login = || http.post(shop.clone() + "api/login");
    assert_eq!(setup.ask(login().json(&json!({"customer": "eve"}))).await.0, 422);
    assert_eq!(
        setup.ask(login().body(r#"{"customer": "ada"}"#)).await.0,
        422,
        "a form of another page"
    );
    // What no node has signed is no call.
    let call = json!({"tool": "refund", "args": {"order": "1042", "amount": 64}, "call_id": "k",
        "conversation_id": "ada.1", "approvals": [{"iss": "abide", "sub": "eve"}]});
    for url in [shop.clone() + "tools", shop.clone() + "notices", setup.url(3001)] {
        assert_eq!(setup.ask(http.post(url).json(&call)).await.0, 401);
    }

    let by = |credential: &str| cluster.client(0).clone().with_credential(credential);
    let ada = by(&setup.token("ada").await);
    let (ben, maria) = (by(&setup.token("ben").await), by(&setup.maria));
    ada.send_message("ada.1", "support", "Order 1042 arrived damaged.").await;
    maria.wait_for_pending("ada.1", "call_2_1", "approval").await;
    let approved = ada.resolve("ada.1", "call_2_1", json!({"approved": true})).await;
    assert_eq!(approved.status, 403, "{approved:?}");
    ben.get("/v1/conversations/ada.1").await.expect_problem(404, "not-found");
    let into = json!({"text": "Order 1042", "agent": "support"});
    let sent = ben.post("/v1/conversations/ada.2/messages", &into).await;
    assert!([403, 404].contains(&sent.status), "{sent:?}");
    let denial = json!({"approved": false, "reason": "It was used."});
    maria.resolve("ada.1", "call_2_1", denial).await.expect(200);
    let journal = maria.wait_until_settled("ada.1", 1).await;
    assert!(
        journal.last_text().contains("denied by approver: It was used."),
        "{}",
        journal.last_text()
    );
    // Somebody else's order is not found, and nothing is proposed for it.
    ben.send_message("ben.1", "support", "Order 1042 arrived damaged.").await;
    let journal = maria.wait_until_settled("ben.1", 1).await;
    assert!(journal.last_text().contains("do not find the order 1042"), "{}", journal.last_text());
    assert_eq!(journal.of("suspension").count(), 0);
    assert_eq!(setup.refunds().await, json!([]));
}

#[tokio::test]
async fn the_example_application_is_typed() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(dir.path());
    std::os::unix::fs::symlink(packages(), place.join("node_modules")).unwrap();
    let mut check = Command::new(installed().join("node"));
    check.arg(packages().join("typescript/bin/tsc")).current_dir(&place);
    succeeds("the types", check).await;
}
