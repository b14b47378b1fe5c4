//! The way to one connected process: calls its host, and lets no more be under way than the other
//! side can want.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use ractor::rpc::CallResult;
use tokio::sync::Semaphore;

use super::CallError;
use super::stream::Keepalive;
use crate::host::{HostMsg, RemoteCall};

/// The largest call, and the largest answer that may be given to one: a frame of twice this ends
/// the session.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Calls under way to one process: many times what it answers at a time.
const CALLS: usize = 1_024;
/// Bytes of calls under way to one process; what waits for it takes no more of this one's memory.
const BYTES: usize = 64 << 20;

pub(super) struct PeerClient {
    host: ActorRef<HostMsg>,
    pulse: Arc<Keepalive>,
    calls: Semaphore,
    bytes: Semaphore,
}

impl PeerClient {
    pub(super) fn new(host: ActorRef<HostMsg>, pulse: Arc<Keepalive>) -> Self {
        Self { host, pulse, calls: Semaphore::new(CALLS), bytes: Semaphore::new(BYTES) }
    }

    /// A call that ran out of time gives its place to another, though its bytes may wait here yet.
    /// So nothing is added to a backlog: what can be in one is what was sent within a second.
    pub(super) async fn call(&self, call: Vec<u8>, within: Duration) -> Result<Vec<u8>, CallError> {
        if call.len() > MAX_MESSAGE_BYTES {
            return Err(CallError::TooLarge);
        }
        let weight = u32::try_from(call.len()).map_err(|_| CallError::TooLarge)?;
        if self.pulse.is_backlogged() {
            return Err(CallError::Full);
        }
        let _place = self.calls.try_acquire().map_err(|_| CallError::Full)?;
        let _bytes = self.bytes.try_acquire_many(weight).map_err(|_| CallError::Full)?;
        let remote = |reply| HostMsg::Remote(RemoteCall { call, reply });
        match self.host.call(remote, Some(within)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout | CallResult::SenderError) => Err(CallError::Lost),
            Err(_) => Err(CallError::Unconnected),
        }
    }
}
