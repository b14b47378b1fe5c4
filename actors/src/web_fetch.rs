//! Fetches pages, only from the public web and from hosts that the agent allows.

mod body;
mod content_type;
mod error;
mod html_to_text;

use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::Resolve;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use url::{Host, Url};

use crate::outbound::dns::{AddressRule, CheckedResolver, SystemResolver};
use crate::outbound::{Outbound, Route, allowed_hosts, public_address};
use content_type::ContentType;
pub use error::FetchError;

/// Browsers follow 20; more redirects than this are a trap or a loop.
const MAX_REDIRECTS: usize = 5;
/// The addresses of a name share this time, so that a dead one leaves time for the next.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Servers accept about this much; a page's URL is also journalled.
const MAX_URL_BYTES: usize = 8_192;
const ACCEPT_TYPES: &str = "text/html, application/json, text/*;q=0.9, */*;q=0.1";

/// A page that was read to its end, or to the size limit.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedPage {
    /// The final URL, after all redirects.
    pub url: String,
    pub status: u16,
    /// The body: HTML as readable text, other text unchanged.
    pub text: String,
    /// Whether the body was longer than what was read.
    pub truncated: bool,
}

/// Fetches pages for all agents of a node.
///
/// A name is resolved once for each connection, and the connection goes to one of the checked
/// addresses. No proxy is used, no connection outlives its page, and nothing (no cookie, credential
/// or referrer) is carried from one page to the next.
#[derive(Debug)]
pub struct Fetcher {
    is_public: AddressRule,
    /// The client for public addresses; refuses a name that has any other address.
    public: Client,
    /// The client for hosts that the agent allows, whatever their addresses are.
    unrestricted: Client,
}

impl Fetcher {
    /// A fetcher that resolves names with the system's resolver.
    pub fn new() -> Result<Self, reqwest::Error> {
        Self::with_resolver(Arc::new(SystemResolver::new()), public_address::is_public)
    }

    fn with_resolver(
        resolver: Arc<dyn Resolve>,
        is_public: AddressRule,
    ) -> Result<Self, reqwest::Error> {
        let checked = CheckedResolver { inner: Arc::clone(&resolver), is_public };
        Ok(Self { is_public, public: client(Arc::new(checked))?, unrestricted: client(resolver)? })
    }

    /// Gets the page at this URL, following redirects, all within the time limit.
    ///
    /// `allowed_hosts` (`host` or `host:port`) may be reached whatever their addresses are, as far as
    /// `outbound` permits them; a redirect from one of them to another private host is refused. A dropped future ends its
    /// requests soon. A URL with a user name or password is refused.
    pub async fn fetch(
        &self,
        url: &str,
        allowed_hosts: &[String],
        outbound: &Outbound,
        timeout: Duration,
    ) -> Result<FetchedPage, FetchError> {
        let url = parse_url(url)?;
        let late = |_| FetchError::failed(format!("timed out after {} ms", timeout.as_millis()));
        tokio::time::timeout(timeout, self.follow(url, allowed_hosts, outbound))
            .await
            .map_err(late)?
    }

    async fn follow(
        &self,
        mut url: Url,
        allowed_hosts: &[String],
        outbound: &Outbound,
    ) -> Result<FetchedPage, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get(&url, allowed_hosts, outbound).await?;
            match redirect_target(&url, &response)? {
                Some(elsewhere) => url = elsewhere,
                None => return read_page(url, response).await,
            }
        }
        Err(FetchError::TooManyRedirects)
    }

    /// Sends one request after checking the host; every redirect passes here, too.
    async fn get(
        &self,
        url: &Url,
        allowed_hosts: &[String],
        outbound: &Outbound,
    ) -> Result<Response, FetchError> {
        let host = check_url(url)?;
        let route = outbound.route(url).map_err(|_| FetchError::blocked(&host))?;
        let is_allowed = route == Route::AnyAddress
            && allowed_hosts.iter().any(|entry| allowed_hosts::matches(entry, url));
        let client = match host {
            _ if is_allowed => &self.unrestricted,
            // The checking resolver is never called for a literal address.
            Host::Ipv4(address) if !(self.is_public)(address.into()) => {
                return Err(FetchError::blocked(&host));
            }
            Host::Ipv6(address) if !(self.is_public)(address.into()) => {
                return Err(FetchError::blocked(&host));
            }
            _ => &self.public,
        };
        let sent = client.get(url.clone()).send().await;
        sent.map_err(|error| FetchError::from_transport(&error, &host))
    }
}

fn client(resolver: Arc<dyn Resolve>) -> Result<Client, reqwest::Error> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPT_TYPES));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(body::ACCEPTED_ENCODING));
    Client::builder()
        .dns_resolver(resolver)
        .no_proxy()
        .redirect(Policy::none())
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("abide/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .build()
}

/// Parses the caller's URL.
fn parse_url(text: &str) -> Result<Url, FetchError> {
    let url = Url::parse(text).map_err(FetchError::from_parse_error)?;
    // The parser reads the path of `http:///path` as the host.
    let rest = text.split_once(':').map_or(text, |(_, rest)| rest);
    let is_without_host = rest.starts_with("///") && is_of_the_web(&url);
    if is_without_host { Err(FetchError::MissingHost) } else { Ok(url) }
}

fn is_of_the_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Checks a URL without resolving its name, and returns its host.
fn check_url(url: &Url) -> Result<Host<&str>, FetchError> {
    if !is_of_the_web(url) {
        return Err(FetchError::scheme(url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::failed("a URL with a user name or password"));
    }
    if url.as_str().len() > MAX_URL_BYTES {
        return Err(FetchError::failed(format!("a URL of more than {MAX_URL_BYTES} bytes")));
    }
    url.host().ok_or(FetchError::MissingHost)
}

/// The target of a redirect; `None` if the response is not a redirect.
fn redirect_target(from: &Url, response: &Response) -> Result<Option<Url>, FetchError> {
    let location = match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION),
        _ => None,
    };
    let join = |location: &HeaderValue| {
        from.join(&String::from_utf8_lossy(location.as_bytes()))
            .map_err(FetchError::from_parse_error)
    };
    location.map(join).transpose()
}

async fn read_page(url: Url, response: Response) -> Result<FetchedPage, FetchError> {
    let status = response.status().as_u16();
    if status >= 400 {
        return Err(FetchError::HttpError(status));
    }
    let kind = ContentType::from_headers(response.headers())?;
    let body = body::read(response).await?;
    let truncated = body.truncated;
    // Converting a megabyte of HTML takes tens of milliseconds, too long for a worker thread.
    let read = tokio::task::spawn_blocking(move || kind.text(&body));
    let text = read.await.map_err(|_| FetchError::failed("the page could not be read"))??;
    Ok(FetchedPage { url: url.into(), status, text, truncated })
}

#[cfg(test)]
mod tests;
