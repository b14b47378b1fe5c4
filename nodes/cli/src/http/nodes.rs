//! The addresses of the nodes, and the credential that goes to them.

use std::cell::Cell;

use reqwest::Url;
use url::Host;

use crate::context::Context;
use crate::error::CliError;
use crate::options::Options;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";
const DEFAULT_ADMIN_URL: &str = "http://127.0.0.1:9090";

/// Which API of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Public,
    Admin,
}

/// The nodes of one cluster.
#[derive(Debug)]
pub(crate) struct Nodes {
    public: Addresses,
    admin: Addresses,
}

#[derive(Debug)]
struct Addresses {
    urls: Vec<Url>,
    token: Option<String>,
    current: Cell<usize>,
}

impl Nodes {
    /// The options win over the context. The context's credential goes to the context's addresses only.
    pub(crate) fn new(options: &Options, context: Option<&Context>) -> Result<Self, CliError> {
        let stored = context.cloned().unwrap_or_default();
        let addresses = |given: &[String], stored_urls: &[String], default: &str, flag: &str| {
            let default = [default.to_owned()];
            let (texts, is_context) = match (given, stored_urls) {
                ([], []) => (default.as_slice(), context.is_some() && flag == "--admin-url"),
                ([], stored) => (stored, true),
                (given, _) => (given, false),
            };
            let token = options.token.clone().filter(|token| !token.is_empty());
            let token = token.or_else(|| stored.token.clone().filter(|_| is_context));
            check_token(token.as_deref())?;
            let urls: Result<Vec<Url>, CliError> =
                texts.iter().map(|text| address(text, flag)).collect();
            Ok::<_, CliError>(Addresses { urls: urls?, token, current: Cell::new(0) })
        };
        Ok(Self {
            public: addresses(&options.url, &stored.url, DEFAULT_URL, "--url")?,
            admin: addresses(
                &options.admin_url,
                &stored.admin_url,
                DEFAULT_ADMIN_URL,
                "--admin-url",
            )?,
        })
    }

    pub(super) fn count(&self, port: Port) -> usize {
        self.of(port).urls.len()
    }

    pub(super) fn current(&self, port: Port) -> (&Url, Option<&str>) {
        let addresses = self.of(port);
        let index = addresses.current.get() % addresses.urls.len();
        (&addresses.urls[index], addresses.token.as_deref())
    }

    pub(super) fn turn(&self, port: Port) {
        let addresses = self.of(port);
        addresses.current.set((addresses.current.get() + 1) % addresses.urls.len());
    }

    pub(super) fn are_loopback(&self) -> bool {
        let mut urls = self.public.urls.iter().chain(&self.admin.urls);
        urls.all(|url| match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        })
    }

    fn of(&self, port: Port) -> &Addresses {
        match port {
            Port::Public => &self.public,
            Port::Admin => &self.admin,
        }
    }
}

/// Reads an address; errors do not repeat it, since it may hold a password.
pub(crate) fn address(text: &str, flag: &str) -> Result<Url, CliError> {
    let wrong = |rule: &str| CliError::Usage(format!("{flag}: {rule}"));
    let text = text.trim();
    let rule = "must be an address such as http://127.0.0.1:8080";
    let url = Url::parse(text).map_err(|_| wrong(rule))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong(rule));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("must have no user and no password: give a token"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must have no query"));
    }
    Ok(url)
}

fn check_token(token: Option<&str>) -> Result<(), CliError> {
    let is_legal = |token: &str| token.chars().all(|c| c.is_ascii_graphic());
    if token.is_none_or(is_legal) {
        Ok(())
    } else {
        Err(CliError::Usage("--token: must be visible characters without spaces".to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn options(flags: &[&str]) -> Options {
        let command = Options::augment_args(Command::new("abide"));
        let arguments = ["abide"].iter().chain(flags);
        Options::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    fn context() -> Context {
        Context {
            url: vec!["http://127.0.0.1:1".to_owned()],
            admin_url: vec!["http://127.0.0.1:2".to_owned()],
            token: Some("stored".to_owned()),
        }
    }

    fn token(flags: &[&str], port: Port) -> Option<String> {
        let nodes = Nodes::new(&options(flags), Some(&context())).unwrap();
        nodes.current(port).1.map(str::to_owned)
    }

    #[test]
    fn the_credential_of_a_context_goes_to_its_own_addresses_only() {
        assert_eq!(token(&[], Port::Public).as_deref(), Some("stored"));
        assert_eq!(token(&[], Port::Admin).as_deref(), Some("stored"));
        let elsewhere = ["--url", "http://elsewhere:1"];
        assert_eq!(token(&elsewhere, Port::Public), None);
        assert_eq!(token(&elsewhere, Port::Admin).as_deref(), Some("stored"));
        assert_eq!(token(&["--admin-url", "http://elsewhere:1"], Port::Admin), None);
        let given = ["--url", "http://elsewhere:1", "--token", "given"];
        assert_eq!(token(&given, Port::Public).as_deref(), Some("given"));
    }

    #[test]
    fn one_node_after_the_other_is_asked() {
        let given = options(&["--url", "http://127.0.0.1:1,http://127.0.0.1:2"]);
        let nodes = Nodes::new(&given, None).unwrap();
        let port = || nodes.current(Port::Public).0.port();
        assert_eq!(port(), Some(1));
        nodes.turn(Port::Public);
        assert_eq!(port(), Some(2));
        nodes.turn(Port::Public);
        assert_eq!((port(), nodes.count(Port::Public)), (Some(1), 2));
        assert!(nodes.are_loopback());
    }

    #[test]
    fn an_address_that_is_none_is_refused_without_being_repeated() {
        for wrong in ["", "127.0.0.1:8080", "ftp://a", "http://u:secret@a", "http://a?secret=1"] {
            let error = address(wrong, "--url").unwrap_err().to_string();
            assert!(error.starts_with("--url: ") && !error.contains("secret"), "{wrong}: {error}");
        }
        let error = Nodes::new(&options(&["--token", "a b"]), None).unwrap_err();
        assert!(error.to_string().starts_with("--token: "));
    }
}
