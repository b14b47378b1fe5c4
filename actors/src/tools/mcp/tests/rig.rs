//! A test agent with one MCP server, its tools, and a runner for their calls.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_conversation::elicitation::{InputAnswer, InputRequest, PendingInput};
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::{Attempt, Tenant};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::definition::Definition;
use crate::environment::Env;
use crate::exec::{Launcher, Limits, Sandbox, Shell};
use crate::tools::Run;
use crate::tools::fixtures::{StillClock, a_run, builtin_services, extensions, parse, source};
use crate::tools::mcp::Mcp;
use crate::tools::{Runner, ToolReturn, Toolbox};

/// Longer than anything here takes, even on a machine that builds at the same time.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Starting an interpreter takes long on a busy machine.
const START: &str = "60s";

/// The current Python package, one from before 2026-07-28, and what they need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Age {
    New,
    Old,
}

fn installed(path: &str) -> String {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let path = cache.join("abide-tests").join(path);
    assert!(path.exists(), "{} is missing: run .ci/mcp-servers", path.display());
    path.display().to_string()
}

/// The example that cargo builds with the tests: a test program has no `main` of its own.
fn launcher() -> Launcher {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join("launcher");
    assert!(program.exists(), "{program:?} is missing: cargo build -p abide-actors --examples");
    Launcher::of(program)
}

