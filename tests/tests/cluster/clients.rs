//! Our own clients: the examples in Python and in node, each at a node that is killed meanwhile.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use abide_tests::cluster::Plan;
use abide_tests::deadline::within;
use abide_tests::journal::Journal;
use abide_tests::node::{Node, Site};
use abide_tests::proxy::Proxy;
use abide_tests::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::ABIDE;
use crate::agents::{calls_once, gated_client};
use crate::authentication::{guarded, key, line};

const DEMO: &str = include_str!("../../../nodes/src/demo.yaml");
const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// What the demo agent says to a greeting.
const GREETING: &str =
    "You said: Hello. Ask me to send a mail, choose a seat, look something up, or where you are.";

/// The directory of the programs and packages.
pub(crate) fn installed() -> PathBuf {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/clients");
    assert!(packages.exists(), "{} is missing: run .ci/clients", packages.display());
    packages
}

/// The directory of the clients' sources.
pub(crate) fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nodes/clients").canonicalize().unwrap()
}

/// A runtime of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Runtime {
    OldestPython,
    Python,
    OldestNode,
    Node,
}

use Runtime::{Node as NewestNode, OldestNode, OldestPython, Python as NewestPython};

impl Runtime {
    /// The command that runs an example, such as `01_first_answer`.
    pub(crate) fn example(self, example: &str, dir: &Path) -> Command {
        match self {
            OldestPython | NewestPython => {
                self.command(&clients().join(format!("python/examples/{example}.py")), dir)
            }
            OldestNode | NewestNode => {
                self.command(&clients().join(format!("typescript/examples/{example}.mjs")), dir)
            }
        }
    }

    /// The command that runs a program. Modules of node are looked for beside the file that imports
    /// them, so that its programs are copied into `dir`.
    pub(crate) fn command(self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(installed().join(match self {
            OldestPython => "python-oldest/bin/python",
            NewestPython => "python/bin/python",
            OldestNode => "node-oldest",
            NewestNode => "node",
        }));
        match self {
            OldestPython | NewestPython => {
                command.env("PYTHONPATH", clients().join("python/src")).arg(program);
                command.env("PYTHONDONTWRITEBYTECODE", "1");
            }
            OldestNode | NewestNode => {
                let modules = dir.join("node_modules/@abide");
                std::fs::create_dir_all(&modules).unwrap();
                let client = clients().join("typescript/client");
                let _ = std::os::unix::fs::symlink(client, modules.join("client"));
                let copied = dir.join(program.file_name().unwrap());
                std::fs::copy(program, &copied).unwrap();
                command.arg(copied);
            }
        }
        command
    }
}

/// Starts an example at these nodes.
pub(crate) fn start(
    runtime: Runtime,
    example: &str,
    dir: &TempDir,
    urls: &str,
    conversation: &str,
) -> Child {
    let mut command = runtime.example(example, dir.path());
    command.arg(conversation).env("ABIDE_URL", urls).env("PRICE_SECRET", SECRET);
    command.env_remove("ABIDE_TOKEN");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().unwrap_or_else(|error| panic!("{runtime:?}: {error}: run .ci/clients"))
}

/// Waits for the end of an example, and returns what it printed.
pub(crate) async fn output(example: &str, child: Child) -> String {
    let output = within(&format!("the end of {example}"), child.wait_with_output()).await.unwrap();
    let (text, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "{example}: {text}{errors}");
    text
}

