//! What a command gets and what it returns.

use std::fs;
use std::time::Duration;

use abide_actors::exec::{Command, ExitStatus, LaunchError, Launcher, Limits, Sandbox, Shell};
use abide_conversation::permission::Network;
use futures::future::join_all;

use crate::test_shell::TestShell;

#[tokio::test]
async fn a_command_gives_its_code_and_its_output_in_the_order_written() {
    let shell = TestShell::new();
    let ended = shell.run("echo one; echo two >&2; echo three; exit 7").await;
    assert_eq!((ended.status, ended.output.as_str()), (ExitStatus::Exited(7), "one\ntwo\nthree\n"));
    assert_eq!(shell.run("kill -9 $$").await.status, ExitStatus::Exited(128 + 9));
    assert_eq!(shell.run("--help").await.status, ExitStatus::Exited(127));
}

#[tokio::test]
async fn a_command_works_in_the_workspace() {
    let shell = TestShell::new();
    let root = fs::canonicalize(shell.workspace.path()).unwrap();
    let root = root.to_str().unwrap();
    assert_eq!(shell.output("pwd; echo $HOME; echo hi > new").await, format!("{root}\n{root}\n"));
    assert_eq!(fs::read_to_string(shell.workspace.path().join("new")).unwrap(), "hi\n");
}

#[tokio::test]
async fn a_command_sees_only_harmless_variables() {
    // Cargo has set many others for this process.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let shell = TestShell::new();
    // The command's environment, and that of the launcher.
    for variables in ["env", "tr '\\0' '\\n' < /proc/$PPID/environ"] {
        let command = Command { network: Network::All, ..shell.command(variables) };
        let seen = shell.inner.run(command).await.unwrap().output;
        for line in seen.lines().filter(|line| line.contains('=')) {
            let name = line.split('=').next().unwrap();
            let allowed =
                ["HOME", "TMPDIR", "TERM", "PWD", "OLDPWD", "SHLVL", "_", "PATH", "LANG", "TZ"];
            assert!(allowed.contains(&name) || name.starts_with("LC_"), "{line}");
        }
    }
}

#[tokio::test]
async fn a_command_has_no_input_and_no_other_files() {
    let shell = TestShell::new();
    assert_eq!(shell.output("cat; readlink /proc/self/fd/0").await, "/dev/null\n");
    // The last one is the directory that ls reads.
    assert_eq!(shell.output("ls /proc/self/fd").await, "0\n1\n2\n3\n");
    assert_eq!(shell.output("echo out > /dev/stdout; cat <(echo in)").await, "out\nin\n");
}

#[tokio::test]
async fn a_temporary_directory_is_private_and_gone_afterwards() {
    let shell = TestShell::new();
    let output = shell.output("echo $TMPDIR; touch $TMPDIR/x && stat -c %a $TMPDIR").await;
    let (path, mode) = output.trim().split_once('\n').unwrap();
    assert_eq!(mode, "700");
    assert!(path.contains("abide-"), "{path}");
    assert!(!fs::exists(path).unwrap());
}

#[tokio::test]
async fn head_and_tail_of_a_long_output_are_kept() {
    let ended = TestShell::new().run("echo first; seq 100000; echo last").await;
    assert!(ended.output.len() <= 16_000, "{}", ended.output.len());
    assert!(
        ended.output.starts_with("first\n1\n2\n") && ended.output.ends_with("\n100000\nlast\n")
    );
    assert!(ended.output.contains("\n[...truncated...]\n"));
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_replaced() {
    let shell = TestShell::new();
    assert_eq!(shell.output("printf 'a\\377b\\0\\303'").await, "a\u{fffd}b\0\u{fffd}");
    let random = shell.output("head -c 1000000 /dev/urandom").await;
    assert!((10_000..=16_000).contains(&random.len()), "{}", random.len());
}

#[tokio::test]
async fn a_command_that_cannot_start_says_why() {
    let shell = TestShell::new();
    let missing = Command { directory: "/no/such/place".into(), ..shell.command("true") };
    let error = shell.inner.run(missing).await.unwrap_err();
    assert!(matches!(error, LaunchError::Start { .. }), "{error}");
    for impossible in ["echo \0", &format!("true {}", "x".repeat(200_000))] {
        let error = shell.inner.run(shell.command(impossible)).await.unwrap_err();
        assert!(error.to_string().starts_with("the command cannot run: the shell: "), "{error}");
    }
}

#[tokio::test]
async fn without_a_launcher_no_command_runs() {
    let bare = Shell::new(Launcher::missing(), Sandbox::Auto, Limits::default());
    let shell = TestShell::around(bare);
    let error = shell.inner.run(shell.command("touch ran")).await.unwrap_err();
    assert!(error.to_string().ends_with("this program has no launcher"), "{error}");
    assert!(!shell.workspace.path().join("ran").exists());
}

#[tokio::test]
async fn twenty_commands_run_at_once() {
    let shell = TestShell::new();
    let all = (0..20).map(async |n| shell.output(&format!("sleep 0.2; echo {n}")).await);
    let outputs = join_all(all).await;
    assert_eq!(outputs, (0..20).map(|n| format!("{n}\n")).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_sixty_fifth_command_waits_for_a_permit() {
    let shell = TestShell::new();
    let running = join_all((0..64).map(|_| shell.run("until test -e go; do sleep 0.05; done")));
    let refused = async {
        let refused = shell.run_for(Duration::from_millis(300), "true").await;
        fs::write(shell.workspace.path().join("go"), "").unwrap();
        refused
    };
    let (ended, refused) = futures::join!(running, refused);
    assert!(matches!(refused, Err(LaunchError::Busy)), "{refused:?}");
    assert!(ended.iter().all(|ended| ended.status == ExitStatus::Exited(0)));
    assert_eq!(shell.output("echo free").await, "free\n");
}
