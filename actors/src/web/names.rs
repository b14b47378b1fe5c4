//! Names become addresses, all of which are judged before any is connected to.

use std::net::ToSocketAddrs;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::Rule;

/// The system's own look-up holds a thread and cannot be ended; names that are never answered must
/// not take all the threads that there are for such work.
const MOST_LOOKUPS: usize = 32;

/// Why a name gives nothing to connect to.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("one of its addresses is not public")]
    Blocked,
    #[error("the name is not known")]
    Unknown,
}

/// Gives the addresses of a name if all of them are public.
pub(super) struct CheckedResolver {
    pub(super) names: Arc<dyn Resolve>,
    pub(super) is_public: Rule,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolving = self.names.resolve(name);
        let is_public = self.is_public;
        Box::pin(async move {
            let addresses: Vec<_> = resolving.await?.collect();
            match addresses.iter().all(|address| is_public(address.ip())) {
                true => Ok(Box::new(addresses.into_iter()) as Addrs),
                false => Err(ResolveError::Blocked.into()),
            }
        })
    }
}

/// Asks the system, as every program on this machine does.
pub(super) struct System(Arc<Semaphore>);

impl System {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST_LOOKUPS)))
    }
}

impl Resolve for System {
    fn resolve(&self, name: Name) -> Resolving {
        let lookups = Arc::clone(&self.0);
        Box::pin(async move {
            let permit = lookups.acquire_owned().await?;
            let look_up = move || {
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs()
            };
            let addresses = tokio::task::spawn_blocking(look_up).await?;
            let addresses = addresses.map_err(|_| ResolveError::Unknown)?;
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
