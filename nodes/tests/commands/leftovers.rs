//! Nothing outlives its call, whatever it does to stay.

use std::time::{Duration, Instant};

use abide_actors::exec::{Command, ExitStatus};
use tokio::task::AbortHandle;

use crate::rig::{Rig, alive, eventually, long};

/// Ways to be forgotten.
const ESCAPES: [&str; 5] = [
    "sleep LONG &",
    "setsid sleep LONG < /dev/null > /dev/null 2>&1 &",
    "nohup sleep LONG > /dev/null 2>&1 &",
    "(setsid sh -c '(sleep LONG & ) & ' > /dev/null 2>&1 &) &",
    "setsid bash -c 'trap \"\" TERM HUP; sleep LONG & sleep LONG' > /dev/null 2>&1 &",
];

#[tokio::test]
async fn what_stays_in_the_background_ends_with_the_command() {
    let rig = Rig::new();
    for escape in ESCAPES {
        let long = long();
        let escape = escape.replace("LONG", &long);
        // So that it is there before the command ends.
        let wait = format!("until pgrep -f '^sleep {long}' > /dev/null; do sleep 0.01; done");
        let ended = rig.run(&format!("{escape} {wait}; echo started")).await;
        assert_eq!(
            (ended.how, ended.output.as_str()),
            (ExitStatus::Exited(0), "started\n"),
            "{escape}"
        );
        assert_eq!(alive(&long), 0, "{escape}");
    }
}

#[tokio::test]
async fn what_a_dropped_call_started_ends() {
    let rig = Rig::new();
    for escape in ESCAPES {
        let long = long();
        let call = start(&rig, &format!("{} sleep {long}", escape.replace("LONG", &long)));
        eventually("both sleeps", || alive(&long) >= 2).await;
        call.abort();
        eventually(escape, || alive(&long) == 0).await;
    }
}

#[tokio::test]
async fn a_command_that_ignores_term_is_killed() {
    let rig = Rig::new();
    let long = long();
    let stubborn = format!("trap '' TERM; echo stubborn; sleep {long}; sleep {long}");
    let start = Instant::now();
    let ended = rig.run_for(Duration::from_millis(500), &stubborn).await.unwrap();
    assert_eq!((ended.how, ended.output.as_str()), (ExitStatus::TimedOut, "stubborn\n"));
    assert!(start.elapsed() >= Duration::from_millis(2500), "it had no grace");
    assert_eq!(alive(&long), 0);
}

#[tokio::test]
async fn a_command_hears_term_and_may_tidy_up() {
    let rig = Rig::new();
    let tidy = "trap 'echo tidy; exit' TERM; echo began; while :; do sleep 0.05; done";
    let ended = rig.run_for(Duration::from_millis(500), tidy).await.unwrap();
    assert_eq!(ended.how, ExitStatus::TimedOut);
    assert!(ended.output.ends_with("tidy\n"), "{}", ended.output);
    assert!(ended.duration_ms < 2500, "it did not end at TERM: {} ms", ended.duration_ms);
}

#[tokio::test]
async fn a_stopped_process_is_no_hindrance() {
    let rig = Rig::new();
    let long = long();
    let ended = rig.run(&format!("sleep {long} & kill -STOP $!; echo done")).await;
    assert_eq!(ended.how, ExitStatus::Exited(0));
    assert!(ended.duration_ms < 2000, "it did not go on to hear TERM: {} ms", ended.duration_ms);
    assert_eq!(alive(&long), 0);
}

#[tokio::test]
async fn a_command_that_closed_its_output_is_still_waited_for() {
    let ended = Rig::new().run("exec > /dev/null 2>&1; sleep 0.3; exit 3").await;
    assert_eq!(ended.how, ExitStatus::Exited(3));
    assert!(ended.duration_ms >= 300);
}

fn start(rig: &Rig, text: &str) -> AbortHandle {
    let (shell, command): (_, Command) = (rig.shell.clone(), rig.command(text));
    tokio::spawn(async move { shell.run(command).await }).abort_handle()
}
