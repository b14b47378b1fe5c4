//! The limits of a command: output, processes, processor time, memory, file size.

use std::time::{Duration, Instant};

use abide_actors::exec::{ExitStatus, Limits};

use crate::test_shell::{DEADLINE, TestShell, sleeping, unique_seconds};

#[tokio::test]
async fn a_timeout_shows_the_output_so_far() {
    let shell = TestShell::new();
    let ended = shell.run_for(Duration::from_millis(300), "echo so far; sleep 100").await.unwrap();
    assert_eq!((ended.status, ended.output.as_str()), (ExitStatus::TimedOut, "so far\n"));
    assert!((300..5_000).contains(&ended.duration_ms), "{}", ended.duration_ms);
}

#[tokio::test]
async fn a_flood_of_output_ends_soon() {
    let start = Instant::now();
    let ended = TestShell::new().run("yes").await;
    assert_eq!(ended.status, ExitStatus::Flooded);
    assert!(ended.output.len() <= 16_000 && ended.output.starts_with("y\ny\n"));
    assert!(start.elapsed() < DEADLINE / 2, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_fork_bomb_ends_soon() {
    let start = Instant::now();
    // The bomb stops at some thousand processes, so that a failed test does no harm.
    let more = "bomb $(($1 - 1)) | bomb $(($1 - 1)) &";
    let bomb = format!("bomb() {{ if (($1)); then {more} else sleep 50; fi; wait; }}");
    let ended = TestShell::new().run(&format!("{bomb}; bomb 10; sleep 100")).await;
    assert_eq!(ended.status, ExitStatus::TooManyProcesses);
    assert!(start.elapsed() < DEADLINE / 2, "{:?}", start.elapsed());
}

#[tokio::test]
async fn too_many_processes_are_ended() {
    let shell = TestShell::with(Limits { processes: 100, ..Limits::default() });
    let (few, many) = (unique_seconds(), unique_seconds());
    let ended = shell.run(&format!("for i in $(seq 90); do sleep {few} & done; echo fine")).await;
    assert_eq!((ended.status, ended.output.as_str()), (ExitStatus::Exited(0), "fine\n"));
    let ended = shell.run(&format!("for i in $(seq 110); do sleep {many} & done; wait")).await;
    assert_eq!(ended.status, ExitStatus::TooManyProcesses);
    assert_eq!(sleeping(&few) + sleeping(&many), 0);
}

#[tokio::test]
async fn processor_time_is_bounded() {
    let shell = TestShell::with(Limits { cpu_seconds: 1, ..Limits::default() });
    let ended = shell.run("while :; do :; done").await;
    // The kernel sends KILL where the soft limit is also the hard one.
    assert!(matches!(ended.status, ExitStatus::Exited(137 | 152)), "{:?}", ended.status);
}

#[tokio::test]
async fn memory_is_bounded() {
    let shell = TestShell::with(Limits { memory: 100 << 20, ..Limits::default() });
    // One process that allocates more than its limit at once, so that no sample sees it near the limit.
    let ended = shell.run("dd if=/dev/zero of=/dev/null bs=300M count=1").await;
    assert!(ended.output.contains("memory exhausted"), "{ended:?}");
    // Two processes that stay below the limit, but not together.
    let half = "head -c 70M /dev/zero | tail -n 1 > /dev/null";
    let ended = shell.run(half).await;
    assert_eq!(ended.status, ExitStatus::Exited(0), "{}", ended.output);
    let resident = "(head -c 70M /dev/zero; sleep 100) | tail -n 1 > /dev/null";
    let ended = shell.run(&format!("{resident} & {resident}")).await;
    assert_eq!(ended.status, ExitStatus::TooMuchMemory);
}

#[tokio::test]
async fn a_file_is_bounded() {
    let shell = TestShell::with(Limits { file_size: 1 << 20, ..Limits::default() });
    let ended = shell.run("head -c 2M /dev/zero > f").await;
    assert_eq!(ended.status, ExitStatus::Exited(128 + 25), "{}", ended.output);
    assert_eq!(shell.workspace.path().join("f").metadata().unwrap().len(), 1 << 20);
}
