//! A page with the AI SDK's own chat, which runs in node.

use std::path::PathBuf;
use std::process::Stdio;

use abide_tests::deadline::within;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The packages, each of another major version of the client.
pub(crate) const VERSIONS: [&str; 2] = ["ai6", "ai7"];

/// A page, which ends with this value.
pub(crate) struct ChatPage {
    state: Value,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

/// What a page is opened with.
pub(crate) struct Options<'a> {
    pub(crate) agent: &'a str,
    pub(crate) id: &'a str,
    /// The tools that the page executes.
    pub(crate) tools: &'a [&'a str],
    pub(crate) credential: Option<&'a str>,
}

impl<'a> Options<'a> {
    pub(crate) fn new(agent: &'a str, id: &'a str) -> Self {
        Self { agent, id, tools: &[], credential: None }
    }

    pub(crate) fn executing(self, tools: &'a [&'a str]) -> Self {
        Self { tools, ..self }
    }

    pub(crate) fn with_credential(self, credential: &'a str) -> Self {
        Self { credential: Some(credential), ..self }
    }
}

/// The directory of the packages, and the program that runs them.
fn installed() -> (PathBuf, PathBuf) {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/ai-sdk");
    assert!(packages.exists(), "{} is missing: run .ci/ai-sdk", packages.display());
    let program =
        |machine: &str| packages.join(format!("node_modules/node-linux-{machine}/bin/node"));
    let pinned = ["x64", "arm64"].map(program).into_iter().find(|program| program.exists());
    (packages, pinned.unwrap_or_else(|| PathBuf::from("node")))
}

/// Runs a script of `tests/ai-sdk` with the packages of this version on files. Returns its output.
pub(crate) async fn run_script(
    script: &str,
    version: &str,
    files: impl Iterator<Item = &PathBuf>,
) -> String {
    let (packages, program) = installed();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("ai-sdk").join(script);
    let mut command = Command::new(program);
    command.arg(script).arg(packages).arg(version).args(files).kill_on_drop(true);
    let output = within("the script's end", command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl ChatPage {
    /// Opens a page with the chat of this version, at the node with this address.
    pub(crate) async fn open(version: &str, address: &str, options: Options<'_>) -> Self {
        let (packages, program) = installed();
        let headers = match options.credential {
            Some(credential) => json!({"authorization": format!("Bearer {credential}")}),
            None => json!({}),
        };
        let given = json!({"agent": options.agent, "id": options.id, "tools": options.tools,
            "headers": headers});
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/ai-sdk/chat.mjs");
        let mut command = Command::new(program);
        command.arg(script).arg(packages).arg(version).arg(given.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut page = Self { state: json!({}), input, output, _process: process };
        page.aim(address).await;
        page
    }

    /// Sends later requests to the node with this address.
    pub(crate) async fn aim(&mut self, address: &str) {
        self.command("aim", json!({"url": format!("http://{address}")})).await;
    }

    /// Gives a command without waiting for it.
    pub(crate) async fn begin(&mut self, name: &str, mut arguments: Value) {
        arguments["command"] = json!(name);
        let line = format!("{arguments}\n");
        within("the page's input", self.input.write_all(line.as_bytes())).await.unwrap();
    }

    /// Gives a command, and returns its result once it is done.
    pub(crate) async fn command(&mut self, name: &str, arguments: Value) -> Value {
        self.begin(name, arguments).await;
        loop {
            let report = self.report().await;
            assert_ne!(report["failed"], json!(name), "{report:#}");
            if report["done"] == json!(name) {
                return report["result"].clone();
            }
        }
    }

    /// The next report of the page; one of its state is remembered.
    async fn report(&mut self) -> Value {
        let what = || format!("the page to report more than {:#}", self.state);
        let line = tokio::time::timeout(abide_tests::deadline::DEADLINE, self.output.next_line());
        let line = line.await.unwrap_or_else(|_| panic!("timed out waiting for {}", what()));
        let report: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        if !report["state"].is_null() {
            self.state = report["state"].clone();
        }
        report
    }

    /// Waits until the chat is like this, and returns its state.
    pub(crate) async fn until(&mut self, is_reached: impl Fn(&Value) -> bool) -> Value {
        while !is_reached(&self.state) {
            self.report().await;
        }
        self.state.clone()
    }

    /// Sends a text, and returns the state when the answer has ended.
    pub(crate) async fn send(&mut self, text: &str) -> Value {
        self.command("send", json!({"text": text})).await;
        self.until(is_idle).await
    }

    /// The state as it was last reported.
    pub(crate) fn state(&self) -> &Value {
        &self.state
    }

    /// Asserts that the page sends nothing by itself.
    pub(crate) async fn assert_quiet(&mut self) {
        let requests = self.state["requests"].clone();
        self.command("settle", json!({})).await;
        assert_eq!(self.until(is_idle).await["requests"], requests, "the page goes on to send");
    }
}

/// Whether no response streams.
pub(crate) fn is_idle(state: &Value) -> bool {
    // The error is set right after its status.
    state["status"] == "ready" || state["status"] == "error" && !state["error"].is_null()
}

/// The texts of the page's last message, joined.
pub(crate) fn text(state: &Value) -> String {
    let parts = last_parts(state);
    let texts = parts.iter().filter(|part| part["type"] == "text");
    texts.map(|part| part["text"].as_str().unwrap()).collect()
}

/// The part of a call in the page's last message that has it.
pub(crate) fn part(state: &Value, call: &str) -> Value {
    let messages = state["messages"].as_array().into_iter().flatten().rev();
    let mut parts = messages.flat_map(|message| message["parts"].as_array().into_iter().flatten());
    parts.find(|part| part["toolCallId"] == call).cloned().unwrap_or_default()
}

/// Whether the part of a call is in this state, and nothing streams.
pub(crate) fn rests_at(call: &str, state: &str) -> impl Fn(&Value) -> bool {
    move |page| is_idle(page) && part(page, call)["state"] == state
}

fn last_parts(state: &Value) -> Vec<Value> {
    let messages = state["messages"].as_array().cloned().unwrap_or_default();
    messages.last().and_then(|last| last["parts"].as_array().cloned()).unwrap_or_default()
}
