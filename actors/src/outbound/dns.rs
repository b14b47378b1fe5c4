//! Resolves names and checks all their addresses before a connection is made.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

/// Decides whether an address is public.
pub(crate) type AddressRule = fn(IpAddr) -> bool;

/// Concurrent look-ups. The system's look-up blocks a thread and cannot be cancelled; names that
/// are never answered must not take all blocking threads.
const MAX_CONCURRENT_LOOKUPS: usize = 32;

/// A name has no usable address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("one of its addresses is not public")]
    Blocked,
    #[error("unknown host name")]
    Unknown,
}

/// Resolves a name if all of its addresses are public.
pub(crate) struct CheckedResolver {
    pub(crate) inner: Arc<dyn Resolve>,
    pub(crate) is_public: AddressRule,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolving = self.inner.resolve(name);
        let is_public = self.is_public;
        Box::pin(async move {
            let addresses: Vec<_> = resolving.await?.collect();
            if addresses.iter().all(|address| is_public(address.ip())) {
                Ok(Box::new(addresses.into_iter()) as Addrs)
            } else {
                Err(ResolveError::Blocked.into())
            }
        })
    }
}

/// Resolves names with the operating system.
pub(crate) struct SystemResolver(Arc<Semaphore>);

impl SystemResolver {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)))
    }
}

impl Resolve for SystemResolver {
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
