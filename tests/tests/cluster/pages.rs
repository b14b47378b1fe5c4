//! Client tools and approvals in real browser pages, over nodes that are killed.

use abide_tests::browser::{self, Browser};
use abide_tests::browser_page_server::PageServer;
use abide_tests::client::Client;
use abide_tests::cluster::Plan;
use abide_tests::deadline::{DEADLINE, poll};
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use abide_tests::redis::Redis;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::ABIDE;
use crate::agents::{agent, call, calls_once, client, gated_client, steps};

const SCRIPT: &str = include_str!("page.js");

/// A page server, and a site whose node allows the pages' origin.
async fn open_site() -> (PageServer, Site) {
    let pages = PageServer::start(SCRIPT).await;
    let site = Site::new(ABIDE).with(&["--allow-origin", &pages.origin()]);
    (pages, site)
}

/// Opens a page that follows `c` over the nodes at these addresses, with this query.
async fn browse(pages: &PageServer, nodes: &[String], query: &str) -> Browser {
    let urls: String = nodes.iter().map(|node| format!("&url=http://{node}")).collect();
    Browser::open(&format!("{}/?{query}{urls}", pages.origin())).await
}

async fn create(client: &Client, definition: &Value) {
    client.define("a", definition).await;
    client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
}

/// Waits for at least `count` reports with this key, and returns them.
async fn wait_for_reports(pages: &PageServer, key: &str, count: usize) -> Vec<Value> {
    let what = format!("{count} times {key}");
    let all = || Some(pages.reports(key)).filter(|reports| reports.len() >= count);
    poll(&what, async || all()).await
}

/// Waits until a page has reported this last frame. Returns the ids of its frames.
async fn frame_ids(pages: &PageServer, name: &str, last: &str) -> Vec<u64> {
    let is_from_page = |report: &Value| report["name"] == name;
    let all = poll(&format!("{name} to report {last}"), async || {
        let all: Vec<Value> = pages.reports("frame").into_iter().filter(is_from_page).collect();
        all.iter().any(|report| report["frame"] == last).then_some(all)
    })
    .await;
    all.iter().filter_map(|report| report["id"].as_u64()).collect()
}

#[tokio::test]
async fn a_page_executes_the_call_that_was_pending_when_it_came() {
    let (pages, site) = open_site().await;
    let _node = site.start().await;
    create(&site.client, &calls_once(vec![client("locate"), client("elsewhere")])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "locate", "client_exec").await;
    pages.release();
    let _page = browse(&pages, &[site.client.public_address()], "name=only").await;
    let done = |journal: &Journal| !journal.result("locate").is_null();
    let journal = site.client.wait_for("c", "the page's answer", done).await;
    assert_eq!(journal.result("locate")["result"], json!({"by": "only"}));
    // The page leaves calls of other tools to other clients.
    assert!(journal.result("elsewhere").is_null());
    site.client.resolve("c", "elsewhere", json!({"result": 1})).await.expect(200);
    site.client.wait_until_settled("c", 1).await;
    frame_ids(&pages, "only", "turn_completed").await;
    assert_eq!(pages.reports("ran").len(), 1);
    assert_eq!(pages.reports("error"), Vec::<Value>::new());
}

#[tokio::test]
async fn a_page_approves_a_call_and_then_executes_it() {
    let (pages, site) = open_site().await;
    let _node = site.start().await;
    create(&site.client, &calls_once(vec![gated_client("locate")])).await;
    pages.release();
    let _page = browse(&pages, &[site.client.public_address()], "name=only").await;
    wait_for_reports(&pages, "frame", 1).await;
    site.client.send_message("c", "a", "go").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    let kinds: Vec<_> = journal.of("resolution").map(|event| &event["data"]["kind"]).collect();
    assert_eq!(kinds, ["approval", "client_exec"]);
    assert_eq!(journal.result("locate")["result"], json!({"by": "only"}));
    assert_eq!(frame_ids(&pages, "only", "turn_completed").await, journal.mirrored());
    assert_eq!(pages.reports("approved")[0]["approved"], "accepted");
}

#[tokio::test]
async fn of_two_pages_of_one_browser_one_executes_a_call() {
    const CALLS: usize = 5;
    let (pages, site) = open_site().await;
    let _node = site.start().await;
    let names: Vec<String> = (0..CALLS).map(|n| format!("l{n}")).collect();
    let calls: Vec<_> = names.iter().map(|id| vec![call(id, "locate", json!({}))]).collect();
    create(&site.client, &agent(steps(&calls), vec![client("locate")])).await;
    pages.release();
    let _browser = browse(&pages, &[site.client.public_address()], "frames=a,b").await;
    wait_for_reports(&pages, "frame", 2).await;
    site.client.send_message("c", "a", "go").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    for page in ["a", "b"] {
        assert_eq!(frame_ids(&pages, page, "turn_completed").await, journal.mirrored());
    }
    let ran: Vec<_> = pages.reports("ran").iter().map(|report| report["ran"].clone()).collect();
    assert_eq!(ran, names, "each call is executed once");
}

