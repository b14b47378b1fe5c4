//! Two HTTP clients of one kind: for every address, and for public addresses alone.

use std::error::Error;
use std::sync::Arc;

use reqwest::dns::Resolve;
use reqwest::{Client, ClientBuilder};

use super::Route;
use super::dns::{AddressRule, CheckedResolver, ResolveError, SystemResolver};
use super::public_address::is_public;

/// A client for each route.
#[derive(Clone, Debug)]
pub(crate) struct ClientPair {
    any: Client,
    public: Client,
}

impl ClientPair {
    /// Builds both alike. The one for public addresses uses no proxy, which would resolve the names.
    pub(crate) fn build(builder: impl Fn() -> ClientBuilder) -> Result<Self, reqwest::Error> {
        Self::with_resolver(builder, Arc::new(SystemResolver::new()), is_public)
    }

    fn with_resolver(
        builder: impl Fn() -> ClientBuilder,
        inner: Arc<dyn Resolve>,
        is_public: AddressRule,
    ) -> Result<Self, reqwest::Error> {
        let checked = Arc::new(CheckedResolver { inner, is_public });
        let public = builder().no_proxy().dns_resolver(checked).build()?;
        Ok(Self { any: builder().build()?, public })
    }

    /// The client for a route.
    pub(crate) fn get(&self, route: Route) -> &Client {
        match route {
            Route::AnyAddress => &self.any,
            Route::PublicAddress => &self.public,
        }
    }
}

/// Whether a request failed because its host has an address that is not public.
pub(crate) fn is_blocked(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(ResolveError::Blocked) = inner.downcast_ref() {
            return true;
        }
        cause = inner.source();
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::SocketAddr;

    use reqwest::dns::{Addrs, Name, Resolving};

    use super::*;

    /// Resolves every name to an address of this machine.
    struct Here;

    impl Resolve for Here {
        fn resolve(&self, _: Name) -> Resolving {
            let here: Addrs = Box::new([SocketAddr::from(([127, 0, 0, 1], 0))].into_iter());
            Box::pin(async move { Ok(here) })
        }
    }

    #[tokio::test]
    async fn a_public_name_with_a_private_address_is_blocked() {
        let build =
            |rule| ClientPair::with_resolver(Client::builder, Arc::new(Here), rule).unwrap();
        let get = async |pair: &ClientPair| {
            let sent = pair.get(Route::PublicAddress).get("http://example.com:1/").send().await;
            sent.unwrap_err()
        };
        assert!(is_blocked(&get(&build(is_public)).await));
        let refused = get(&build(|_| true)).await;
        assert!(refused.is_connect() && !is_blocked(&refused), "the port is closed");
    }
}
