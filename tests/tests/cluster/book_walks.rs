//! The shell walks of the README and the book work when pasted.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use abide_tests::book_blocks::blocks;
use abide_tests::node::Site;
use tokio::process::Command;

use crate::ABIDE;
use crate::example_app;

/// A stand-in for cargo: `build` links the program that was built for these tests to the place of a
/// release build; `run … -- FLAGS` executes that program in the same process.
const CARGO: &str = r#"#!/bin/sh
case $1 in
build) mkdir -p target/release && exec ln -sf "$ABIDE_UNDER_TEST" target/release/abide ;;
run)
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
    [ $# -gt 0 ] && shift
    exec "$ABIDE_UNDER_TEST" "$@" ;;
*) echo "not a part of the walk: cargo $*" >&2; exit 1 ;;
esac
"#;

/// A stand-in for npx, which would download the server that `.ci/mcp-servers` has installed.
const NPX: &str = r#"#!/bin/sh
[ "$2" = "@modelcontextprotocol/server-everything" ] || exit 1
exec "CACHE/abide-tests/mcp-everything/node_modules/.bin/mcp-server-everything"
"#;

/// A stand-in for npm, which would download what `.ci/ai-sdk`, `.ci/ag-ui`, `.ci/openai`, `.ci/a2a` and
/// `.ci/mcp-clients` and `.ci/example-app` have installed, and our own client.
const NPM: &str = r#"#!/bin/sh
mkdir -p node_modules/@ag-ui node_modules/@a2a-js node_modules/@abide
case "$*" in
"install --silent ai@7") ln -s "CACHE/abide-tests/ai-sdk/node_modules/ai7" node_modules/ai ;;
"install --silent @ag-ui/client@1.0.0")
    ln -s "CACHE/abide-tests/ag-ui/node_modules/agui-client-1" node_modules/@ag-ui/client ;;
"install --silent @a2a-js/sdk@1")
    ln -s "CACHE/abide-tests/a2a/node_modules/@a2a-js/sdk" node_modules/@a2a-js/sdk ;;
"install --silent @abide/client") ln -s "CLIENTS/typescript/client" node_modules/@abide/client ;;
"ci --silent --prefix nodes/examples/app")
    ln -s "CACHE/abide-tests/example-app/node_modules" nodes/examples/app/node_modules ;;
"install --silent openai@7") ln -s "CACHE/abide-tests/openai/node_modules/openai" node_modules/openai ;;
"install --silent @modelcontextprotocol/client@2")
    ln -s "CACHE/abide-tests/mcp-clients/node_modules/@modelcontextprotocol" node_modules ;;
*) exit 1 ;;
esac
"#;

/// Stand-ins for pip and Python, with what `.ci/openai` and `.ci/clients` have installed.
const PIP: &str = r#"#!/bin/sh
case "$*" in
"install --quiet openai") echo openai/venv ;;
"install --quiet abide-client") echo clients/python ;;
"install --quiet --require-hashes -r nodes/examples/app/payments/requirements.txt") echo clients/python ;;
*) exit 1 ;;
esac >.python
"#;
const PYTHON: &str = r#"#!/bin/sh
PYTHONPATH=CLIENTS/python/src exec "CACHE/abide-tests/$(cat .python)/bin/python" "$@"
"#;

/// A stand-in for node of the version that these packages need.
const NODE: &str = r#"#!/bin/sh
for machine in x64 arm64; do
    node="CACHE/abide-tests/ai-sdk/node_modules/node-linux-$machine/bin/node"
    [ -x "$node" ] && exec "$node" "$@"
done
PATH=${PATH#*:} exec node "$@"
"#;

const README: &str = "README.md";
const FIVE_MINUTES: &str = "deploy/docs/src/guide/five-minutes.md";
const THREE_NODES: &str = "deploy/docs/src/guide/three-nodes.md";
const MOVING: &str = "deploy/docs/src/guide/moving.md";
const FILES_AND_SHELL: &str = "deploy/docs/src/guide/files-and-shell.md";
const MCP: &str = "deploy/docs/src/guide/mcp.md";
const AI_SDK: &str = "deploy/docs/src/guide/ai-sdk.md";
const AG_UI: &str = "deploy/docs/src/guide/ag-ui.md";
const MCP_SERVER: &str = "deploy/docs/src/guide/mcp-server.md";
const OPENAI: &str = "deploy/docs/src/guide/openai.md";
const CLIENTS: &str = "deploy/docs/src/guide/clients.md";
const A2A: &str = "deploy/docs/src/guide/a2a.md";
const LONG_CONVERSATIONS: &str = "deploy/docs/src/guide/long-conversations.md";
const EXAMPLE_APP: &str = "deploy/docs/src/guide/example-app.md";
const RUNBOOK: &str = "deploy/docs/src/operations/runbook.md";

/// How long a walk may take, with its pauses for readers.
const DEADLINE: Duration = Duration::from_secs(120);

/// A loopback address on which no other test and no other program listens.
fn own_address() -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.77.{high}.{}", low.max(1))
}

