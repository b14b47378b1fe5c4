//! No process outlives its call, whatever it does to stay.

use std::time::{Duration, Instant};

use abide_actors::exec::{Command, ExitStatus};
use tokio::task::AbortHandle;

use crate::test_shell::{TestShell, eventually, sleeping, unique_seconds};

/// Ways in which a command may try to leave a process behind.
const ESCAPES: [&str; 5] = [
    "sleep LONG &",
    "setsid sleep LONG < /dev/null > /dev/null 2>&1 &",
    "nohup sleep LONG > /dev/null 2>&1 &",
    "(setsid sh -c '(sleep LONG & ) & ' > /dev/null 2>&1 &) &",
    "setsid bash -c 'trap \"\" TERM HUP; sleep LONG & sleep LONG' > /dev/null 2>&1 &",
];

#[tokio::test]
async fn background_processes_end_with_the_command() {
    let shell = TestShell::new();
    for escape in ESCAPES {
        let seconds = unique_seconds();
        let escape = escape.replace("LONG", &seconds);
        // The process must exist before the command ends.
        let wait = format!("until pgrep -f '^sleep {seconds}' > /dev/null; do sleep 0.01; done");
        let ended = shell.run(&format!("{escape} {wait}; echo started")).await;
        assert_eq!(
            (ended.status, ended.output.as_str()),
            (ExitStatus::Exited(0), "started\n"),
            "{escape}"
        );
        assert_eq!(sleeping(&seconds), 0, "{escape}");
    }
}

#[tokio::test]
async fn the_processes_of_a_dropped_call_end() {
    let shell = TestShell::new();
    for escape in ESCAPES {
        let seconds = unique_seconds();
        let call = start(&shell, &format!("{} sleep {seconds}", escape.replace("LONG", &seconds)));
        eventually("both sleeps", || sleeping(&seconds) >= 2).await;
        call.abort();
        eventually(escape, || sleeping(&seconds) == 0).await;
    }
}

#[tokio::test]
async fn a_command_that_ignores_term_is_killed() {
    let shell = TestShell::new();
    let seconds = unique_seconds();
    let stubborn = format!("trap '' TERM; echo stubborn; sleep {seconds}; sleep {seconds}");
    let start = Instant::now();
    let ended = shell.run_for(Duration::from_millis(500), &stubborn).await.unwrap();
    assert_eq!((ended.status, ended.output.as_str()), (ExitStatus::TimedOut, "stubborn\n"));
    assert!(start.elapsed() >= Duration::from_millis(2500), "the command had no grace period");
    assert_eq!(sleeping(&seconds), 0);
}

#[tokio::test]
async fn a_command_gets_term_and_may_clean_up() {
    let shell = TestShell::new();
    let tidy = "trap 'echo tidy; exit' TERM; echo began; while :; do sleep 0.05; done";
    let ended = shell.run_for(Duration::from_millis(500), tidy).await.unwrap();
    assert_eq!(ended.status, ExitStatus::TimedOut);
    assert!(ended.output.ends_with("tidy\n"), "{}", ended.output);
    assert!(ended.duration_ms < 2500, "it did not end at TERM: {} ms", ended.duration_ms);
}

#[tokio::test]
async fn a_stopped_process_is_ended_too() {
    let shell = TestShell::new();
    let seconds = unique_seconds();
    let ended = shell.run(&format!("sleep {seconds} & kill -STOP $!; echo done")).await;
    assert_eq!(ended.status, ExitStatus::Exited(0));
    assert!(ended.duration_ms < 2000, "it was not continued to get TERM: {} ms", ended.duration_ms);
    assert_eq!(sleeping(&seconds), 0);
}

#[tokio::test]
async fn a_command_that_closed_its_output_is_still_waited_for() {
    let ended = TestShell::new().run("exec > /dev/null 2>&1; sleep 0.3; exit 3").await;
    assert_eq!(ended.status, ExitStatus::Exited(3));
    assert!(ended.duration_ms >= 300);
}

fn start(shell: &TestShell, text: &str) -> AbortHandle {
    let inner = shell.inner.clone();
    let command: Command = shell.command(text);
    tokio::spawn(async move { inner.run(command).await }).abort_handle()
}
