//! Sends bytes that are no JSON document, once.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::Value;

use super::{Answer, Http, Request, reason};
use crate::error::CliError;

/// How long a large body and its answer may take.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(900);

impl Http {
    /// Sends these bytes to one node, and returns the body of its answer.
    pub(crate) async fn upload(
        &self,
        request: &Request,
        media_type: &str,
        bytes: Vec<u8>,
    ) -> Result<Value, CliError> {
        let (node, token) = self.nodes.current(request.port);
        let url = request.url(node)?;
        self.tell(|| format!("> {} {url} ({} bytes)", request.method, bytes.len()));
        let mut builder = self.client.request(request.method.clone(), url);
        builder = builder.timeout(UPLOAD_TIMEOUT).header(CONTENT_TYPE, media_type).body(bytes);
        if let Some(token) = token {
            builder = builder.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let away = |why: String| CliError::Away(format!("{node}: {why}"));
        let response = builder.send().await.map_err(|error| away(reason(&error)))?;
        let answer = Answer::read(response).await.map_err(away)?;
        answer.accepted().map(|answer| answer.body)
    }
}