fn script(name: &str) -> String {
    format!("{}/../tests/mcp/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn program(age: Age) -> (String, String) {
    match age {
        Age::New => (installed("mcp-new/bin/python"), script("server.py")),
        Age::Old => (installed("mcp-old/bin/python"), script("old_server.py")),
    }
}

/// Configures a test server as a process of the node.
pub(super) fn stdio(age: Age) -> Value {
    let (python, script) = program(age);
    json!({"command": python, "args": [script, "stdio"], "env": ["MCP_TEST_NAMED"], "timeout": START})
}

/// Configures a hostile server, which violates the protocol.
pub(super) fn raw(mode: &str) -> Value {
    json!({"command": program(Age::New).0, "args": [script("raw.py"), mode], "timeout": "4s"})
}

/// Configures the server of an npm package.
pub(super) fn everything() -> Value {
    let index = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    json!({"command": "node", "args": [installed(&format!("mcp-everything/{index}")), "stdio"],
        "timeout": START})
}

/// A test server over HTTP, which ends when this is dropped.
pub(super) struct HttpServer {
    child: Child,
    pub(super) port: u16,
}

impl HttpServer {
    pub(super) fn start(age: Age) -> Self {
        Self::start_on(age, 0)
    }

    pub(super) fn start_on(age: Age, port: u16) -> Self {
        let (python, script) = program(age);
        let mut command = Command::new(python);
        command.args([script, "http".to_owned(), port.to_string()]).env("NEEDED_TOKEN", "t0ken");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    pub(super) fn entry(&self) -> Value {
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        json!({"url": url, "headers_env": {"x-token": "MCP_TEST_TOKEN"}, "timeout": START})
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

pub(super) struct Rig {
    pub(super) runner: Runner,
    pub(super) mcp: Arc<Mcp>,
    pub(super) definition: Arc<Definition>,
    /// Where its server works.
    _directory: TempDir,
}

impl Rig {
    /// An agent with all tools of the server `docs`.
    pub(super) fn new(server: Value) -> Self {
        Self::with_tools(server, json!([{"mcp": "docs"}]))
    }

    pub(super) fn with_tools(server: Value, tools: Value) -> Self {
        let mut source = source(tools);
        source["mcp_servers"] = json!({"docs": server});
        let definition = Arc::new(parse(source).unwrap().definition);
        let variables: Env = Arc::new(|name: &str| match name {
            "MCP_TEST_TOKEN" => Some("t0ken".to_owned()),
            "MCP_TEST_NAMED" | "MCP_TEST_SECRET" => Some("set".to_owned()),
            name => std::env::var(name).ok(),
        });
        let clock = StillClock::now();
        let directory = tempfile::tempdir().unwrap();
        let shell = Arc::new(Shell::new(launcher(), Sandbox::Auto, Limits::default()));
        let mcp = Mcp::new(variables.clone(), shell, directory.path().to_owned());
        let mcp = Arc::new(mcp.unwrap());
        let runner =
            Runner::new(extensions(), builtin_services(), mcp.clone(), clock, variables).unwrap();
        Self { runner, mcp, definition, _directory: directory }
    }

    pub(super) async fn toolbox(&self) -> Toolbox {
        let listings = self.mcp.listings(&Tenant::default(), &self.definition).await;
        Toolbox::new(self.definition.clone(), &listings, Arc::from([]))
    }

    /// The names of the current tools.
    pub(super) async fn names(&self) -> Vec<String> {
        let toolbox = self.toolbox().await;
        toolbox.tools().map(|tool| tool.name.clone()).collect()
    }

    /// Waits until a tool of that name exists, or no longer exists.
    pub(super) async fn until(&self, name: &str, there: bool) {
        let deadline = Instant::now() + CALL_TIMEOUT;
        while self.names().await.iter().any(|other| other == name) != there {
            assert!(Instant::now() < deadline, "{name} there: {}", !there);
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn run(&self, run: Run, progress: impl Fn(Value) + Send + Sync) -> ToolReturn {
        let toolbox = self.toolbox().await;
        let tool = toolbox.tool(run.grant.tool()).expect("there is such a tool").clone();
        self.runner.run(&tool, Box::new(run), progress).await
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Outcome {
        let returned = self.run(a_run(&format!("docs_{tool}"), args), |_| {}).await;
        assert_eq!(returned.input_request, None);
        returned.outcome
    }

    /// The text that a call returns.
    pub(super) async fn text(&self, tool: &str, args: Value) -> String {
        match self.call(tool, args).await {
            Outcome::Ok(Value::String(text)) => text,
            other => unreachable!("{tool}: {other:?}"),
        }
    }

    /// The JSON in the text that a call returns.
    pub(super) async fn json(&self, tool: &str, args: Value) -> Value {
        serde_json::from_str(&self.text(tool, args).await).unwrap()
    }

    pub(super) async fn error(&self, tool: &str, args: Value) -> String {
        match self.call(tool, args).await {
            Outcome::Err(error, ErrorType::ToolError) => error,
            other => unreachable!("{tool}: {other:?}"),
        }
    }

    /// The request for input of a call, which continues with the answer to an earlier request.
    pub(super) async fn asks(
        &self,
        tool: &str,
        args: Value,
        before: Option<PendingInput>,
    ) -> InputRequest {
        let returned = self.resume(tool, args, before).await;
        returned.input_request.expect("it asks")
    }

    pub(super) async fn resume(
        &self,
        tool: &str,
        args: Value,
        input: Option<PendingInput>,
    ) -> ToolReturn {
        self.run(Run { input, ..a_run(&format!("docs_{tool}"), args) }, |_| {}).await
    }
}

pub(super) fn answered(asks: InputRequest, answer: InputAnswer) -> Option<PendingInput> {
    Some(PendingInput { attempt: Attempt::FIRST, request: asks, answer: Some(answer) })
}

/// Waits until a process has ended.
pub(super) async fn until_gone(process: &str) {
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    let deadline = Instant::now() + CALL_TIMEOUT;
    while test_kill_process(process).is_ok() {
        assert!(Instant::now() < deadline, "{process:?} is still there");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The reported progress, in order.
#[derive(Clone, Default)]
pub(super) struct Reports(Arc<Mutex<Vec<Value>>>);

impl Reports {
    pub(super) fn add(&self, payload: Value) {
        self.0.lock().unwrap().push(payload);
    }

    pub(super) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }
}
