//! What the sandbox keeps a command from.

use std::fs;
use std::net::TcpListener;

use abide_actors::exec::{
    Command, ExitStatus, HiddenPaths, Limits, ProtectedPorts, Sandbox, SandboxStatus, Shell,
};
use abide_conversation::permission::Network;

use crate::test_shell::{TestShell, launcher, unique_seconds};

#[tokio::test]
async fn a_command_writes_only_in_its_workspace() {
    let shell = TestShell::new();
    assert_eq!(
        shell.inner.sandbox(),
        &SandboxStatus::On { gaps: vec![] },
        "this machine needs Landlock"
    );
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    fs::write(&file, "old").unwrap();
    let file = file.to_str().unwrap();
    for refused in [
        format!("touch {file}.new"),
        format!("echo new > {file}"),
        format!("rm {file}"),
        format!("truncate -s 0 {file}"),
        format!("mv {file} here"),
        format!("ln -s {file} link; echo new > link"),
        format!("mkdir {file}.d"),
    ] {
        let ended = shell.run(&format!("{refused}; cat {file}")).await;
        assert!(ended.output.contains("Permission denied"), "{refused}: {}", ended.output);
        assert!(ended.output.ends_with("old"), "{refused}: {}", ended.output);
    }
    let allowed = "touch a && mkdir d && mv a d/b && echo x > d/b && rm -r d && : > $TMPDIR/t";
    shell.output(&format!("{allowed} && echo gone > /dev/null")).await;
}

#[tokio::test]
async fn tcp_needs_the_network() {
    let shell = TestShell::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<> /dev/tcp/127.0.0.1/{port} && echo connected");
    let listen = "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 0))'";
    for text in [connect.as_str(), listen] {
        let ended = shell.run(text).await;
        assert!(
            ended.status != ExitStatus::Exited(0) && ended.output.contains("denied"),
            "{ended:?}"
        );
        let command = Command { network: Network::All, ..shell.command(text) };
        let ended = shell.inner.run(command).await.unwrap();
        assert_eq!(ended.status, ExitStatus::Exited(0), "{}", ended.output);
    }
}

/// Python that tries to connect to this port by every way that leads to a TCP server, and prints
/// which did.
fn detours(port: u16) -> String {
    format!(
        r#"python3 - <<'END'
import socket, struct
at = ("127.0.0.1", {port})
def plain(): socket.create_connection(at)
def multipath(): socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(at)
def smc(): socket.socket(43, socket.SOCK_STREAM, 0).connect(at)
def smc_protocol(): socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256).connect(at)
def fast_open(): socket.socket().sendto(b"x", 0x20000000, at)
def fast_open_message(): socket.socket().sendmsg([b"x"], [], 0x20000000, at)
def fast_open_connect():
    s = socket.socket()
    s.setsockopt(6, 30, 1)
    s.connect(at)
    s.send(b"x")
for way in [plain, multipath, smc, smc_protocol, fast_open, fast_open_message, fast_open_connect]:
    try:
        way()
        print(way.__name__)
    except OSError:
        pass
END"#
    )
}

#[tokio::test]
async fn no_way_leads_to_a_port_that_a_command_may_not_reach() {
    let protected = ProtectedPorts::default();
    let shell = Shell::new(launcher(), Sandbox::Auto, Limits::default());
    let shell = TestShell::around(shell.with_protected_ports(protected.clone()));
    let [open, closed] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [open_port, closed_port] =
        [&open, &closed].map(|listener| listener.local_addr().unwrap().port());
    let connected = async |network: Network, port: u16| {
        let command = Command { network, ..shell.command(&detours(port)) };
        let ended = shell.inner.run(command).await.unwrap();
        assert_eq!(ended.status, ExitStatus::Exited(0), "{}", ended.output);
        ended.output
    };
    let ports = |port: u16| Network::ports([port].into());
    assert_eq!(connected(Network::None, open_port).await, "");
    assert_eq!(connected(ports(open_port), open_port).await, "plain\n");
    assert_eq!(connected(ports(open_port), closed_port).await, "");
    // Whatever an agent's definition permits, the node's own ports stay closed.
    protected.set([closed_port].into());
    assert_eq!(connected(Network::All, closed_port).await, "");
    assert_eq!(connected(ports(closed_port), closed_port).await, "");
    assert_eq!(connected(Network::All, open_port).await, "plain\n");
}

