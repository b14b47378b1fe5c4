//! The workers of our own clients, killed and frozen at every step.

use std::process::Stdio;

use abide_tests::deadline::{poll, within};
use abide_tests::node::Site;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::ABIDE;
use crate::agents::{agent, call, steps, tool};
use crate::clients::{Runtime, read_until};

/// Starts a worker of the example in a process of its own.
fn start_worker(runtime: Runtime, dir: &TempDir, url: &str) -> Child {
    let mut command = runtime.example("11_worker", dir.path());
    command.args(["-", "work"]).env("ABIDE_URL", url).env_remove("ABIDE_TOKEN");
    command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().unwrap_or_else(|error| panic!("{runtime:?}: {error}: run .ci/clients"))
}

async fn signal(child: &Child, name: &str) {
    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args([name, &id]).status().await.unwrap().success());
}

struct Printer {
    site: Site,
    dir: TempDir,
    url: String,
}

impl Printer {
    async fn start(site: Site) -> Self {
        let pages = call("it", "print_pages", json!({"pages": 8}));
        let queued = tool("print_pages", json!({"run": {"queue": "print"}, "timeout": "1h"}));
        site.client.define("printer", &agent(steps(&[vec![pages]]), vec![queued])).await;
        let url = format!("http://{}", site.client.public_address());
        Self { site, dir: tempfile::tempdir().unwrap(), url }
    }

    fn worker(&self, runtime: Runtime) -> Child {
        start_worker(runtime, &self.dir, &self.url)
    }

    async fn send(&self, id: &str) {
        self.site.client.send_message(id, "printer", "print").await;
    }

    /// Waits until an operator sees `count` workers.
    async fn wait_for_workers(&self, count: usize) {
        poll("workers to wait", async || {
            let queues = self.site.client.admin(reqwest::Method::GET, "/admin/queues").await;
            let workers = queues.body["queues"][0]["workers"].as_array()?.len();
            (workers >= count).then_some(())
        })
        .await;
    }

    /// The one result of the call, and the attempt that it is of.
    async fn result(&self, id: &str) -> (Value, u64) {
        let journal = self.site.client.wait_until_settled(id, 1).await;
        assert_eq!(journal.of("tool_result").count(), 1);
        let last = journal.of("tool_leased").last().unwrap();
        (journal.result("it")["result"].clone(), last["data"]["attempt"].as_u64().unwrap())
    }
}

#[tokio::test]
async fn what_a_worker_had_that_was_killed_or_frozen_another_one_does() {
    for runtime in [Runtime::OldestPython, Runtime::OldestNode] {
        for stop in ["-KILL", "-STOP"] {
            let site = Site::new(ABIDE);
            let _node = site.start().await;
            let printer = Printer::start(site).await;
            // While it waits: nobody is given to it.
            let idle = printer.worker(runtime);
            printer.wait_for_workers(1).await;
            signal(&idle, "-KILL").await;
            let mut first = printer.worker(runtime);
            printer.wait_for_workers(2).await;
            printer.send("c").await;
            read_until(&mut first, "printing, attempt 1").await;
            // While it works.
            let mut second = printer.worker(runtime);
            signal(&first, stop).await;
            read_until(&mut second, "printing, attempt 2").await;
            if stop == "-STOP" {
                signal(&first, "-CONT").await;
            }
            let (result, attempt) = printer.result("c").await;
            assert_eq!((&result, attempt), (&json!({"printed": 8}), 2), "{runtime:?} {stop}");
        }
    }
}

#[tokio::test]
async fn a_worker_that_is_terminated_finishes_what_it_has() {
    for runtime in [Runtime::OldestPython, Runtime::OldestNode] {
        let site = Site::new(ABIDE);
        let _node = site.start().await;
        let printer = Printer::start(site).await;
        let mut worker = printer.worker(runtime);
        printer.send("c").await;
        read_until(&mut worker, "printing, attempt 1").await;
        signal(&worker, "-TERM").await;
        let status = within("the end of the worker", worker.wait()).await.unwrap();
        assert!(status.success(), "{runtime:?}: {status}");
        assert_eq!(printer.result("c").await, (json!({"printed": 8}), 1));
    }
}
