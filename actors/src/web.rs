//! Fetches from the public web, and from nowhere else.

mod address;
mod body;
mod failure;
mod host;
mod kind;
mod names;
mod text;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::Resolve;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use url::{Host, Url};

pub use failure::FetchError;
use kind::ContentType;
use names::{CheckedResolver, System};

/// Browsers follow 20; a page that moves more often than this is a trap or a maze.
const MOST_REDIRECTS: usize = 5;
/// The addresses of a name share it, so that a dead one leaves time for the next.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Servers take about this much; a page's address is also journalled.
const LONGEST_URL: usize = 8_192;
const ACCEPTED: &str = "text/html, application/json, text/*;q=0.9, */*;q=0.1";

/// A page that was read to its end, or to the bound.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedPage {
    /// Where it was in the end, after all redirects.
    pub url: String,
    pub status: u16,
    /// The body; HTML as readable text, anything else as it is.
    pub text: String,
    /// Whether the body went on after what was read of it.
    pub truncated: bool,
}

/// Says which addresses anyone may reach.
type Rule = fn(IpAddr) -> bool;

/// Fetches pages for all agents of a node.
///
/// A name is resolved once for each connection, and the connection goes to one of the addresses
/// that were judged. No proxy is used, no connection outlives its page, and nothing (no cookie, no
/// credential, no referrer) is carried from one page to the next.
#[derive(Debug)]
pub struct Fetcher {
    is_public: Rule,
    /// Reaches public addresses only; refuses a name that has any other.
    public: Client,
    /// For hosts that the agent allows, whatever their addresses are.
    allowed: Client,
}

impl Fetcher {
    /// One that asks the system for the addresses of names.
    pub fn new() -> Result<Self, reqwest::Error> {
        Self::with(Arc::new(System::new()), address::is_public)
    }

    fn with(names: Arc<dyn Resolve>, is_public: Rule) -> Result<Self, reqwest::Error> {
        let judged = CheckedResolver { names: Arc::clone(&names), is_public };
        Ok(Self { is_public, public: client(Arc::new(judged))?, allowed: client(names)? })
    }

    /// Gets the page at this URL, following redirects, all of it within the time given.
    ///
    /// `allowed_hosts` (`host` or `host:port`) may be reached whatever their addresses are; a
    /// redirect from one of them to another private host is refused like any other. Work that is
    /// dropped ends soon. A URL with a user's name or password is refused.
    pub async fn fetch(
        &self,
        url: &str,
        allowed_hosts: &[String],
        within: Duration,
    ) -> Result<FetchedPage, FetchError> {
        let url = given(url)?;
        let late = |_| FetchError::failed(format!("timed out after {} ms", within.as_millis()));
        tokio::time::timeout(within, self.follow(url, allowed_hosts)).await.map_err(late)?
    }

    async fn follow(
        &self,
        mut url: Url,
        allowed_hosts: &[String],
    ) -> Result<FetchedPage, FetchError> {
        for _ in 0..=MOST_REDIRECTS {
            let response = self.get(&url, allowed_hosts).await?;
            match moved(&url, &response)? {
                Some(elsewhere) => url = elsewhere,
                None => return page(url, response).await,
            }
        }
        Err(FetchError::TooManyRedirects)
    }

    /// One request, to a host that is judged here, where a redirect comes by as well.
    async fn get(&self, url: &Url, allowed_hosts: &[String]) -> Result<Response, FetchError> {
        let host = checked(url)?;
        let is_allowed = allowed_hosts.iter().any(|entry| host::names(entry, url));
        let client = match host {
            _ if is_allowed => &self.allowed,
            // The resolver, which judges for this client, is never asked about an address.
            Host::Ipv4(address) if !(self.is_public)(address.into()) => {
                return Err(FetchError::blocked(&host));
            }
            Host::Ipv6(address) if !(self.is_public)(address.into()) => {
                return Err(FetchError::blocked(&host));
            }
            _ => &self.public,
        };
        let sent = client.get(url.clone()).send().await;
        sent.map_err(|error| FetchError::of_transport(&error, &host))
    }
}

fn client(names: Arc<dyn Resolve>) -> Result<Client, reqwest::Error> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(body::ENCODING));
    Client::builder()
        .dns_resolver(names)
        .no_proxy()
        .redirect(Policy::none())
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT_LIMIT)
        .user_agent(concat!("abide/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .build()
}

/// Reads the URL that the caller gave.
fn given(text: &str) -> Result<Url, FetchError> {
    let url = Url::parse(text).map_err(FetchError::of_url)?;
    // The parser takes the path of `http:///path` for its host.
    let rest = text.split_once(':').map_or(text, |(_, rest)| rest);
    let is_without_host = rest.starts_with("///") && is_of_the_web(&url);
    if is_without_host { Err(FetchError::MissingHost) } else { Ok(url) }
}

fn is_of_the_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// The host of a URL that may be asked for, as far as its text tells.
fn checked(url: &Url) -> Result<Host<&str>, FetchError> {
    if !is_of_the_web(url) {
        return Err(FetchError::scheme(url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::failed("a URL with a user's name or password"));
    }
    if url.as_str().len() > LONGEST_URL {
        return Err(FetchError::failed(format!("a URL of more than {LONGEST_URL} bytes")));
    }
    url.host().ok_or(FetchError::MissingHost)
}

/// Where a redirect leads; `None` if the answer is none.
fn moved(from: &Url, response: &Response) -> Result<Option<Url>, FetchError> {
    let location = match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION),
        _ => None,
    };
    let join = |location: &HeaderValue| {
        from.join(&String::from_utf8_lossy(location.as_bytes())).map_err(FetchError::of_url)
    };
    location.map(join).transpose()
}

async fn page(url: Url, response: Response) -> Result<FetchedPage, FetchError> {
    let status = response.status().as_u16();
    if status >= 400 {
        return Err(FetchError::HttpError(status));
    }
    let kind = ContentType::of(response.headers())?;
    let body = body::read(response).await?;
    let truncated = body.truncated;
    // Text out of a megabyte of HTML takes tens of milliseconds, too long for a thread that others
    // wait for.
    let read = tokio::task::spawn_blocking(move || kind.text(&body));
    let text = read.await.map_err(|_| FetchError::failed("the page could not be read"))??;
    Ok(FetchedPage { url: url.into(), status, text, truncated })
}

#[cfg(test)]
mod tests;