#[tokio::test]
async fn a_list_of_ports_is_refused_where_nothing_can_enforce_it() {
    let gap = SandboxStatus::On { gaps: vec!["TCP connections".to_owned()] };
    for shell in [
        Shell::new(launcher(), Sandbox::Off, Limits::default()),
        Shell::with_sandbox_status(launcher(), gap, Limits::default()),
    ] {
        let shell = TestShell::around(shell);
        let network = Network::ports([443].into());
        let refused = shell.inner.run(Command { network, ..shell.command("true") }).await;
        let reason = refused.unwrap_err().to_string();
        assert!(reason.starts_with("network names ports"), "{reason}");
    }
}

#[tokio::test]
async fn a_command_reads_its_workspace_and_nothing_else_of_the_store() {
    let store = tempfile::tempdir().unwrap();
    let beside = tempfile::tempdir().unwrap();
    let workspace = store.path().join("workspaces/c");
    fs::create_dir_all(&workspace).unwrap();
    let link = workspace.join("link");
    let journal = store.path().join("journal");
    fs::write(&journal, "told in confidence").unwrap();
    for file in [workspace.join("file"), beside.path().join("file")] {
        fs::write(file, "open").unwrap();
    }
    std::os::unix::fs::symlink(&journal, link).unwrap();
    let shell = Shell::new(launcher(), Sandbox::Auto, Limits::default());
    let hidden = HiddenPaths::default();
    hidden.add([store.path()]);
    let shell = shell.with_hidden_paths(hidden);
    let shell = TestShell::around(shell);
    let run = async |text: String| {
        let command = Command { directory: workspace.clone(), ..shell.command(&text) };
        shell.inner.run(command).await.unwrap().output
    };
    let beside = beside.path().display();
    assert_eq!(run(format!("cat file {beside}/file; cat <(echo in)")).await, "openopenin\n");
    let journal = journal.display();
    for hidden in ["cat link".to_owned(), format!("cat {journal}"), format!("cp {journal} here")] {
        let output = run(hidden).await;
        assert!(output.contains("Permission denied"), "{output}");
    }
}

#[tokio::test]
async fn processes_outside_are_out_of_reach() {
    let shell = TestShell::new();
    let seconds = unique_seconds();
    let mut other =
        tokio::process::Command::new("sleep").arg(&seconds).kill_on_drop(true).spawn().unwrap();
    let id = other.id().unwrap();
    let theirs = format!("/proc/{id}");
    for refused in [
        format!("kill {id}"),
        format!("cat {theirs}/environ"),
        "kill -9 $PPID".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "echo '{}' > /proc/$PPID/fd/1".to_owned(),
    ] {
        let ended = shell.run(&refused).await;
        assert_eq!(ended.status, ExitStatus::Exited(1), "{refused}: {}", ended.output);
        let denied = ["not permitted", "denied"].iter().any(|word| ended.output.contains(word));
        assert!(denied, "{refused}: {}", ended.output);
    }
    assert!(other.try_wait().unwrap().is_none());
    other.kill().await.unwrap();
}

#[tokio::test]
async fn commands_run_without_a_sandbox_where_there_is_none() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    let write = format!("echo new > {}", file.to_str().unwrap());
    let none = SandboxStatus::Unavailable("this kernel has none".to_owned());
    let without = [
        Shell::with_sandbox_status(launcher(), none, Limits::default()),
        Shell::new(launcher(), Sandbox::Off, Limits::default()),
    ];
    for shell in without {
        let shell = TestShell::around(shell);
        assert!(!matches!(shell.inner.sandbox(), SandboxStatus::On { .. }));
        shell.output(&write).await;
        assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
        fs::remove_file(&file).unwrap();
        // No program gains rights, with or without the sandbox.
        let privileges = shell.output("grep NoNewPrivs /proc/self/status").await;
        assert_eq!(privileges, "NoNewPrivs:\t1\n");
    }
}