/// Reads what an example prints until this is in it.
pub(crate) async fn read_until(child: &mut Child, part: &str) -> String {
    let stdout = child.stdout.as_mut().unwrap();
    let (mut text, mut piece) = (Vec::new(), [0; 256]);
    while !String::from_utf8_lossy(&text).contains(part) {
        let read = within(&format!("{part:?} to be printed"), stdout.read(&mut piece)).await;
        let read = read.unwrap();
        assert_ne!(read, 0, "no {part:?} in {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..read]);
    }
    String::from_utf8(text).unwrap()
}

/// When the node is killed.
#[derive(Clone, Copy)]
enum When {
    /// The journal has an event of this type.
    Journalled(&'static str),
    /// The example has printed this.
    Printed(&'static str),
}

use When::{Journalled, Printed};

/// A node with the demo agent, which takes its time to speak, behind an address that stays.
struct ExampleSite {
    site: Site,
    node: Option<Node>,
    proxy: Proxy,
    dir: TempDir,
}

impl ExampleSite {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agents = dir.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        let slow = DEMO.replace("        - text:", "        - delay: 60ms\n          text:");
        assert_ne!(slow, DEMO);
        std::fs::write(agents.join("demo.yaml"), slow).unwrap();
        let site = Site::new(ABIDE).with(&["--agents", agents.to_str().unwrap()]);
        let site = site.with_env("PRICE_SECRET", SECRET);
        let (node, proxy) = (Some(site.start().await), Proxy::start());
        proxy.aim(&site.client.public_address());
        Self { site, node, proxy, dir }
    }

    fn url(&self) -> String {
        format!("http://{}", self.proxy.address())
    }

    /// Kills the node and starts it again.
    async fn kill(&mut self) {
        self.node.take().unwrap().kill().await;
        self.node = Some(self.site.start().await);
        self.proxy.aim(&self.site.client.public_address());
    }

    /// Runs an example, and kills the node meanwhile. Returns what the example printed, and the
    /// journal.
    async fn run(&mut self, runtime: Runtime, example: &str, when: When) -> (String, Journal) {
        let name = if example.starts_with("08") { "c.0" } else { "c" };
        let mut child = start(runtime, example, &self.dir, &self.url(), "c");
        let mut text = String::new();
        let client = &self.site.client;
        match when {
            Journalled(kind) => {
                let is_there = |it: &Journal| it.of(kind).count() > 0;
                client.wait_for(name, &format!("{kind} in {example}"), is_there).await;
            }
            Printed(part) => text = read_until(&mut child, part).await,
        }
        let ends = client.journal(name).await.of("turn_ended").count();
        assert_eq!(ends, 0, "{example}: the node is killed in the turn");
        self.kill().await;
        text += &output(example, child).await;
        (text, self.site.client.wait_until_settled(name, 1).await)
    }
}

/// Runs an example in the oldest Python and the oldest node, each at a node that is killed then.
async fn over_a_kill(example: &str, when: When, check: impl Fn(&str, &Journal)) {
    for runtime in [OldestPython, OldestNode] {
        let (text, journal) = ExampleSite::start().await.run(runtime, example, when).await;
        check(&text, &journal);
        assert_eq!(journal.outcomes()[0], "completed", "{text}");
    }
}

/// Fails unless the text has this in it.
fn has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

#[tokio::test]
async fn the_example_of_a_first_answer_works_over_a_kill() {
    over_a_kill("01_first_answer", Journalled("turn_started"), |text, journal| {
        assert_eq!(text.trim(), GREETING);
        assert_eq!(journal.of("user_msg").count(), 1, "it was sent once");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_streaming_works_over_a_kill() {
    over_a_kill("02_streaming", Printed("You said"), |text, _| {
        let whole = format!("{GREETING}\n[completed]\n");
        // What had been told of the message is void: the other process begins it anew.
        let (before, after) = text.split_once("\n[once more]\n").unwrap();
        assert!(GREETING.starts_with(before) && before.len() < GREETING.len(), "{text}");
        assert_eq!(after, whole);
    })
    .await;
}

#[tokio::test]
async fn the_example_of_an_approval_works_over_a_kill() {
    over_a_kill("03_approval", Journalled("suspension"), |text, journal| {
        has(text, "to approve: Send an e-mail to ada@example.com?");
        has(text, "The tool said: ");
        assert_eq!(journal.of("resolution").count(), 1, "it was approved once");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_a_question_works_over_a_kill() {
    over_a_kill("04_question", Journalled("suspension"), |text, journal| {
        has(text, "refused: result: ");
        has(text, "answered: aisle");
        assert_eq!(text.matches("You chose: ").count(), 1, "nothing is told twice: {text}");
        assert_eq!(journal.of("resolution").count(), 1, "it was answered once");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_a_client_tool_works_over_a_kill() {
    over_a_kill("05_client_tool", Journalled("suspension"), |text, journal| {
        has(text, "the model asks: locate");
        has(text, "Graz");
        assert_eq!(journal.of("resolution").count(), 1, "one result was taken");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_an_http_tool_works_over_a_kill() {
    over_a_kill("06_http_tool", Printed("asked for"), |text, journal| {
        let attempts = journal.of("tool_started").filter(|it| it["data"]["attempt"] == 2).count();
        assert_eq!(attempts, 1, "the call was made again");
        assert_eq!(text.matches("asked for the price of A-17").count(), 1, "it ran once: {text}");
        has(text, "It costs 12.5.");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_resuming_works_over_a_kill() {
    over_a_kill("07_resume", Printed("read before"), |text, _| {
        has(text, "read before: You said: ");
        has(text, &format!("all of it: {GREETING}\n"));
    })
    .await;
}

#[tokio::test]
async fn the_example_of_an_inbox_worker_works_over_a_kill() {
    over_a_kill("08_inbox_worker", Journalled("suspension"), |text, journal| {
        assert_eq!(text.matches("The tool said: ").count(), 3, "{text}");
        assert_eq!(journal.of("resolution").count(), 1, "it was approved once");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_a_fork_works_over_a_kill() {
    over_a_kill("09_fork", Journalled("turn_started"), |text, _| {
        has(text, "You said: This is said in the fork.");
        has(text, "4 messages, This is said in the original");
        has(text, "4 messages, This is said in the fork");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_structured_output_works_over_a_kill() {
    over_a_kill("10_structured_output", Journalled("user_msg"), |text, _| {
        assert_eq!(text.trim(), "Graz 2");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_a_worker_works_over_a_kill() {
    over_a_kill("11_worker", Printed("printing"), |text, journal| {
        has(text, "Printed 3 pages.");
        assert_eq!(journal.of("tool_result").count(), 1, "one result");
    })
    .await;
}

#[tokio::test]
async fn the_example_of_a_later_message_works_over_a_kill() {
    over_a_kill("12_later", Journalled("turn_started"), |text, journal| {
        has(&text.to_lowercase(), "scheduled: true");
        has(text, GREETING);
        has(&text.to_lowercase(), "next: true");
        assert_eq!(journal.of("user_msg").count(), 1, "it was delivered once");
    })
    .await;
}

#[tokio::test]
async fn all_examples_run_on_the_present_python_and_node() {
    let names =
        std::fs::read_dir(clients().join("python/examples")).unwrap().map(|it| it.unwrap().path());
    let mut names: Vec<_> =
        names.map(|it| it.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names.len(), 12);
    let site = Site::new(ABIDE).with_env("PRICE_SECRET", SECRET);
    let _node = site.start().await;
    let (url, dir) =
        (format!("http://{}", site.client.public_address()), tempfile::tempdir().unwrap());
    for (runtime, language) in [(NewestPython, "py"), (NewestNode, "js")] {
        for name in &names {
            let conversation = format!("{language}.{name}");
            let text = output(name, start(runtime, name, &dir, &url, &conversation)).await;
            assert!(!text.is_empty());
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_at_another_node_when_the_holder_is_killed_for_good() {
    for runtime in [OldestPython, OldestNode] {
        let mut cluster =
            Plan::new(ABIDE).with(&["--lease", "2s"]).start(Redis::start().await, 2).await;
        let slow = DEMO.replace("        - text:", "        - delay: 100ms\n          text:");
        let slow: Value = serde_saphyr::from_str(&slow).unwrap();
        cluster.client(0).define("demo", &slow).await;
        let urls: Vec<_> =
            cluster.clients().map(|it| format!("http://{}", it.public_address())).collect();
        let dir = tempfile::tempdir().unwrap();
        let child = start(runtime, "02_streaming", &dir, &urls.join(","), "c");
        let started = |journal: &Journal| journal.of("turn_started").count() > 0;
        cluster.client(1).wait_for("c", "the turn", started).await;
        let holder = cluster.holder(1, "c").await;
        cluster.kill(holder).await;
        let text = output("02_streaming", child).await;
        assert!(text.ends_with(&format!("{GREETING}\n[completed]\n")), "{text}");
    }
}

#[tokio::test]
async fn what_a_node_that_knows_its_callers_refuses_is_an_error_of_its_type() {
    let mut agent = calls_once(vec![gated_client("pay")]);
    agent["tools"][0]["approval"] = json!({"by": {"services": true}});
    agent["tools"][0]["requires_response"] = json!(false);
    let keys = [line("ann", &["user"]), line("bob", &["approver"])];
    let site = guarded(Site::new(ABIDE), &keys, &[("a", agent)]);
    let _node = site.start().await;
    let url = format!("http://{}", site.client.public_address());
    for (runtime, program) in [(OldestPython, "refusals.py"), (OldestNode, "refusals.mjs")] {
        let dir = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(program);
        let mut command = runtime.command(&program, dir.path());
        command.args([&url, &key("ann"), &key("bob")]).kill_on_drop(true);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let text = output("the refusals", child).await;
        let refused = |name: &str, problem: &str, because: Value| {
            json!([name, format!("/problems/{problem}"), because])
        };
        let told: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "unknown credential": refused("UnauthorizedError", "unauthorized", Value::Null),
            "no conversation": refused("NotFoundError", "not-found", Value::Null),
            "no agent": refused("ConflictError", "agent-missing", Value::Null),
            "no definition": refused("ForbiddenError", "forbidden", Value::Null),
            "waits": ["WaitingError", null, null],
            "busy": refused("BusyError", "turn-in-flight", Value::Null),
            "own approval": refused("ForbiddenError", "approval-forbidden", json!("role")),
            "wrong form": refused("StaleError", "call-not-open", Value::Null),
            "approved": ["none", null, null],
            "late": refused("StaleError", "call-not-open", Value::Null),
            "text": "Done.",
        });
        assert_eq!(told, expected, "{program:?}");
    }
}
