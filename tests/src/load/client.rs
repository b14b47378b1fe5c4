//! A worker's HTTP client: one connection that is kept alive, one request at a time.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpSocket;

use super::{LoadError, load_error};

/// How long an answer may take; a node under load answers in milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// More than any answer to the load program has.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// A client of one node.
pub(super) struct Client {
    address: SocketAddr,
    connection: Option<SendRequest<Body>>,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// Sends a request and reads the whole answer. An answer that is not JSON is returned as a
    /// string.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Value), LoadError> {
        let request = self.request(method, path, body)?;
        let exchange = async {
            let mut connection = match self.connection.take().filter(|open| !open.is_closed()) {
                Some(open) => open,
                None => connect(self.address).await?,
            };
            connection.ready().await.map_err(|error| load_error(path, error))?;
            let answer = connection.send_request(request).await;
            let answer = answer.map_err(|error| load_error(path, error))?;
            let status = answer.status();
            let bytes = axum::body::to_bytes(Body::new(answer.into_body()), MAX_ANSWER_BYTES).await;
            let bytes = bytes.map_err(|error| load_error(path, error))?;
            self.connection = Some(connection);
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            Ok((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text())))
        };
        let exchange = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        exchange.map_err(|_| LoadError(format!("{path}: no answer within {ANSWER_TIMEOUT:?}")))?
    }

    /// Sends a request that must succeed, and discards the answer.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<(), LoadError> {
        match self.ask(method, path, Some(body)).await? {
            (status, _) if status.is_success() => Ok(()),
            (status, answer) => Err(LoadError(format!("{path}: {status} {answer}"))),
        }
    }

    /// Defines an agent.
    pub(super) async fn define(&mut self, name: &str, definition: Value) -> Result<(), LoadError> {
        self.send(Method::PUT, &format!("/v1/agents/{name}"), definition).await
    }

    /// Opens a new connection for an answer that does not end.
    pub(super) async fn open(&self, path: &str) -> Result<Body, LoadError> {
        let request = self.request(Method::GET, path, None)?;
        let opened = async {
            let mut connection = connect(self.address).await?;
            let answer = connection.send_request(request).await;
            let answer: Response<_> = answer.map_err(|error| load_error(path, error))?;
            match answer.status() {
                StatusCode::OK => Ok(Body::new(answer.into_body())),
                status => Err(LoadError(format!("{path}: {status}"))),
            }
        };
        let opened = tokio::time::timeout(ANSWER_TIMEOUT, opened).await;
        opened.map_err(|_| LoadError(format!("{path}: no answer within {ANSWER_TIMEOUT:?}")))?
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Request<Body>, LoadError> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, self.address.to_string());
        let request = match body {
            Some(body) => request
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        request.map_err(|error| load_error(path, error))
    }
}

/// Connects. Connections end with a reset: otherwise thousands of closed streams would hold all
/// ports for a minute.
async fn connect(address: SocketAddr) -> Result<SendRequest<Body>, LoadError> {
    let failed = |error: std::io::Error| load_error(&format!("connecting to {address}"), error);
    let socket = TcpSocket::new_v4().map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    socket.set_zero_linger().map_err(failed)?;
    let socket = TokioIo::new(socket.connect(address).await.map_err(failed)?);
    let (sender, connection) =
        handshake(socket).await.map_err(|error| load_error("http", error))?;
    tokio::spawn(async move {
        // The error, if any, also reaches the request that waits for an answer.
        let _ = connection.await;
    });
    Ok(sender)
}
