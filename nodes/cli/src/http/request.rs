//! One request, and what may be done when no answer comes.

use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::Value;
use uuid::Uuid;

use super::Port;
use crate::error::CliError;

/// A request to whichever node answers.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) method: Method,
    pub(super) port: Port,
    segments: Vec<String>,
    query: Vec<(String, String)>,
    pub(super) body: Option<Value>,
    pub(super) key: Option<String>,
    /// How long the node holds the answer back.
    pub(super) wait: Duration,
    /// How long the request is repeated while nodes are away that were there.
    pub(super) patience: Duration,
    is_once: bool,
}

impl Request {
    /// Reads; `path` has the fixed and the given parts of the path.
    pub(crate) fn get(port: Port, path: &[&str]) -> Self {
        Self::new(Method::GET, port, path)
    }

    /// Changes something, once: all attempts have one key.
    pub(crate) fn change(method: Method, port: Port, path: &[&str]) -> Self {
        let key = Some(Uuid::new_v4().to_string());
        Self { key, ..Self::new(method, port, path) }
    }

    /// Changes something that takes no key, and is therefore never sent twice.
    pub(crate) fn once(method: Method, port: Port, path: &[&str]) -> Self {
        Self { is_once: true, ..Self::new(method, port, path) }
    }

    /// Changes something that a member of its body makes safe to repeat.
    pub(crate) fn repeatable(method: Method, port: Port, path: &[&str]) -> Self {
        Self::new(method, port, path)
    }

    fn new(method: Method, port: Port, path: &[&str]) -> Self {
        let segments = path.iter().map(|segment| segment.to_string()).collect();
        let (query, zero) = (Vec::new(), Duration::ZERO);
        let (body, key) = (None, None);
        let (wait, patience) = (zero, zero);
        Self { method, port, segments, query, body, key, wait, patience, is_once: false }
    }

    pub(crate) fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Adds a parameter if there is a value.
    pub(crate) fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name.to_owned(), value.to_string())));
        self
    }

    /// Has the node hold the answer back until the turn ends or rests.
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        if wait.is_zero() {
            return self;
        }
        self.wait = wait;
        self.with("wait", Some(format!("{}ms", wait.as_millis().max(1))))
    }

    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(super) fn is_repeatable(&self) -> bool {
        !self.is_once
    }

    pub(super) fn url(&self, node: &Url) -> Result<Url, CliError> {
        let mut url = node.clone();
        {
            let mut path = url
                .path_segments_mut()
                .map_err(|()| CliError::Usage(format!("{node}: is no address of a node")))?;
            path.pop_if_empty();
            for segment in &self.segments {
                // A URL has no such names: what stands before them would be meant.
                if matches!(segment.as_str(), "" | "." | "..") {
                    return Err(CliError::Usage(format!("{segment:?} is no id")));
                }
                path.push(segment);
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }

    pub(super) fn shown_body(&self) -> String {
        self.body.as_ref().map(Value::to_string).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn url(path: &[&str]) -> Result<String, CliError> {
        let node = Url::parse("http://127.0.0.1:8080/base/").unwrap();
        let request = Request::get(Port::Public, path).with("limit", Some(3)).with("x", None::<u8>);
        request.url(&node).map(Into::into)
    }

    #[test]
    fn what_is_given_stays_one_segment_of_the_path() {
        let base = "http://127.0.0.1:8080/base/v1/conversations";
        let made = |id| url(&["v1", "conversations", id]).unwrap();
        assert_eq!(made("c"), format!("{base}/c?limit=3"));
        assert_eq!(made("acme/c?x#y"), format!("{base}/acme%2Fc%3Fx%23y?limit=3"));
        for id in ["", ".", ".."] {
            assert!(url(&["v1", "conversations", id]).is_err(), "{id:?}");
        }
    }

    #[test]
    fn only_a_request_without_a_key_that_changes_something_is_sent_once() {
        assert!(Request::get(Port::Public, &["v1"]).is_repeatable());
        assert!(Request::change(Method::POST, Port::Public, &["v1"]).is_repeatable());
        assert!(!Request::once(Method::POST, Port::Public, &["v1"]).is_repeatable());
    }
}
