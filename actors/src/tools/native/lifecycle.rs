//! Native tools begin and end with their node.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, try_join_all};
use tokio::time::timeout;

use crate::tools::Extensions;

/// How long a tool may take to get ready: longer than opening connections takes, and not so long
/// that whoever started the node thinks it hangs.
const STARTING: Duration = Duration::from_secs(10);
/// How long a tool may take to clean up: with a drain's 25 s still within the 30 s that
/// orchestrators give.
const STOPPING: Duration = Duration::from_secs(2);

/// A native tool could not get ready.
#[derive(Debug, thiserror::Error)]
#[error("the native tool {tool} did not start: {why}")]
pub struct StartError {
    pub tool: String,
    pub why: String,
}

impl Extensions {
    /// Lets every tool get ready, all at once, for at most 10 s. If one fails, all are stopped again.
    pub async fn start(&self) -> Result<(), StartError> {
        let starting = self.tools.iter().map(|(name, tool)| async move {
            let started = AssertUnwindSafe(tool.started()).catch_unwind();
            let why = match timeout(STARTING, started).await {
                Ok(Ok(Ok(()))) => return Ok(()),
                Ok(Ok(Err(why))) => why,
                Ok(Err(_)) => "it panicked".to_owned(),
                Err(_) => format!("it took longer than {} s", STARTING.as_secs()),
            };
            Err(StartError { tool: name.clone(), why })
        });
        let started = try_join_all(starting).await.map(drop);
        if started.is_err() {
            self.stop().await;
        }
        started
    }

    /// Lets every tool clean up, all at once, for at most 2 s; what goes wrong is logged.
    pub async fn stop(&self) {
        let stopping = self.tools.iter().map(|(name, tool)| async move {
            let stopped = AssertUnwindSafe(tool.stopped()).catch_unwind();
            match timeout(STOPPING, stopped).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tracing::error!(native = name, "a native tool panicked at its end"),
                Err(_) => tracing::error!(native = name, "a native tool did not stop in time"),
            }
        });
        join_all(stopping).await;
    }
}
