//! Starts nodes, tells them what to do, and hears what they say.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::node::{Config, ECHO, MARK, Order, Other, Said, VARIABLE};

/// How long anything may take: far more than it needs on a machine that builds beside the tests.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two looks at something that cannot be subscribed to.
const LOOK: Duration = Duration::from_millis(5);

/// Waits for a future, and fails with `what` at the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

type Links = BTreeMap<String, String>;

/// A process that is a node.
pub struct Node {
    pub config: Config,
    pub address: String,
    pub pid: u32,
    child: Child,
    orders: ChildStdin,
    said: mpsc::UnboundedReceiver<Said>,
    links: watch::Receiver<Links>,
    /// Every state of its links.
    history: Arc<Mutex<Vec<Links>>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Node {
    /// One of a cluster with a secret, on a free port.
    pub async fn start(name: &str, process: &str) -> Self {
        Self::with(name, process, "127.0.0.1:0", Some("a secret")).await
    }

    pub async fn with(name: &str, process: &str, listen: &str, secret: Option<&str>) -> Self {
        let config = Config {
            name: name.to_owned(),
            process: process.to_owned(),
            listen: listen.to_owned(),
            secret: secret.map(str::to_owned),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "node::this_binary_runs_a_node_when_it_has_a_configuration",
                "--exact",
                "--nocapture",
            ])
            .env(VARIABLE, serde_json::to_string(&config).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (say, mut said) = mpsc::unbounded_channel();
        let (publish, links) = watch::channel(Links::new());
        let history = Arc::<Mutex<Vec<Links>>>::default();
        let past = history.clone();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // The harness's own line may not have ended.
                let Some((_, line)) = line.split_once(MARK) else { continue };
                match serde_json::from_str(line).unwrap() {
                    Said::Links(links) => {
                        past.lock().unwrap().push(links.clone());
                        publish.send_replace(links);
                    }
                    said => drop(say.send(said)),
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
        let Some(Said::Listens(address)) = within("a node", said.recv()).await else {
            panic!("a node begins with its address");
        };
        let (pid, orders) = (child.id().unwrap(), child.stdin.take().unwrap());
        Self { config, address, pid, child, orders, said, links, history, log }
    }

    /// As the others know it.
    pub fn other(&self) -> Other {
        self.at(&self.address)
    }

    /// As the others know it, at another address.
    pub fn at(&self, address: &str) -> Other {
        (self.config.name.clone(), self.config.process.clone(), address.to_owned())
    }

    pub async fn members(&mut self, others: &[Other]) {
        self.order(&Order::Members(others.to_vec())).await;
    }

    /// Waits until the link to a process is this, and says since when it is known here.
    pub async fn link(&mut self, process: &str, link: Option<&str>) -> Instant {
        let what = format!("{process} to be {link:?} at {}", self.config.name);
        let is = |links: &Links| links.get(process).map(String::as_str) == link;
        let seen = timeout(DEADLINE, self.links.wait_for(is)).await.is_ok_and(|seen| seen.is_ok());
        assert!(seen, "waited in vain for {what}; its log: {:#?}", self.log());
        Instant::now()
    }

    /// Whether the link to a process was ever this.
    pub fn ever(&self, process: &str, link: &str) -> bool {
        let history = self.history.lock().unwrap();
        history.iter().any(|links| links.get(process).is_some_and(|was| was == link))
    }

    /// Waits until a metric is at least so much.
    pub async fn metric_reaches(&mut self, name: &str, least: u64) {
        within(name, async {
            while self.metric(name).await < least {
                sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Of its memory, in MiB.
    pub fn resident_mib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1_024
    }

    /// Calls, and waits for the outcome: the length of the answer or why there is none.
    pub async fn call(&mut self, to: &str, bytes: usize, within_ms: u64) -> Result<usize, String> {
        self.call_so(to, bytes, ECHO, within_ms).await.0
    }

    /// Calls until it is connected; the outcome of the first call that is.
    pub async fn call_when_connected(&mut self, to: &str) -> Result<usize, String> {
        within("a connection", async {
            loop {
                let outcome = self.call(to, 256, 10_000).await;
                if outcome != Err("Unconnected".to_owned()) {
                    return outcome;
                }
                sleep(LOOK).await;
            }
        })
        .await
    }

    pub async fn call_so(
        &mut self,
        to: &str,
        bytes: usize,
        first: u8,
        within_ms: u64,
    ) -> (Result<usize, String>, u64) {
        self.order(&Order::Call { to: to.to_owned(), bytes, first, within_ms }).await;
        match within("a call", self.said.recv()).await {
            Some(Said::Called(outcome, took)) => (outcome, took),
            said => panic!("not the outcome of a call: {said:?}"),
        }
    }

    /// Makes many calls; how often each outcome came, and how many milliseconds all took.
    pub async fn calls(
        &mut self,
        to: &str,
        (count, at_a_time, bytes): (usize, usize, usize),
        first: u8,
        within_ms: u64,
    ) -> (BTreeMap<String, usize>, u64) {
        let to = to.to_owned();
        self.order(&Order::Calls { to, count, at_a_time, bytes, first, within_ms }).await;
        match within("calls", self.said.recv()).await {
            Some(Said::CalledAll(outcomes, took)) => (outcomes, took),
            said => panic!("not the outcome of calls: {said:?}"),
        }
    }

    /// The value of a metric, by its whole name with labels; 0 when nothing was counted.
    pub async fn metric(&mut self, name: &str) -> u64 {
        self.order(&Order::Metrics).await;
        let Some(Said::Metrics(text)) = within("metrics", self.said.recv()).await else {
            panic!("these are no metrics");
        };
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// Its lines that contain this.
    pub fn logged(&self, what: &str) -> Vec<String> {
        self.log().into_iter().filter(|line| line.contains(what)).collect()
    }

    /// Waits for a line that contains this.
    pub async fn logs(&self, what: &str) {
        within(what, async {
            while self.logged(what).is_empty() {
                sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Kills the server of ractor_cluster in it.
    pub async fn kill_server(&mut self) {
        self.order(&Order::KillServer).await;
    }

    /// SIGKILL.
    pub async fn kill(&mut self) -> Instant {
        let at = Instant::now();
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
        at
    }

    /// SIGSTOP, SIGCONT and the like. Returns when a stop has happened: its threads go on for a
    /// moment after the signal.
    pub async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.pid.to_string()]).status().await;
        assert!(sent.unwrap().success());
        while signal == "STOP" && !self.is_stopped() {
            tokio::task::yield_now().await;
        }
    }

    /// Whether all of its threads have stopped.
    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name, in brackets, may hold anything; the state is the first letter after.
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

/// Two nodes that are connected: `a` dials.
pub async fn pair() -> (Node, Node) {
    let (mut a, mut b) = tokio::join!(Node::start("a", "p-a"), Node::start("b", "p-b"));
    let both = [a.other(), b.other()];
    a.members(&both).await;
    b.members(&both).await;
    a.link("p-b", Some("Connected")).await;
    b.link("p-a", Some("Connected")).await;
    (a, b)
}
