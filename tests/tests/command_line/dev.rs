//! `abide dev`: a node that follows a directory of agents, and ends with the command.

use std::process::Stdio;

use abide_tests::deadline::{poll, within};
use abide_tests::signal::terminate;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::shell::{Shell, finish, write_agent};

#[tokio::test]
async fn a_development_node_follows_its_agents_and_ends_with_the_command() {
    let shell = Shell::new();
    let directory = shell.home.path().join("agents");
    write_agent(&directory, "one", "1");
    let any_port = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let arguments = [&["dev", "--agents", "agents", "--no-open"][..], &any_port].concat();
    let mut dev = shell.command(&arguments).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let mut wait_for = async |text: &str| loop {
        let line = within(text, lines.next_line()).await.unwrap().unwrap();
        if line.contains(text) {
            return line;
        }
    };
    wait_for("created   one").await;
    let node = wait_for("node ").await;
    let url = node.split_whitespace().last().unwrap().to_owned();
    let console = wait_for("console ").await;
    assert!(console.ends_with("/console/"), "{console}");
    let user = Shell::new().with("ABIDE_URL", &url);
    user.run(&["say", "c", "hi", "--agent", "one"]).await.expect(0);

    write_agent(&directory, "one", "changed");
    wait_for("changed   one").await;
    let said = user.run(&["say", "c", "hi"]).await.expect(0);
    assert_eq!(said, "changed\n");
    write_agent(&directory, "two", "2");
    wait_for("created   two").await;
    shell.file("agents/bad.yaml", "name: bad\n");
    std::fs::remove_file(directory.join("bad.yaml")).unwrap();
    std::fs::remove_file(directory.join("two.yaml")).unwrap();
    wait_for("abide agents rm two").await;

    terminate(&dev);
    assert_eq!(finish(dev, "dev").await.code, 0);
    poll("the node to be gone", async || {
        let run = user.run(&["ls"]).await;
        (run.code == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_development_node_ends_with_a_command_that_is_killed() {
    let shell = Shell::new();
    let arguments =
        ["dev", "--no-open", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let mut dev = shell.command(&arguments).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let node = within("the address", lines.next_line()).await.unwrap().unwrap();
    let user = Shell::new().with("ABIDE_URL", node.split_whitespace().last().unwrap());
    user.run(&["ls"]).await.expect(0);
    dev.kill().await.unwrap();
    poll("the node to be gone", async || (user.run(&["ls"]).await.code == 1).then_some(())).await;
}

#[tokio::test]
async fn a_directory_that_is_wrong_starts_no_node() {
    let shell = Shell::new();
    shell.file("agents/bad.yaml", "name: bad\n");
    let run = shell.run(&["dev", "--agents", "agents", "--listen", "127.0.0.1:0"]).await;
    assert!(run.stderr.contains("bad.yaml"), "{run:?}");
    run.expect(2);
    assert!(!shell.home.path().join(".abide").exists());
}
