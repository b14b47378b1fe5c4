//! Starts and stops native tools with their node.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, try_join_all};
use tokio::time::timeout;

use crate::tools::Extensions;

/// How long a tool may take to start: longer than opening connections takes, and short enough that
/// an operator does not think that the node hangs.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a tool may take to stop: together with a drain's 25 s it stays within the 30 s that
/// orchestrators allow.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A native tool could not start.
#[derive(Debug, thiserror::Error)]
#[error("the native tool {tool} did not start: {reason}")]
pub struct StartError {
    pub tool: String,
    pub reason: String,
}

impl Extensions {
    /// Starts all tools concurrently, within 10 s. If one fails, all are stopped again.
    pub async fn start(&self) -> Result<(), StartError> {
        let starting = self.tools.iter().map(|(name, tool)| async move {
            let started = AssertUnwindSafe(tool.on_start()).catch_unwind();
            let why = match timeout(START_TIMEOUT, started).await {
                Ok(Ok(Ok(()))) => return Ok(()),
                Ok(Ok(Err(why))) => why,
                Ok(Err(_)) => "it panicked".to_owned(),
                Err(_) => format!("it took longer than {} s", START_TIMEOUT.as_secs()),
            };
            Err(StartError { tool: name.clone(), reason: why })
        });
        let started = try_join_all(starting).await.map(drop);
        if started.is_err() {
            self.stop().await;
        }
        started
    }

    /// Stops all tools concurrently, within 2 s; failures are logged.
    pub async fn stop(&self) {
        let stopping = self.tools.iter().map(|(name, tool)| async move {
            let stopped = AssertUnwindSafe(tool.on_stop()).catch_unwind();
            match timeout(STOP_TIMEOUT, stopped).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tracing::error!(native = name, "native tool panicked while stopping"),
                Err(_) => tracing::error!(native = name, "native tool did not stop in time"),
            }
        });
        join_all(stopping).await;
    }
}
