//! A cluster of real processes over one Redis, which tests kill, stop, cut off and restart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;

use crate::checks::Evidence;
use crate::client::Client;
use crate::deadline::poll;
use crate::disk::Disk;
use crate::fake_clock::FakeClock;
use crate::history::History;
use crate::node::{Node, Resources, Site};
use crate::proxy::Proxy;
use crate::redis::Redis;
use crate::signal::Starvation;
use crate::tool_server::ToolServer;

/// How the nodes of a cluster are started.
pub struct Plan {
    program: PathBuf,
    flags: Vec<String>,
    store: Option<String>,
    proxied: bool,
    logs: Option<PathBuf>,
    supervised: bool,
    secret: Option<String>,
    embedded: bool,
    fake_clocks: bool,
    some_compress: bool,
    environment: Vec<(String, String)>,
}

impl Plan {
    /// Plans nodes of this program.
    pub fn new(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref().to_owned();
        Self {
            program,
            flags: Vec::new(),
            store: None,
            proxied: false,
            logs: None,
            supervised: false,
            secret: None,
            embedded: false,
            fake_clocks: false,
            some_compress: false,
            environment: Vec::new(),
        }
    }

    /// Adds flags to every start of every node.
    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| flag.to_string()));
        self
    }

    /// Has every other node compress what it stores. All of them read both.
    pub fn some_compress(mut self) -> Self {
        self.some_compress = true;
        self
    }

    /// Adds a variable to the environment of every node.
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets `--store`, which otherwise is the URL of the cluster's Redis.
    pub fn with_store(mut self, store: &str) -> Self {
        self.store = Some(store.to_owned());
        self
    }

    /// Gives the node an embedded store on a disk that can fail, instead of the cluster's Redis. Only
    /// for a cluster of one node.
    pub fn embedded(mut self) -> Self {
        self.embedded = true;
        self
    }

    /// Gives each node a clock that can be set, right at first. Needs libfaketime.
    pub fn with_fake_clocks(mut self) -> Self {
        self.fake_clocks = true;
        self
    }

    /// Puts a proxy between each node and Redis, and one before each node's cluster address.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Restarts a node that exits before it serves, as a supervisor would: its store may be away.
    pub fn supervised(mut self) -> Self {
        self.supervised = true;
        self
    }

    /// Gives the cluster this secret instead of none.
    pub fn with_secret(mut self, secret: &str) -> Self {
        self.secret = Some(secret.to_owned());
        self
    }

    /// Writes the nodes' logs into this directory as `NAME.log`, instead of printing them when a
    /// test fails.
    pub fn with_logs_in(mut self, dir: &Path) -> Self {
        self.logs = Some(dir.to_owned());
        self
    }

    /// Starts `count` nodes at once, and waits until all serve.
    pub async fn start(self, redis: Redis, count: usize) -> Cluster {
        let mut cluster =
            Cluster { members: Vec::new(), redis, history: History::default(), plan: self };
        cluster.members = (0..count).map(|index| cluster.member(index)).collect();
        join_all(cluster.members.iter_mut().map(Member::start)).await;
        cluster
    }
}

/// Nodes `node-0`, `node-1` and so on. Dropping the value kills them, then Redis; when a test
/// fails, the log of each node is printed.
pub struct Cluster {
    members: Vec<Member>,
    pub redis: Redis,
    /// The requests of this cluster's clients and the streams that they read.
    pub history: History,
    plan: Plan,
}

struct Member {
    node: Option<Node>,
    stopped: AtomicBool,
    site: Site,
    client: Client,
    proxies: Option<Proxies>,
    supervised: bool,
}

struct Proxies {
    to_redis: Proxy,
    to_node: Proxy,
}

impl Member {
    async fn start(&mut self) {
        let node = if self.supervised {
            poll("a node to serve", async || self.site.try_start().await.ok()).await
        } else {
            self.site.start().await
        };
        self.node = Some(node);
        self.stopped.store(false, Ordering::Relaxed);
        if let (Some(proxies), Some(address)) = (&self.proxies, self.site.client.cluster_address())
        {
            let proxy = proxies.to_node.address().to_string();
            assert_ne!(
                address, proxy,
                "the ready line names the address that listens, not the advertised one"
            );
            proxies.to_node.aim(&address);
        }
    }