#[tokio::test]
async fn the_readmes_sixty_seconds_work_when_pasted() {
    let site = Site::new(ABIDE);
    let output = run_blocks(&site, README, "sixty", own_address()).await;
    assert!(output.contains(r#""status":"accepted""#), "the call was approved: {output}");
    assert!(output.contains("The tool said"), "the turn went on: {output}");
    assert_all_completed(&site, &output).await;
}

#[tokio::test]
async fn the_five_minutes_work_when_pasted() {
    let site = Site::new(ABIDE);
    let output = run_blocks(&site, FIVE_MINUTES, "walk", own_address()).await;
    assert_all_completed(&site, &output).await;
}

#[tokio::test]
async fn three_nodes_work_when_pasted() {
    let output = run_blocks_with_build(THREE_NODES, "nodes").await;
    assert!(output.contains(r#""status":"accepted""#), "{output}");
    assert!(output.contains("The tool said"), "the turn went on: {output}");
}

#[tokio::test]
async fn a_store_moves_from_a_laptop_to_a_cluster_and_back_when_pasted() {
    let output = run_blocks_with_build(MOVING, "moving").await;
    assert!(output.contains("The tool said"), "the turn went on after the move: {output}");
    assert!(output.contains("1 conversations imported, 0 were there already"), "{output}");
}

#[tokio::test]
async fn files_and_a_shell_work_when_pasted() {
    let output = run_blocks_with_build(FILES_AND_SHELL, "files").await;
    assert!(output.contains(r"exit 0\nServus, Graz\n"), "the command ran: {output}");
}

#[tokio::test]
async fn an_mcp_server_works_when_pasted() {
    let output = run_blocks_with_build(MCP, "mcp").await;
    assert!(output.contains("The sum of 19 and 23 is 42."), "it was added: {output}");
    assert!(output.contains(r#""tool":"every_get-sum""#), "it is remembered: {output}");
}

#[tokio::test]
async fn a_chat_with_the_ai_sdk_works_when_pasted() {
    let output = run_blocks_with_build(AI_SDK, "ai-sdk").await;
    assert!(output.contains("to approve: Send an e-mail to ada@example.com?"), "{output}");
    assert!(output.contains("The tool said"), "the turn went on: {output}");
}

#[tokio::test]
async fn a_front_end_with_ag_ui_works_when_pasted() {
    let output = run_blocks_with_build(AG_UI, "ag-ui").await;
    assert!(output.contains("to approve: Send an e-mail to ada@example.com?"), "{output}");
    assert!(output.contains("bob@example.com"), "it ran as it was edited: {output}");
}

#[tokio::test]
async fn a_chat_with_openais_clients_works_when_pasted() {
    let output = run_blocks_with_build(OPENAI, "openai").await;
    assert!(output.contains("to approve: send_email"), "{output}");
    assert!(output.contains("The tool said"), "the turn went on: {output}");
    assert!(output.contains("You said: hello. Ask me to send a mail"), "it was whole: {output}");
}

#[tokio::test]
async fn our_own_clients_work_when_pasted() {
    let output = run_blocks_with_build(CLIENTS, "clients").await;
    assert!(output.contains("You said: Hello. Ask me to send a mail"), "it was whole: {output}");
    assert!(output.contains("to approve: Send an e-mail to ada@example.com?"), "{output}");
    assert!(output.contains("approved: send_email accepted"), "{output}");
    assert!(output.contains("The tool said"), "the turn went on: {output}");
}

#[tokio::test]
async fn agents_that_talk_to_agents_work_when_pasted() {
    let output = run_blocks_with_build(A2A, "a2a").await;
    assert!(output.contains("TASK_STATE_INPUT_REQUIRED send_email"), "{output}");
    assert!(output.contains("TASK_STATE_COMPLETED The tool said"), "the task went on: {output}");
}

#[tokio::test]
async fn an_mcp_client_works_when_pasted() {
    let output = run_blocks_with_build(MCP_SERVER, "mcp-server").await;
    assert!(output.contains("tools: demo abide_pending abide_conversation"), "{output}");
    assert!(output.contains("to approve: Send an e-mail to ada@example.com?"), "{output}");
    assert!(output.contains("The tool said"), "the turn went on: {output}");
    assert!(output.contains("\ncompleted\n"), "it was told again: {output}");
}

#[tokio::test]
async fn a_long_conversation_works_when_pasted() {
    let output = run_blocks_with_build(LONG_CONVERSATIONS, "lasts").await;
    assert!(output.contains(r#""reason":"max_conversation_tokens""#), "it was halted: {output}");
    assert!(output.contains("You said: Else"), "the fork went on: {output}");
    assert!(output.contains(r#""media_type":"image/gif""#), "the blob was stored: {output}");
    assert!(output.contains(r#""entries""#), "the audit was read: {output}");
}

/// Runs the blocks of this name in a directory where the program is already built.
async fn run_blocks_with_build(page: &str, name: &str) -> String {
    let site = Site::new(ABIDE);
    let release = site.dir().join("target/release");
    std::fs::create_dir_all(&release).unwrap();
    std::os::unix::fs::symlink(ABIDE, release.join("abide")).unwrap();
    run_blocks(&site, page, name, own_address()).await
}

#[tokio::test]
async fn what_operators_do_by_the_runbook_works_when_pasted() {
    let output = run_blocks_with_build(RUNBOOK, "runbook").await;
    for answer in [
        r#"{"status":"failed","seq":"#,
        r#""type":"/problems/call-not-open""#,
        r#"{"cancelled":true}"#,
        r#"{"node":"node-2"}"#,
        r#""detail":"the conversation is on node node-2 already""#,
        r#"{"node":"node-1"}"#,
        r#"{"released":true}"#,
        r#"{"retried":["model step 1 of turn_"#,
        r#""state":"drained""#,
    ] {
        assert!(output.contains(answer), "{answer} is missing: {output}");
    }
    // The nodes' own log lines come in between.
    assert!(output.matches("202\n").count() >= 2, "a kill and a drain: {output}");
}

#[tokio::test]
async fn the_example_application_works_when_pasted() {
    let site = Site::new(ABIDE);
    example_app::place(site.dir());
    let output = run_blocks(&site, EXAMPLE_APP, "example-app", own_address()).await;
    assert!(output.contains("Refund € 64 for order 1042?"), "it was in the inbox: {output}");
    assert!(output.contains(r#""approved_by": "key:maria""#), "it was paid: {output}");
    assert!(output.contains("reference R-1042"), "the customer reads it: {output}");
    assert!(output.contains("the label L-1042"), "a worker printed it: {output}");
    assert!(output.contains("Paid back so far: € 64.00"), "the schedule was triggered: {output}");
}

#[tokio::test]
async fn a_backup_of_redis_is_restored_by_the_runbook() {
    let output = run_blocks_with_build(RUNBOOK, "backup").await;
    assert!(output.contains(r#""status":"accepted""#), "the restored call was approved: {output}");
    assert!(output.contains("aof_rewrite_in_progress:0"), "{output}");
}

#[tokio::test]
async fn a_backup_of_an_embedded_store_is_restored_by_the_runbook() {
    let output = run_blocks_with_build(RUNBOOK, "backup-embedded").await;
    assert!(output.contains("call_1_1"), "the restored call waits: {output}");
}

/// Runs the blocks of this name at an address of this test's own. Returns the output.
async fn run_blocks(site: &Site, page: &str, name: &str, address: String) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let page = std::fs::read_to_string(&page).unwrap();
    let mut script = "set -eu\n".to_owned();
    for block in blocks(&page, name).unwrap() {
        script += &block.replace("127.0.0.1", &address).replace("localhost", &address);
        script += "\n";
    }
    let bin = site.dir().join("bin");
    std::fs::create_dir(&bin).unwrap();
    executable(&bin.join("cargo"), CARGO);
    // A server has another home than its node.
    let home = || format!("{}/.cache", std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| home());
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../nodes/clients");
    for (name, program) in
        [("npx", NPX), ("npm", NPM), ("node", NODE), ("pip", PIP), ("python", PYTHON)]
    {
        let program = program.replace("CACHE", &cache).replace("CLIENTS", clients);
        executable(&bin.join(name), &program);
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let log = site.dir().join("output");
    let file = std::fs::File::create(&log).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(site.dir()).process_group(0);
    bash.env("PATH", path).env("ABIDE_UNDER_TEST", ABIDE);
    bash.env("PYTHON", format!("{cache}/abide-tests/clients/python/bin/python"));
    bash.env("ABIDE_LISTEN", format!("{address}:8080"))
        .env("ABIDE_ADMIN_LISTEN", format!("{address}:9090"))
        .env("ABIDE_CLUSTER_LISTEN", format!("{address}:7070"));
    bash.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let mut bash = bash.kill_on_drop(true).spawn().unwrap();
    let group = bash.id().unwrap();
    let exit = tokio::time::timeout(DEADLINE, bash.wait()).await.map(Result::unwrap);
    // What the walk left running is in its process group, and nothing else is.
    let redis = format!("redis-cli -h {address} -p 6390 shutdown nosave >/dev/null 2>&1");
    let end = format!("kill -KILL -{group} 2>/dev/null; {redis} || true");
    assert!(Command::new("sh").args(["-c", &end]).status().await.unwrap().success());
    let output = std::fs::read_to_string(&log).unwrap();
    let done = exit.as_ref().is_ok_and(|status| status.success());
    assert!(done, "{exit:?}\n--- the walk\n{script}\n--- its output\n{output}");
    output
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Serves the walk's store once more, and fails unless every conversation has completed.
async fn assert_all_completed(site: &Site, output: &str) {
    std::fs::rename(site.dir().join(".abide"), site.store()).unwrap();
    let _node = site.start().await;
    let all = site.client.get("/v1/conversations").await.expect(200);
    let all = all["conversations"].as_array().unwrap();
    assert!(!all.is_empty(), "the walk has no conversation: {output}");
    for conversation in all {
        let journal = site.client.wait_until_settled(conversation["id"].as_str().unwrap(), 1).await;
        let outcomes = journal.outcomes();
        assert!(outcomes.iter().all(|outcome| *outcome == "completed"), "{journal:#?}\n{output}");
    }
}
