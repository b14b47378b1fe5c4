//! The processes of a `bash` call never outlive the call, and run again only when they may.

use abide_tests::client::Client;
use abide_tests::deadline::poll;
use abide_tests::node::{Node, Site};
use abide_tests::processes::Mark;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{able, agent, call, steps};

/// A command that is hard to end: a child in its own session, a child that ignores TERM, and the
/// shell itself. It records each run in the file `runs`.
fn stubborn(mark: &Mark) -> String {
    format!(
        "echo run >> runs; setsid sleep {mark} > /dev/null 2>&1 & \
         bash -c 'trap \"\" TERM HUP; until [ -e go ]; do sleep 0.02; done; : {mark}' & \
         until [ -e go ]; do sleep 0.02; done; cat runs; : {mark}"
    )
}

/// How many processes of the stubborn command have its mark.
const PROCESSES: usize = 3;

/// Starts a node whose conversation `c` runs the command.
async fn start_command(site: &Site, mark: &Mark, definition: impl Fn(Value) -> Value) -> Node {
    let node = site.start().await;
    let bash = call("it", "bash", json!({"command": stubborn(mark)}));
    site.client.define("a", &definition(steps(&[vec![bash]]))).await;
    site.client.send_message("c", "a", "go").await;
    mark.wait_for_count(PROCESSES).await;
    node
}

fn site() -> Site {
    Site::new(ABIDE).with(&["--workspaces", "files", "--drain-timeout", "200ms"])
}

/// How often the command ran, by its own records.
fn runs(site: &Site) -> usize {
    std::fs::read_to_string(site.dir().join("files/c/runs")).unwrap().lines().count()
}

/// Lets the command end by itself.
fn release(site: &Site) {
    std::fs::write(site.dir().join("files/c/go"), "").unwrap();
}

async fn delete(client: &Client) -> u16 {
    let answer = client.ask(Method::DELETE, "/v1/conversations/c", None, None).await;
    answer.unwrap().status
}

#[tokio::test]
async fn a_cancelled_turn_leaves_no_process_of_its_command() {
    let (site, mark) = (site(), Mark::default());
    let _node = start_command(&site, &mark, able).await;
    assert_eq!(site.client.cancel("c").await.expect(200), json!({"cancelled": true}));
    mark.wait_for_count(0).await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("it")["error_type"], "CANCELLED");
    assert_eq!(journal.outcomes(), ["cancelled"]);
}

#[tokio::test]
async fn a_deleted_conversation_leaves_no_process_of_its_command() {
    let (site, mark) = (site(), Mark::default());
    let _node = start_command(&site, &mark, able).await;
    assert_eq!(delete(&site.client).await, 204);
    mark.wait_for_count(0).await;
    site.client.get("/v1/conversations/c").await.expect_problem(404, "not-found");
    let files = site.dir().join("files/c");
    poll("its files to be gone", async || (!files.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_crashed_actor_leaves_only_the_processes_of_the_next_attempt() {
    let (site, mark) = (site(), Mark::default());
    let _node = start_command(&site, &mark, able).await;
    let killed = site.client.admin(Method::POST, "/admin/actors/c/kill").await;
    assert_eq!(killed.status, 202);
    poll("the command to run again", async || (runs(&site) == 2).then_some(())).await;
    mark.wait_for_count(PROCESSES).await;
    release(&site);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("it")["result"], "exit 0\nrun\nrun\n");
    mark.wait_for_count(0).await;
}

#[tokio::test]
async fn a_node_that_is_terminated_leaves_no_process_and_its_successor_runs_the_command_again() {
    let (site, mark) = (site(), Mark::default());
    let mut node = start_command(&site, &mark, able).await;
    node.terminate();
    assert!(node.wait_for_exit().await.success());
    mark.wait_for_count(0).await;
    assert_runs_again(&site, &mark).await;
}

#[tokio::test]
async fn a_killed_node_leaves_no_process_and_its_successor_runs_the_command_again() {
    let (site, mark) = (site(), Mark::default());
    let node = start_command(&site, &mark, able).await;
    node.kill().await;
    mark.wait_for_count(0).await;
    assert_runs_again(&site, &mark).await;
}

/// After a restart the command runs as attempt 2, and ends by itself.
async fn assert_runs_again(site: &Site, mark: &Mark) {
    assert_eq!(runs(site), 1);
    let _node = site.start().await;
    mark.wait_for_count(PROCESSES).await;
    assert_eq!(site.client.snapshot("c").await["in_flight"][0]["attempt"], 2);
    release(site);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("it")["result"], "exit 0\nrun\nrun\n");
    assert_eq!(journal.outcomes(), ["completed"]);
    mark.wait_for_count(0).await;
}

#[tokio::test]
async fn a_command_that_must_not_be_repeated_ends_as_interrupted_after_a_kill() {
    let (site, mark) = (site(), Mark::default());
    let once = |model| {
        let entry = json!({"name": "bash", "run": {"builtin": "bash"}, "on_interrupt": "fail"});
        agent(model, vec![entry])
    };
    let node = start_command(&site, &mark, once).await;
    node.kill().await;
    mark.wait_for_count(0).await;
    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("it")["error_type"], "INTERRUPTED");
    assert_eq!((journal.outcomes(), runs(&site)), (vec!["completed"], 1));
    mark.wait_for_count(0).await;
}