    fn running(&self) -> &Node {
        let name = self.site.name();
        self.node.as_ref().unwrap_or_else(|| panic!("{name} is not running"))
    }
}

impl Cluster {
    /// A client of one node, wherever that listens now. Its requests are recorded in the history.
    pub fn client(&self, node: usize) -> &Client {
        &self.members[node].client
    }

    /// A client of each node.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.members.iter().map(|member| &member.client)
    }

    /// A node's name.
    pub fn name(&self, node: usize) -> &str {
        self.members[node].site.name()
    }

    /// Starts one more node, by the plan as modified by `change`. Returns its index.
    pub async fn join(&mut self, change: impl FnOnce(Site) -> Site) -> usize {
        let index = self.members.len();
        let mut member = self.member(index);
        member.site = change(member.site);
        member.start().await;
        self.members.push(member);
        index
    }

    /// Sends SIGKILL. Returns when the process is gone.
    pub async fn kill(&mut self, node: usize) {
        if let Some(node) = self.members[node].node.take() {
            node.kill().await;
        }
    }

    /// Sends SIGSTOP. After the return the process does nothing any more; its connections stay
    /// open.
    pub async fn stop(&self, node: usize) {
        self.members[node].running().stop().await;
        self.members[node].stopped.store(true, Ordering::Relaxed);
    }

    /// Sends SIGCONT.
    pub fn cont(&self, node: usize) {
        self.history.record_resumption();
        self.members[node].running().cont();
        self.members[node].stopped.store(false, Ordering::Relaxed);
    }

    /// Starves a node of the CPU; it must not be killed or stopped before that ends.
    pub fn starve(&self, node: usize) -> Starvation {
        self.members[node].running().starve()
    }

    /// The disk of a node's embedded store.
    pub fn disk(&self, node: usize) -> Disk {
        Disk::of(&self.members[node].site.store())
    }

    /// The clock of a node. The plan must have asked for it.
    pub fn clock(&self, node: usize) -> FakeClock {
        FakeClock::of(self.dir(node))
    }

    /// Replaces a node's program for its later starts.
    pub fn set_program(&mut self, node: usize, program: impl AsRef<Path>) {
        self.members[node].site.set_program(program);
    }

    /// Sets a variable of a node's environment from its next start on.
    pub fn set_env(&mut self, node: usize, name: &str, value: &str) {
        self.members[node].site.set_env(name, value);
    }

    /// A node's resident memory in bytes.
    pub fn memory(&self, node: usize) -> u64 {
        self.members[node].running().memory()
    }

    /// What a node's process uses of the machine.
    pub fn resources(&self, node: usize) -> Resources {
        self.members[node].running().resources()
    }

    /// Sends SIGTERM. Returns when the node has drained and exited with 0.
    pub async fn terminate(&mut self, node: usize) {
        self.members[node].running().terminate();
        let mut process = self.members[node].node.take().unwrap();
        let status = process.wait_for_exit().await;
        assert!(status.success(), "{} exited with {status}", self.name(node));
    }

    /// The nodes whose processes have exited by themselves, each with its exit status.
    pub fn exited_nodes(&mut self) -> Vec<String> {
        let exited = |member: &mut Member| {
            let status = member.node.as_mut()?.try_wait()?;
            Some(format!("{} exited with {status}", member.site.name()))
        };
        self.members.iter_mut().filter_map(exited).collect()
    }

    /// Restarts a node under its name and its cluster address, after killing it if it is running.
    pub async fn restart(&mut self, node: usize) {
        self.kill(node).await;
        self.members[node].start().await;
    }

    /// Drains a node, and restarts it with this program.
    pub async fn replace(&mut self, node: usize, program: impl AsRef<Path>) {
        self.terminate(node).await;
        self.set_program(node, program);
        self.restart(node).await;
    }

    /// The proxy between a node and Redis. The plan must have asked for proxies.
    pub fn to_redis(&self, node: usize) -> &Proxy {
        &self.proxies(node).to_redis
    }

    /// The proxy that the other nodes dial to reach this one. A connection that this node dialled
    /// goes through the other node's proxy.
    pub fn to_node(&self, node: usize) -> &Proxy {
        &self.proxies(node).to_node
    }

    /// Waits until some node holds the conversation, as the node `seen_by` sees it. Returns its
    /// index.
    pub async fn holder(&self, seen_by: usize, conversation: &str) -> usize {
        let path = format!("/v1/conversations/{conversation}");
        poll(&format!("a holder of {conversation}"), async || {
            let answer = self.client(seen_by).ask(reqwest::Method::GET, &path, None, None).await?;
            let holder = answer.body["holder"]["node"].as_str()?;
            self.members.iter().position(|member| member.site.name() == holder)
        })
        .await
    }

    /// Everything that a node's processes have written to standard error.
    pub fn log(&self, node: usize) -> String {
        self.members[node].site.log()
    }

    /// The working directory of a node.
    pub fn dir(&self, node: usize) -> &Path {
        self.members[node].site.dir()
    }

    /// The first node that is running, is not stopped, and is not `than`.
    pub fn other(&self, than: usize) -> usize {
        let serves = |index: &usize| {
            let member = &self.members[*index];
            member.node.is_some() && !member.stopped.load(Ordering::Relaxed)
        };
        let mut others = (0..self.members.len()).filter(|index| *index != than);
        others.find(serves).expect("no other node serves")
    }

    /// Gathers the history, the journals and the tools' records, once every conversation is at
    /// rest.
    pub async fn evidence(&self, tools: &[&ToolServer]) -> Evidence {
        let client = self.client(self.other(usize::MAX));
        Evidence::gather(client, &self.history, tools).await
    }

    fn proxies(&self, node: usize) -> &Proxies {
        self.members[node].proxies.as_ref().expect("the plan has no proxies")
    }

    fn member(&self, index: usize) -> Member {
        let (plan, name) = (&self.plan, format!("node-{index}"));
        let flags: Vec<&str> = plan.flags.iter().map(String::as_str).collect();
        let mut site = Site::new(&plan.program).named(&name).with(&flags);
        let mut url = self.redis.url().to_owned();
        let proxies = plan.proxied.then(|| {
            let (to_redis, to_node) = (Proxy::to(self.redis.address()), Proxy::start());
            url = url.replacen(self.redis.address(), &to_redis.address().to_string(), 1);
            Proxies { to_redis, to_node }
        });
        if let Some(Proxies { to_node, .. }) = &proxies {
            site = site.with(&["--cluster-advertise", &to_node.address().to_string()]);
        }
        if !plan.embedded {
            site = site.with_store(plan.store.as_ref().unwrap_or(&url));
        }
        if plan.some_compress && index % 2 == 1 {
            site = site.with(&["--store-compression", "zstd"]);
        }
        let mut site = with_environment(site, plan);
        if let Some(secret) = &plan.secret {
            site = site.with_env("ABIDE_CLUSTER_SECRET", secret);
        }
        if let Some(dir) = &plan.logs {
            site = site.with_log_at(&dir.join(format!("{name}.log")));
        }
        let client = site.client.clone().with_history(&self.history, &name);
        let (stopped, supervised) = (AtomicBool::new(false), plan.supervised);
        Member { node: None, stopped, site, client, proxies, supervised }
    }
}

/// Sets up the node's disk, clock and variables as planned.
fn with_environment(site: Site, plan: &Plan) -> Site {
    let variables = plan.environment.iter();
    let site = variables.fold(site, |site, (name, value)| site.with_env(name, value));
    let clock = plan.fake_clocks.then(|| FakeClock::of(site.dir()).environment());
    let clock = clock.map(|environment| environment.expect("libfaketime is needed"));
    let disk = plan.embedded.then(|| Disk::of(&site.store()).environment());
    assert!(clock.is_none() || disk.is_none(), "both preload a library");
    let site =
        disk.into_iter().flatten().fold(site, |site, (name, value)| site.with_env(&name, &value));
    clock.into_iter().flatten().fold(site, |site, (name, value)| site.with_env(name, &value))
}
