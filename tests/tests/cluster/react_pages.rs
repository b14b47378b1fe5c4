//! Pages with React in a real browser: CopilotKit's own chat, and `useChat` of the AI SDK.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use abide_tests::browser;
use abide_tests::browser_page_server::PageServer;
use abide_tests::deadline::within;
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::ABIDE;
use crate::agents::{calls_once, client, gated_client};

/// A page of `tests/react`, with all that it imports.
async fn bundle(page: &str) -> String {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/react/node_modules");
    assert!(packages.exists(), "{} is missing: run .ci/react", packages.display());
    let program = |machine: &str| packages.join(format!("@esbuild/linux-{machine}/bin/esbuild"));
    let program = ["x64", "arm64"].map(program).into_iter().find(|program| program.exists());
    let mut command = Command::new(program.expect("esbuild is missing: run .ci/react"));
    command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("react").join(page));
    command.args([
        "--bundle",
        "--minify",
        "--format=esm",
        "--jsx=automatic",
        "--loader:.css=empty",
    ]);
    command.args(["--define:process.env.NODE_ENV=\"production\"", "--log-level=warning"]);
    // Our own packages are those of this tree.
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nodes/clients/typescript");
    for (package, file) in [
        ("@abide/client", "client/src/index.js"),
        ("@abide/react/chat", "react/src/chat.js"),
        ("@abide/react", "react/src/index.js"),
    ] {
        command.arg(format!("--alias:{package}={}", clients.join(file).display()));
    }
    command.env("NODE_PATH", packages).kill_on_drop(true);
    let output = within("the bundle", command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Uses a page with an agent that calls a tool of the page and one that needs an approval; the node dies
/// while that waits, once it has the results of the calls that are named, and the page is loaded again.
/// Returns what the page was like.
async fn use_page(page: &str, sent: &[&str]) -> Value {
    browser::assert_installed();
    let pages = PageServer::start(bundle(page).await.leak()).await;
    let site = Site::new(ABIDE).with(&["--allow-origin", &pages.origin()]);
    let (node, proxy) = (site.start().await, Proxy::start());
    proxy.aim(&site.client.public_address());
    site.client.define("a", &calls_once(vec![client("locate"), gated_client("pay")])).await;
    let profile = tempfile::tempdir().unwrap();
    let url = format!("{}/?node=http://{}&thread=c", pages.origin(), proxy.address());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/chat.mjs");
    let mut person = Command::new("node");
    person.args([script, browser::PROGRAM, profile.path().to_str().unwrap(), &url]);
    person.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut person = person.spawn().expect("node is missing: .ci/run installs it");
    let mut input = person.stdin.take().unwrap();
    let mut output = BufReader::new(person.stdout.take().unwrap()).lines();
    let asked = timeout(browser::START_TIMEOUT, output.next_line()).await;
    let asked = asked.expect("the page did not show its question in time").unwrap().unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    let has = |journal: &Journal, call: &str| {
        journal.of("tool_result").any(|event| event["data"]["call_id"] == call)
    };
    let what = "the results that the page has sent";
    site.client.wait_for("c", what, |journal| sent.iter().all(|call| has(journal, call))).await;
    node.kill().await;
    let _node = site.start().await;
    proxy.aim(&site.client.public_address());
    input.write_all(b"\n").await.unwrap();
    let told = within("the end of the page's turn", output.next_line()).await.unwrap();
    let told: Value = serde_json::from_str(&told.expect("the script failed")).unwrap();
    assert_eq!(asked["question"], told["question"], "the page that was loaded again asks as well");
    assert!(within("the browser's end", person.wait()).await.unwrap().success());
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    for call in ["locate", "pay"] {
        assert_eq!(journal.result(call)["result"], json!({"by": "page"}));
    }
    let kinds: Vec<_> = journal.of("resolution").map(|event| &event["data"]["kind"]).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "approval").count(), 1);
    told
}

#[tokio::test]
async fn a_page_with_copilotkit_shows_its_card_again_and_runs_its_tool_after_the_approval() {
    let told = use_page("copilotkit.jsx", &[]).await;
    assert_eq!((&told["before"], &told["ran"]), (&json!("locate"), &json!("locate pay")));
}

#[tokio::test]
async fn a_page_with_use_chat_shows_its_question_again_and_runs_its_tool_after_the_approval() {
    let told = use_page("use-chat.jsx", &[]).await;
    assert_eq!(told["before"], "locate");
    // The page sends the results of a step together: what it had not sent, it runs again.
    assert_eq!(told["ran"], "locate locate pay");
}

#[tokio::test]
async fn a_page_with_our_hooks_shows_its_card_again_and_runs_its_tool_after_the_approval() {
    let told = use_page("hooks.jsx", &["locate"]).await;
    assert_eq!(told["ran"], "locate pay");
}

#[tokio::test]
async fn a_page_with_use_chat_that_listens_shows_what_is_approved_elsewhere_and_runs_its_tool() {
    browser::assert_installed();
    let pages = PageServer::start(bundle("listening.jsx").await.leak()).await;
    let site = Site::new(ABIDE).with(&["--allow-origin", &pages.origin()]);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![gated_client("pay")])).await;
    let profile = tempfile::tempdir().unwrap();
    let node = site.client.public_address();
    let url = format!("{}/?node=http://{node}&thread=c", pages.origin());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/listen.mjs");
    let mut person = Command::new("node");
    person.args([script, browser::PROGRAM, profile.path().to_str().unwrap(), &url]);
    person.stdout(Stdio::piped()).kill_on_drop(true);
    let mut person = person.spawn().expect("node is missing: .ci/run installs it");
    let mut output = BufReader::new(person.stdout.take().unwrap()).lines();
    let asked = timeout(browser::START_TIMEOUT, output.next_line()).await;
    let asked = asked.expect("the page did not show its question in time").unwrap().unwrap();
    assert!(asked.contains("Allow pay?"), "{asked}");
    site.client.resolve("c", "pay", json!({"approved": true})).await.expect(200);
    let told = within("what the page shows", output.next_line()).await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["ran"], "pay");
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("pay")["result"], json!({"by": "page"}));
}
