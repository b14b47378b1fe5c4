//! A client of AG-UI: the official `HttpAgent`, which runs in node.

use std::path::PathBuf;
use std::process::Stdio;

use abide_tests::deadline::within;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The major versions of the client.
pub(crate) const VERSIONS: [&str; 2] = ["0", "1"];

/// A client, which ends with this value.
pub(crate) struct AgUiAgent {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

/// The directory of the packages, and the program that runs them.
fn installed() -> (PathBuf, PathBuf) {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/ag-ui");
    assert!(packages.exists(), "{} is missing: run .ci/ag-ui", packages.display());
    let program =
        |machine: &str| packages.join(format!("node_modules/node-linux-{machine}/bin/node"));
    let pinned = ["x64", "arm64"].map(program).into_iter().find(|program| program.exists());
    (packages, pinned.unwrap_or_else(|| PathBuf::from("node")))
}

impl AgUiAgent {
    /// A client of this version for a thread of this agent, which executes these tools.
    pub(crate) async fn open(
        version: &str,
        address: &str,
        (agent, thread): (&str, &str),
        tools: &[&str],
        credential: Option<&str>,
    ) -> Self {
        let (packages, program) = installed();
        let headers = match credential {
            Some(credential) => json!({"authorization": format!("Bearer {credential}")}),
            None => json!({}),
        };
        let given = json!({"agent": agent, "thread": thread, "tools": tools, "headers": headers});
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/ag-ui/agent.mjs");
        let mut command = Command::new(program);
        command.arg(script).arg(packages).arg(version).arg(given.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut client = Self { input, output, _process: process };
        client.aim(address).await;
        client
    }

    /// Sends later requests to the node with this address.
    pub(crate) async fn aim(&mut self, address: &str) {
        self.command("aim", json!({"url": format!("http://{address}")})).await;
    }

    /// Gives a command without waiting for it.
    pub(crate) async fn begin(&mut self, name: &str, mut arguments: Value) {
        arguments["command"] = json!(name);
        let line = format!("{arguments}\n");
        within("the client's input", self.input.write_all(line.as_bytes())).await.unwrap();
    }

    /// Gives a command, and returns what the client has once it is done.
    pub(crate) async fn command(&mut self, name: &str, arguments: Value) -> Value {
        self.begin(name, arguments).await;
        self.done(name).await
    }

    /// Waits until a command is done. Each event that came fits the client's own schema.
    pub(crate) async fn done(&mut self, name: &str) -> Value {
        loop {
            let report = self.report().await;
            if report["done"] == json!(name) {
                assert_eq!(report["invalid"], json!([]), "{report:#}");
                assert_eq!(report["warnings"], json!([]), "{report:#}");
                return report;
            }
        }
    }

    /// The next report.
    pub(crate) async fn report(&mut self) -> Value {
        let line = within("the client's report", self.output.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    /// Waits until the run has told a call.
    pub(crate) async fn until_call(&mut self) {
        while self.report().await["event"]["type"] != "TOOL_CALL_END" {}
    }

    /// Runs, with these parameters.
    pub(crate) async fn run(&mut self, parameters: Value) -> Value {
        self.command("run", parameters).await
    }

    /// Says something, and returns what the client has when the run has ended.
    pub(crate) async fn say(&mut self, id: &str, text: &str) -> Value {
        self.command("say", json!({"id": id, "text": text})).await;
        self.run(json!({})).await
    }
}

/// The content of the last message.
pub(crate) fn last_text(report: &Value) -> String {
    let messages = report["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap_or_default().to_owned()
}

/// The message with the result of a call.
pub(crate) fn result(report: &Value, call: &str) -> Value {
    let messages = report["messages"].as_array().unwrap();
    let mut results = messages.iter().filter(|it| it["role"] == "tool" && it["toolCallId"] == call);
    let result = results.next().cloned().unwrap_or_default();
    assert!(results.next().is_none(), "a second result: {report:#}");
    result
}

/// The last event of the run.
pub(crate) fn last_event(report: &Value) -> Value {
    report["events"].as_array().unwrap().last().cloned().unwrap_or_default()
}

/// Runs a script of `tests/ag-ui`, and returns the JSON of its last line.
pub(crate) async fn run_script(script: &str, arguments: &[&str]) -> Value {
    let (packages, program) = installed();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("ag-ui").join(script);
    let mut command = Command::new(program);
    command.arg(script).arg(packages).args(arguments).kill_on_drop(true);
    let output = within("the script's end", command.output()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}
