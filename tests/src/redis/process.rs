//! A Redis as a process of this machine.

use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{FLAGS, MAX_PORT_TRIES, free_port};
use crate::deadline::{poll, within};
use crate::disk::Disk;
use crate::signal::{signal, stop};

/// A process; dropping the value kills it and removes its directory.
pub(super) struct Process {
    child: Child,
    dir: TempDir,
    port: u16,
    flags: Vec<String>,
    /// Whether its writes are watched, so that its machine can lose power.
    on_disk: bool,
}

impl Process {
    pub(super) async fn start(flags: &[&str], on_disk: bool) -> (Self, u16) {
        let flags: Vec<String> = flags.iter().map(|flag| flag.to_string()).collect();
        for _ in 0..MAX_PORT_TRIES {
            let (dir, port) = (directory(), free_port());
            let child = spawn(&dir, port, &flags, on_disk);
            let mut process = Self { child, dir, port, flags: flags.clone(), on_disk };
            if process.wait_until_listening().await {
                return (process, port);
            }
        }
        panic!("redis-server does not start; start it by hand to see why")
    }

    /// Waits until the server listens; `false` when it exited instead.
    async fn wait_until_listening(&mut self) -> bool {
        poll("redis-server to listen", async || {
            if self.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            TcpStream::connect(("127.0.0.1", self.port)).await.ok().map(|_| true)
        })
        .await
    }

    pub(super) async fn kill(&mut self) {
        within("redis-server's end", self.child.kill()).await.unwrap();
    }

    pub(super) async fn lose_power(&mut self, keep: impl FnMut(usize) -> usize) {
        assert!(self.on_disk, "its writes are not watched: take `Redis::process_on_disk`");
        self.kill().await;
        Disk::of(self.dir.path()).lose_unsynced(keep);
    }

    pub(super) async fn restart(&mut self) {
        self.kill().await;
        self.child = spawn(&self.dir, self.port, &self.flags, self.on_disk);
        assert!(self.wait_until_listening().await, "redis-server does not start again");
    }

    pub(super) async fn restart_empty(&mut self) {
        self.kill().await;
        self.dir = directory();
        self.restart().await;
    }

    pub(super) async fn stop(&self) {
        stop(&self.child).await;
    }

    pub(super) fn cont(&self) {
        signal(&self.child, Signal::CONT);
    }
}

/// A directory in memory if the machine has one: the disk, which may stall for seconds during a
/// build, is not under test.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn spawn(dir: &TempDir, port: u16, flags: &[String], on_disk: bool) -> Child {
    let mut command = Command::new("redis-server");
    command.current_dir(dir.path()).kill_on_drop(true).args(FLAGS).args(flags);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if on_disk {
        command.envs(Disk::of(dir.path()).environment());
    }
    command.spawn().unwrap_or_else(|error| panic!("redis-server: {error}; is it installed?"))
}
