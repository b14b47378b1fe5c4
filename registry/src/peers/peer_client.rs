//! Calls the host of one connected process, and bounds what is in flight to it.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use ractor::rpc::CallResult;
use tokio::sync::Semaphore;

use super::CallError;
use super::stream::Keepalive;
use crate::host::{HostMsg, RemoteCall};

/// The largest call, and the largest answer to one. A frame of twice this size ends the session.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Calls in flight to one process: many times what it answers at a time.
const MAX_CALLS_IN_FLIGHT: usize = 1_024;
/// Bytes of calls in flight to one process, which bounds the memory of what waits for it.
const MAX_BYTES_IN_FLIGHT: usize = 64 << 20;

pub(super) struct PeerClient {
    host: ActorRef<HostMsg>,
    keepalive: Arc<Keepalive>,
    calls: Semaphore,
    bytes: Semaphore,
}

impl PeerClient {
    pub(super) fn new(host: ActorRef<HostMsg>, keepalive: Arc<Keepalive>) -> Self {
        Self {
            host,
            keepalive,
            calls: Semaphore::new(MAX_CALLS_IN_FLIGHT),
            bytes: Semaphore::new(MAX_BYTES_IN_FLIGHT),
        }
    }

    /// Calls the host, and waits at most `timeout` for the answer.
    ///
    /// A call that timed out frees its permit while its bytes may still wait in the connection. So
    /// nothing is added to a backlog, which then holds what was sent within a second at most.
    pub(super) async fn call(
        &self,
        call: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        if call.len() > MAX_MESSAGE_BYTES {
            return Err(CallError::TooLarge);
        }
        let weight = u32::try_from(call.len()).map_err(|_| CallError::TooLarge)?;
        if self.keepalive.is_backlogged() {
            return Err(CallError::Full);
        }
        let _call_permit = self.calls.try_acquire().map_err(|_| CallError::Full)?;
        let _bytes_permit = self.bytes.try_acquire_many(weight).map_err(|_| CallError::Full)?;
        let remote = |reply| HostMsg::Remote(RemoteCall { call, reply });
        match self.host.call(remote, Some(timeout)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout | CallResult::SenderError) => Err(CallError::Lost),
            Err(_) => Err(CallError::Unconnected),
        }
    }
}
