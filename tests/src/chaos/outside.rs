//! Programs outside the cluster: workers, which lease calls from a queue, tools that call back, and a
//! schedule. The programs die, are late, and say twice what they have done.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::agents::{self, Shape};
use super::worker::RunContext;
use crate::checks::outside::{Completion, Outside, SCHEDULE, TICK_INTERVAL};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::random::SeededRandom;
use crate::request_log::Request;
use crate::tool_server::ToolServer;

const QUEUE: &str = "chaos";
/// The agent of the schedule's conversations.
const TICKED: &str = "ticked";
const WORKERS: u64 = 4;
/// A call that a dead worker has waits this long for another one.
const LEASE: &str = "2s";
/// How long a program works at most: some longer than their lease.
const WORK_MS: u64 = 2_500;
const RETRY_INTERVAL: Duration = Duration::from_millis(150);

/// An agent whose tools are carried out outside.
pub(super) fn shape(tools: &ToolServer) -> Shape {
    let minute = json!({"timeout": "60s"});
    let queued = json!({"run": {"queue": QUEUE}, "timeout": "60s"});
    let definition = agents::all_at_once(vec![
        agents::tool("job", queued.clone()),
        agents::http("ship", tools, "/accept", minute),
        agents::tool("other_job", queued),
    ]);
    agents::shape("outside", definition)
}

/// The programs of a run.
#[derive(Clone)]
pub(super) struct Programs {
    context: Arc<RunContext>,
    completions: Arc<Mutex<Vec<Completion>>>,
}

impl Programs {
    /// Begins a schedule, the workers, and a program that calls back for the tool `/accept`.
    pub(super) async fn start(
        context: &Arc<RunContext>,
        cluster: &Cluster,
        tools: &ToolServer,
    ) -> Self {
        let programs = Self { context: context.clone(), completions: Arc::default() };
        let every = format!("{}s", TICK_INTERVAL.as_secs());
        let body = json!({"agent": TICKED, "every": every, "missed": "all", "text": "5"});
        let path = format!("/v1/schedules/{SCHEDULE}");
        let client = cluster.client(0).clone().without_history();
        client
            .define(
                TICKED,
                &agents::agent(
                    json!({"provider": "scripted", "script": [{"text": "Tick."}]}),
                    vec![],
                ),
            )
            .await;
        let put = client.ask(Method::PUT, &path, None, Some(&body)).await;
        put.expect("the node answers").expect(201);
        for number in 0..WORKERS {
            let program = Program::new(&programs, number);
            tokio::spawn(program.lease());
        }
        tokio::spawn(Program::new(&programs, WORKERS).call_back(tools.requests.clone()));
        programs
    }

    /// Pauses the schedule, and tells what was promised; the ticks only if they are `certain`.
    pub(super) async fn finish(self, cluster: &Cluster, certain: bool) -> Outside {
        let client = cluster.client(0).clone().without_history();
        let path = format!("/v1/schedules/{SCHEDULE}");
        let paused = client.ask(Method::POST, &format!("{path}/pause"), None, None).await;
        paused.expect("the node answers").expect(200);
        let schedule = client.ask(Method::GET, &path, None, None).await;
        let schedule = schedule.expect("the node answers").expect(200).clone();
        let completions = self.completions.lock().unwrap().clone();
        Outside { completions, schedule: certain.then_some(schedule) }
    }
}

/// One program.
struct Program {
    programs: Programs,
    random: SeededRandom,
    number: u64,
}

impl Program {
    fn new(programs: &Programs, number: u64) -> Self {
        let seed = programs.context.seed.wrapping_mul(77).wrapping_add(number);
        Self { programs: programs.clone(), random: SeededRandom(seed), number }
    }

    fn node(&mut self) -> Client {
        let clients = &self.programs.context.clients;
        clients[self.random.below(clients.len() as u64) as usize].clone()
    }

    /// Takes calls until the run gives up.
    async fn lease(mut self) {
        let path = format!("/v1/queues/{QUEUE}/lease");
        let name = format!("worker-{}", self.number);
        while !self.programs.context.gives_up() {
            let body = json!({"max": 3, "wait": "2s", "lease": LEASE, "worker": name});
            let answer = self.node().ask(Method::POST, &path, None, Some(&body)).await;
            let Some(answer) = answer.filter(|answer| answer.status == 200) else {
                sleep(RETRY_INTERVAL).await;
                continue;
            };
            for work in answer.body["work"].as_array().into_iter().flatten() {
                self.do_work(work).await;
            }
        }
    }

    async fn do_work(&mut self, work: &Value) {
        // It dies.
        if self.random.below(5) == 0 {
            return;
        }
        self.work().await;
        let lease = work["lease_id"].as_str().unwrap();
        let path = format!("/v1/leases/{lease}/complete");
        let key: String = lease.chars().take(200).collect();
        self.complete(work, &path, Some(key)).await;
    }

    /// Most of what is done is done fast.
    async fn work(&mut self) {
        let longest = [50, 50, WORK_MS][self.random.below(3) as usize];
        sleep(Duration::from_millis(self.random.below(longest))).await;
    }

    /// Answers, later, each request that the tool `/accept` accepted.
    async fn call_back(mut self, requests: crate::request_log::RequestLog) {
        let mut seen = 0;
        while !self.programs.context.gives_up() {
            let all = requests.all();
            let accepted: Vec<Request> =
                all[seen..].iter().filter(|it| it.path == "/accept").cloned().collect();
            seen = all.len();
            for request in accepted {
                let mut program = Self::new(&self.programs, self.random.below(u64::MAX));
                tokio::spawn(async move {
                    program.work().await;
                    let token = request.body["callback"]["token"].as_str().unwrap_or_default();
                    let path = format!("/v1/callbacks/{token}");
                    program.complete(&request.body, &path, None).await;
                    // A second one must not count.
                    if program.random.below(3) == 0 {
                        program.complete(&request.body, &path, None).await;
                    }
                });
            }
            // A queue of requests that is asked now and then, like the workers' own.
            let _ = timeout(RETRY_INTERVAL, requests.nth(seen + 1)).await;
        }
    }

    /// Sends a result until there is a definite answer, and notes what was promised.
    async fn complete(&mut self, call: &Value, path: &str, key: Option<String>) {
        let result = json!({"done_by": self.random.below(u64::MAX)});
        let body = json!({"result": result});
        let field = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        while !self.programs.context.gives_up() {
            let answer = self.node().ask(Method::POST, path, key.as_deref(), Some(&body)).await;
            match answer {
                Some(answer) if answer.status == 200 => {
                    let seq = answer.body["seq"].as_u64().unwrap_or_default();
                    let (conversation, call) = (field("conversation_id"), field("call_id"));
                    let completion = Completion { conversation, call, seq, result };
                    return self.programs.completions.lock().unwrap().push(completion);
                }
                Some(answer) if ![429, 503].contains(&answer.status) => return,
                Some(_) | None => sleep(RETRY_INTERVAL).await,
            }
        }
    }
}
