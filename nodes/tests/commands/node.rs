//! A node that is killed leaves no command behind, and keeps its secrets from them.

use std::env;
use std::io::Write;
use std::process::Stdio;

use abide_actors::exec::{Limits, Sandbox, Shell};
use tokio::process::{Child, Command};

use crate::rig::{Rig, alive, eventually, launcher, long};

const COMMAND: &str = "ABIDE_TEST_COMMAND";

/// This process again, as a node that runs one command and shows its output.
fn node(command: &str, secret: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "node::a_node_runs_what_it_is_told", "--nocapture"])
        .env(COMMAND, command)
        .env("ABIDE_TEST_SECRET", secret)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Does something only as a child of the other tests here.
#[tokio::test]
async fn a_node_runs_what_it_is_told() {
    if let Ok(command) = env::var(COMMAND) {
        let rig = Rig::of(Shell::new(launcher(), Sandbox::Auto, Limits::default()));
        let ended = rig.run(&command).await;
        std::io::stdout().write_all(ended.output.as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn a_killed_node_leaves_no_command_behind() {
    let long = long();
    let stay = "trap '' TERM HUP; setsid sleep LONG & nohup sleep LONG & sleep LONG";
    let mut node = node(&stay.replace("LONG", &long), "");
    eventually("three sleeps", || alive(&long) == 3).await;
    node.kill().await.unwrap();
    eventually("no sleep", || alive(&long) == 0).await;
}

#[tokio::test]
async fn a_command_cannot_read_the_secrets_of_its_node() {
    let secret = format!("secret-{}", long());
    let search = format!("env | grep {secret}; grep -las {secret} /proc/[0-9]*/environ");
    let said = node(&format!("{search}; echo checked"), &secret).wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("checked\n"), "{said}");
    assert!(!said.contains("environ") && !said.contains(&secret), "{said}");
}