#[tokio::test]
async fn a_page_that_leaves_gives_its_call_to_the_one_that_stays() {
    let (pages, site) = open_site().await;
    let _node = site.start().await;
    let mut graceful = calls_once(vec![client("locate")]);
    graceful["client_grace"] = json!("10s");
    create(&site.client, &graceful).await;
    let _browser = browse(&pages, &[site.client.public_address()], "frames=a,b").await;
    wait_for_reports(&pages, "frame", 2).await;
    site.client.send_message("c", "a", "go").await;
    let first = wait_for_reports(&pages, "ran", 1).await[0]["name"].as_str().unwrap().to_owned();
    pages.dismiss(&first);
    let ran = wait_for_reports(&pages, "ran", 2).await;
    assert_ne!(ran[1]["name"], first);
    pages.release();
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("locate")["result"], json!({"by": ran[1]["name"]}));
}

#[tokio::test]
async fn a_page_answers_although_its_node_is_killed_while_its_tool_runs() {
    let pages = PageServer::start(SCRIPT).await;
    let plan = Plan::new(ABIDE).with(&["--lease", "1m", "--allow-origin", &pages.origin()]);
    let mut cluster = plan.start(Redis::start().await, 3).await;
    create(cluster.client(0), &calls_once(vec![client("locate")])).await;
    let nodes: Vec<String> = cluster.clients().map(Client::public_address).collect();
    let _page = browse(&pages, &nodes, "name=only").await;
    wait_for_reports(&pages, "frame", 1).await;
    cluster.client(0).send_message("c", "a", "go").await;
    assert_eq!(cluster.holder(0, "c").await, 0);
    wait_for_reports(&pages, "ran", 1).await;
    cluster.kill(0).await;
    pages.release();
    let journal = cluster.client(1).wait_until_settled("c", 1).await;
    assert_eq!(journal.result("locate")["result"], json!({"by": "only"}));
    // Over both nodes: no frame is lost, and none comes twice.
    assert_eq!(frame_ids(&pages, "only", "turn_completed").await, journal.mirrored());
    assert_eq!(pages.reports("ran").len(), 1);
    assert_eq!(pages.reports("error"), Vec::<Value>::new());
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_page_goes_on_with_a_node_that_was_killed_and_started_again() {
    let (pages, site) = open_site().await;
    let (node, proxy) = (site.start().await, Proxy::start());
    proxy.aim(&site.client.public_address());
    create(&site.client, &calls_once(vec![client("locate")])).await;
    let _page = browse(&pages, &[proxy.address().to_string()], "name=only").await;
    site.client.send_message("c", "a", "go").await;
    wait_for_reports(&pages, "ran", 1).await;
    node.kill().await;
    pages.release();
    let _node = site.start().await;
    proxy.aim(&site.client.public_address());
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("locate")["result"], json!({"by": "only"}));
    frame_ids(&pages, "only", "turn_completed").await;
    assert_eq!(pages.reports("ran").len(), 1);
}

#[tokio::test]
async fn the_console_is_a_page_that_executes_its_tool() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    create(&site.client, &calls_once(vec![client("locate")])).await;
    site.client.send_message("c", "a", "go").await;
    let url = format!("http://{}/console/?conversation=c&agent=a", site.client.public_address());
    let _page = Browser::open(&url).await;
    let journal = site.client.wait_until_settled("c", 1).await;
    let located = &journal.result("locate")["result"];
    assert!(located["time_zone"].is_string() && located["language"].is_string(), "{located}");
}

#[tokio::test]
async fn the_console_shows_a_conversation_and_takes_a_persons_answers() {
    browser::assert_installed();
    let (site, profile) = (Site::new(ABIDE), tempfile::tempdir().unwrap());
    let _node = site.start().await;
    let url = format!("http://{}/console/?conversation=c", site.client.public_address());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/console.mjs");
    let mut person = Command::new("node");
    person.args([script, browser::PROGRAM, profile.path().to_str().unwrap(), &url]);
    let output =
        timeout(browser::START_TIMEOUT + DEADLINE, person.kill_on_drop(true).output()).await;
    let output = output.expect("the console's script did not end in time");
    let output = output.expect("node is missing: .ci/run installs it");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let page = String::from_utf8_lossy(&output.stdout);
    // Markup in a message is shown as text.
    for line in ["Do everything, <b>please</b>", "All at once.", "Done with everything."] {
        assert!(page.contains(line), "{line} is not in: {page}");
    }
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("call_1_1")["ok"], true);
    assert_eq!(journal.result("call_1_2")["result"], "window");
}
