//! Starts nodes as child processes, sends them orders, and receives their reports.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_registry::member::ProcessId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::node::{CONFIG_VARIABLE, Config, ECHO, Order, PeerAddress, REPORT_PREFIX, Report};

/// How long anything may take: generous, since the machine may be building at the same time.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// How often to check what cannot be subscribed to.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits for a future, and fails with `what` at the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

/// The secret of the cluster.
pub const SECRET: &str = "the secret of the nodes in these tests";

type Links = BTreeMap<String, String>;

/// A child process that runs a node.
pub struct NodeProcess {
    pub config: Config,
    pub address: String,
    pub pid: u32,
    child: Child,
    orders: ChildStdin,
    reports: mpsc::UnboundedReceiver<Report>,
    links: watch::Receiver<Links>,
    /// All states that the node's links have had.
    history: Arc<Mutex<Vec<Links>>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl NodeProcess {
    /// Starts a node with the cluster's secret on a free port.
    pub async fn start(name: &str, process: &str) -> Self {
        Self::with(name, process, "127.0.0.1:0", Some(SECRET)).await
    }

    pub async fn with(name: &str, process: &str, listen: &str, secret: Option<&str>) -> Self {
        let config = Config {
            name: NodeName::new(name),
            process: ProcessId::new(process),
            listen: listen.to_owned(),
            secret: secret.map(str::to_owned),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "node::this_binary_runs_a_node_when_it_has_a_configuration",
                "--exact",
                "--nocapture",
            ])
            .env(CONFIG_VARIABLE, serde_json::to_string(&config).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (sender, mut reports) = mpsc::unbounded_channel();
        let (publish, links) = watch::channel(Links::new());
        let history = Arc::<Mutex<Vec<Links>>>::default();
        let past = history.clone();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // A report may follow the harness's own text on one line.
                let Some((_, line)) = line.split_once(REPORT_PREFIX) else { continue };
                match serde_json::from_str(line).unwrap() {
                    Report::Links(links) => {
                        past.lock().unwrap().push(links.clone());
                        publish.send_replace(links);
                    }
                    report => drop(sender.send(report)),
                }
            }
        });
        let log = Arc::<Mutex<Vec<String>>>::default();
        let (written, mut lines) =
            (log.clone(), BufReader::new(child.stderr.take().unwrap()).lines());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                written.lock().unwrap().push(line);
            }
        });
        let Some(Report::Listens(address)) = within("a node", reports.recv()).await else {
            panic!("the node's first report is not its address");
        };
        let (pid, orders) = (child.id().unwrap(), child.stdin.take().unwrap());
        Self { config, address, pid, child, orders, reports, links, history, log }
    }

    /// The address of this node, for other nodes.
    pub fn peer_address(&self) -> PeerAddress {
        self.peer_address_at(&self.address)
    }

    /// The address of this node behind a proxy, for other nodes.
    pub fn peer_address_at(&self, address: &str) -> PeerAddress {
        (self.config.name.clone(), self.config.process.clone(), address.to_owned())
    }

    pub async fn set_members(&mut self, others: &[PeerAddress]) {
        self.order(&Order::Members(others.to_vec())).await;
    }

    /// Waits until the link to a process has this state. Returns when the report arrived.
    pub async fn wait_for_link(&mut self, process: &str, link: Option<&str>) -> Instant {
        let what = format!("{process} to be {link:?} at {}", self.config.name);
        let has_state = |links: &Links| links.get(process).map(String::as_str) == link;
        let reached = timeout(DEADLINE, self.links.wait_for(has_state))
            .await
            .is_ok_and(|reached| reached.is_ok());
        assert!(reached, "timed out waiting for {what}; its log: {:#?}", self.log());
        Instant::now()
    }

    /// Waits until the node has reported its links this often.
    pub async fn wait_for_link_reports(&mut self, least: usize) {
        within("a report of the links", async {
            while self.history.lock().unwrap().len() < least {
                self.links.changed().await.unwrap();
            }
        })
        .await;
    }

    /// Whether the link to a process ever had this state.
    pub fn was_link_ever(&self, process: &str, link: &str) -> bool {
        let history = self.history.lock().unwrap();
        history.iter().any(|links| links.get(process).is_some_and(|state| state == link))
    }

    /// Waits until a metric is at least `least`.
    pub async fn metric_reaches(&mut self, name: &str, least: u64) {
        within(name, async {
            while self.metric(name).await < least {
                sleep(POLL_INTERVAL).await;
            }
        })
        .await;
    }

    /// The process's resident memory in MiB.
    pub fn resident_mib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1_024
    }

    /// Makes a call, and waits for its outcome: the length of the reply, or the error.
    pub async fn call(&mut self, to: &str, bytes: usize, within_ms: u64) -> Result<usize, String> {
        self.call_with(to, bytes, ECHO, within_ms).await.0
    }

    /// Calls until the peer is connected. Returns the outcome of the first call on a connection.
    pub async fn call_when_connected(&mut self, to: &str) -> Result<usize, String> {
        within("a connection", async {
            loop {
                let outcome = self.call(to, 256, 10_000).await;
                if outcome != Err("Unconnected".to_owned()) {
                    return outcome;
                }
                sleep(POLL_INTERVAL).await;
            }
        })
        .await
    }

    pub async fn call_with(
        &mut self,
        to: &str,
        bytes: usize,
        first: u8,
        within_ms: u64,
    ) -> (Result<usize, String>, u64) {
        self.order(&Order::Call { to: ProcessId::new(to), bytes, first, within_ms }).await;
        match within("a call", self.reports.recv()).await {
            Some(Report::Called(outcome, took)) => (outcome, took),
            report => panic!("not the outcome of a call: {report:?}"),
        }
    }

    /// Makes many calls. Returns the number of calls per outcome, and the milliseconds that all
    /// took.
    pub async fn calls(
        &mut self,
        to: &str,
        (count, concurrency, bytes): (usize, usize, usize),
        first: u8,
        within_ms: u64,
    ) -> (BTreeMap<String, usize>, u64) {
        let to = ProcessId::new(to);
        self.order(&Order::Calls { to, count, concurrency, bytes, first, within_ms }).await;
        match within("calls", self.reports.recv()).await {
            Some(Report::CalledAll(outcomes, took)) => (outcomes, took),
            report => panic!("not the outcome of calls: {report:?}"),
        }
    }

    /// The value of a metric, by its whole name with labels; 0 when nothing was counted.
    pub async fn metric(&mut self, name: &str) -> u64 {
        self.order(&Order::Metrics).await;
        let Some(Report::Metrics(text)) = within("metrics", self.reports.recv()).await else {
            panic!("the node's report has no metrics");
        };
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// The lines of the log that contain this text.
    pub fn log_lines(&self, what: &str) -> Vec<String> {
        self.log().into_iter().filter(|line| line.contains(what)).collect()
    }

    /// Waits for a line of the log that contains this text.
    pub async fn wait_for_log(&self, what: &str) {
        within(what, async {
            while self.log_lines(what).is_empty() {
                sleep(POLL_INTERVAL).await;
            }
        })
        .await;
    }

    /// Kills ractor_cluster's node server in the process.
    pub async fn kill_server(&mut self) {
        self.order(&Order::KillServer).await;
    }

    /// Kills the process with SIGKILL. Returns when.
    pub async fn kill(&mut self) -> Instant {
        let at = Instant::now();
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
        at
    }

    /// Sends a signal, such as STOP or CONT. Returns when a stop has taken effect, since threads
    /// run on for a moment after the signal.
    pub async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.pid.to_string()]).status().await;
        assert!(sent.unwrap().success());
        while signal == "STOP" && !self.is_stopped() {
            tokio::task::yield_now().await;
        }
    }

    /// Whether all threads of the process have stopped.
    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name, in brackets, may contain anything; the state is the first letter after it.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    async fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).unwrap() + "\n";
        self.orders.write_all(line.as_bytes()).await.unwrap();
    }
}

/// Two connected nodes, of which `a` dials.
pub async fn pair() -> (NodeProcess, NodeProcess) {
    let (mut a, mut b) =
        tokio::join!(NodeProcess::start("a", "p-a"), NodeProcess::start("b", "p-b"));
    let both = [a.peer_address(), b.peer_address()];
    a.set_members(&both).await;
    b.set_members(&both).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    b.wait_for_link("p-a", Some("Connected")).await;
    (a, b)
}
