//! Servers as MCP uses them: what they get, what the sandbox keeps them from, and that they end.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process;
use std::time::{Duration, Instant};

use abide_actors::exec::{
    HiddenPaths, Launcher, Limits, ProtectedPorts, RunningServer, Sandbox, SandboxStatus, Server,
    ServerProcess, Shell,
};
use abide_conversation::permission::Network;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use crate::test_shell::{eventually, launcher, sleeping, unique_seconds};

/// Answers each line of its input with what the shell prints for it, in one line.
const OBEDIENT: &str = r#"echo began >&2
while read -r line; do { eval "$line"; } 2>&1 | tr '\n' ' '; echo; done"#;

pub(crate) fn shell() -> Shell {
    Shell::new(launcher(), Sandbox::Auto, Limits::default())
}

/// A server that is a script, in a directory that does not exist yet.
pub(crate) fn script(text: &str, base: &TempDir) -> Server {
    Server {
        program: "bash".to_owned(),
        args: vec!["-c".to_owned(), text.to_owned()],
        environment: BTreeMap::from([("NAMED".to_owned(), "secret".to_owned())]),
        directory: base.path().join("servers/one"),
        network: Network::All,
    }
}

struct TestServer {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    process: ServerProcess,
    directory: PathBuf,
    _base: TempDir,
}

impl TestServer {
    async fn start(shell: &Shell) -> Self {
        let base = tempfile::tempdir().unwrap();
        let server = script(OBEDIENT, &base);
        let directory = server.directory.clone();
        let RunningServer { input, output, mut log, process } = shell.serve(server).await.unwrap();
        let mut line = String::new();
        log.read_line(&mut line).await.unwrap();
        assert_eq!(line, "began\n");
        let output = BufReader::new(output).lines();
        Self { input, output, process, directory: directory.canonicalize().unwrap(), _base: base }
    }

    async fn ask(&mut self, line: &str) -> String {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        self.output.next_line().await.unwrap().expect("it answers").trim_end().to_owned()
    }
}

#[tokio::test]
async fn a_server_works_in_its_own_directory_with_the_variables_that_it_is_given() {
    let mut server = TestServer::start(&shell()).await;
    let own = server.directory.display().to_string();
    assert_eq!(server.ask("pwd; echo $HOME $NAMED").await, format!("{own} {own} secret"));
    assert_eq!(server.ask("echo kept > file; echo $TMPDIR/ > $TMPDIR/x; cat file").await, "kept");
    assert_eq!(fs::read_to_string(server.directory.join("file")).unwrap(), "kept\n");
    // A command may use the processor for ten minutes, a server for as long as it lives.
    assert_eq!(server.ask("ulimit -t").await, "unlimited");
    let names = server.ask("env | cut -d= -f1").await;
    for name in names.split(' ') {
        let known = ["NAMED", "HOME", "TMPDIR", "TERM", "PATH", "LANG", "TZ", "PWD", "SHLVL", "_"];
        assert!(known.contains(&name) || name.starts_with("LC_"), "{name}");
    }
}

#[tokio::test]
async fn a_server_reaches_nothing_of_its_node() {
    let store = tempfile::tempdir().unwrap();
    fs::write(store.path().join("journal"), "told in confidence").unwrap();
    let outside = tempfile::tempdir().unwrap();
    let [open, closed] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [open_port, closed_port] =
        [&open, &closed].map(|listener| listener.local_addr().unwrap().port());
    let protected = ProtectedPorts::default();
    protected.set([closed_port].into());
    let shell = shell().with_protected_ports(protected);
    let hidden = HiddenPaths::default();
    hidden.add([store.path()]);
    let mut server = TestServer::start(&shell.with_hidden_paths(hidden)).await;
    let (node, outside) = (process::id(), outside.path().display());
    for refused in [
        "cat /proc/$PPID/environ".to_owned(),
        format!("cat /proc/{node}/environ"),
        format!("cat /proc/{node}/root{}/journal", store.path().display()),
        format!("kill -9 {node}"),
        "kill -9 $PPID".to_owned(),
        format!("echo x > {outside}/file"),
        format!("cat {}/journal", store.path().display()),
        format!("exec 3<> /dev/tcp/127.0.0.1/{closed_port}"),
    ] {
        let answer = server.ask(&format!("{refused} && echo done")).await;
        assert!(!answer.ends_with("done"), "{refused}: {answer}");
        let denied = ["not permitted", "denied"].iter().any(|word| answer.contains(word));
        assert!(denied, "{refused}: {answer}");
    }
    let connect = format!("exec 3<> /dev/tcp/127.0.0.1/{open_port} && echo done");
    assert_eq!(server.ask(&connect).await, "done");
}

