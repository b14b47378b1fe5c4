//! A killed node leaves no command and no server behind, and commands cannot read the secrets of their node.

use std::env;
use std::io::Write;
use std::process::Stdio;

use abide_actors::exec::{Limits, Sandbox, Shell};
use tokio::process::{Child, Command};

use crate::servers::{script, shell};
use crate::test_shell::{TestShell, eventually, launcher, sleeping, unique_seconds};

const COMMAND: &str = "ABIDE_TEST_COMMAND";
const SERVER: &str = "ABIDE_TEST_SERVER";

/// Starts this test program again, as a node that runs one command and prints its output.
fn start_node(command: &str, secret: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "killed_node::a_node_runs_the_command_that_it_is_given", "--nocapture"])
        .env(COMMAND, command)
        .env("ABIDE_TEST_SECRET", secret)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Does nothing unless the next test started it, which ends it.
#[tokio::test]
async fn a_node_keeps_the_server_that_it_is_given() {
    if let Ok(text) = env::var(SERVER) {
        let base = tempfile::tempdir().unwrap();
        let _server = shell().serve(script(&text, &base)).await.unwrap();
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn a_killed_node_leaves_no_server_behind() {
    let seconds = unique_seconds();
    let deaf = "trap '' TERM HUP; setsid sleep LONG & sleep LONG";
    let mut node = Command::new(env::current_exe().unwrap())
        .args(["--exact", "killed_node::a_node_keeps_the_server_that_it_is_given"])
        .env(SERVER, deaf.replace("LONG", &seconds))
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("two sleeps", || sleeping(&seconds) == 2).await;
    node.kill().await.unwrap();
    eventually("no sleep", || sleeping(&seconds) == 0).await;
}

/// Does nothing unless another test here started it.
#[tokio::test]
async fn a_node_runs_the_command_that_it_is_given() {
    if let Ok(command) = env::var(COMMAND) {
        let shell = TestShell::around(Shell::new(launcher(), Sandbox::Auto, Limits::default()));
        let ended = shell.run(&command).await;
        std::io::stdout().write_all(ended.output.as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn a_killed_node_leaves_no_command_behind() {
    let seconds = unique_seconds();
    let stubborn = "trap '' TERM HUP; setsid sleep LONG & nohup sleep LONG & sleep LONG";
    let mut node = start_node(&stubborn.replace("LONG", &seconds), "");
    eventually("three sleeps", || sleeping(&seconds) == 3).await;
    node.kill().await.unwrap();
    eventually("no sleep", || sleeping(&seconds) == 0).await;
}

#[tokio::test]
async fn a_command_cannot_read_the_secrets_of_its_node() {
    let secret = format!("secret-{}", unique_seconds());
    let search = format!("env | grep {secret}; grep -las {secret} /proc/[0-9]*/environ");
    let ended =
        start_node(&format!("{search}; echo checked"), &secret).wait_with_output().await.unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(output.contains("checked\n"), "{output}");
    assert!(!output.contains("environ") && !output.contains(&secret), "{output}");
}