#[tokio::test]
async fn a_server_has_the_network_of_its_definition() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<> /dev/tcp/127.0.0.1/{port} && echo connected");
    let base = tempfile::tempdir().unwrap();
    for (network, connects) in [
        (Network::None, false),
        (Network::ports([1].into()), false),
        (Network::ports([port].into()), true),
    ] {
        let server = Server { network, ..script(&connect, &base) };
        let running = shell().serve(server).await.unwrap();
        let line = BufReader::new(running.output).lines().next_line().await.unwrap();
        assert_eq!(line.is_some(), connects, "{line:?}");
    }
}

#[tokio::test]
async fn a_server_and_all_that_it_started_end_with_it() {
    let shell = shell();
    for escape in ["sleep LONG > /dev/null 2>&1 &", "setsid sleep LONG > /dev/null 2>&1 &"] {
        let mut server = TestServer::start(&shell).await;
        let seconds = unique_seconds();
        server.ask(&escape.replace("LONG", &seconds)).await;
        eventually("a sleep", || sleeping(&seconds) == 1).await;
        drop(server);
        eventually(escape, || sleeping(&seconds) == 0).await;
    }
}

#[tokio::test]
async fn a_server_may_end_by_itself_at_the_end_of_its_input() {
    let server = TestServer::start(&shell()).await;
    let start = Instant::now();
    drop(server.input);
    server.process.end().await;
    assert!(start.elapsed() < Duration::from_secs(2), "it did not end with its input");

    let base = tempfile::tempdir().unwrap();
    let seconds = unique_seconds();
    let deaf = script(&format!("trap '' TERM; sleep {seconds}; sleep {seconds}"), &base);
    let server = shell().serve(deaf).await.unwrap();
    eventually("a sleep", || sleeping(&seconds) == 1).await;
    drop(server.input);
    server.process.end().await;
    eventually("no sleep", || sleeping(&seconds) == 0).await;
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let base = tempfile::tempdir().unwrap();
    let missing = Server { program: "/no/such/program".to_owned(), ..script("", &base) };
    let why = shell().serve(missing).await.err().unwrap().to_string();
    assert!(why.starts_with("the command cannot run: the program: No such file"), "{why}");
    let file = base.path().join("file");
    fs::write(&file, "").unwrap();
    let misplaced = Server { directory: file, ..script("", &base) };
    let why = shell().serve(misplaced).await.err().unwrap().to_string();
    assert!(why.starts_with("the launcher cannot start in "), "{why}");
    let bare = Shell::new(Launcher::missing(), Sandbox::Auto, Limits::default());
    let why = bare.serve(script("", &base)).await.err().unwrap().to_string();
    assert!(why.ends_with("this program has no launcher"), "{why}");
}

#[tokio::test]
async fn servers_run_without_a_sandbox_where_there_is_none() {
    let none = SandboxStatus::Unavailable("this kernel has none".to_owned());
    let shell = Shell::with_sandbox_status(launcher(), none, Limits::default());
    let outside = tempfile::tempdir().unwrap();
    let mut server = TestServer::start(&shell).await;
    let write = format!("echo x > {}/file && echo done", outside.path().display());
    assert_eq!(server.ask(&write).await, "done");
    let base = tempfile::tempdir().unwrap();
    let listed = Server { network: Network::ports([443].into()), ..script("", &base) };
    let why = shell.serve(listed).await.err().unwrap().to_string();
    assert!(why.starts_with("network names ports"), "{why}");
}
