//! Accepts connections, with bounds on their number, their headers, and the time in which the headers
//! must arrive.

mod listener;
mod refusals;
mod unread;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use listener::Connection;
pub(crate) use listener::{Listener, UnixSocket};
use refusals::{Progress, Refusing, TrackedBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use unread::RequestBody;

/// Each open connection costs a file descriptor and some kilobytes.
const MAX_CONNECTIONS: usize = 16_384;
/// How long a client may take to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The buffer for the head of a request; larger than what the API admits, so that the API refuses it.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long open connections have to finish once the server stops; event streams are then cut.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves until `stop` turns true.
pub(crate) async fn serve(listener: Listener, router: Router, stop: watch::Receiver<bool>) {
    serve_at_most(MAX_CONNECTIONS, listener, router, stop).await;
}

async fn serve_at_most(
    max_connections: usize,
    listener: Listener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(max_connections));
    let open = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&permits, &listener) => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (permit, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                // Most likely out of file descriptors: wait until some are freed.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (service, progress) = (TowerToHyperService::new(router.clone()), Progress::default());
        let stream = Refusing::new(stream, progress.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            progress.begin();
            let (request, unread) = RequestBody::watch(request);
            let (answer, progress) = (service.call(request), progress.clone());
            async move {
                let Ok(mut answer) = answer.await;
                unread.settle(answer.headers_mut()).await;
                Ok::<_, Infallible>(answer.map(|body| TrackedBody::new(body, progress)))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection failed");
            }
            drop(permit);
        });
    }
    // Event streams never finish on their own.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, open.shutdown()).await;
    connections.shutdown().await;
}

/// The next connection, once a permit is free for it.
async fn accept(
    permits: &Arc<Semaphore>,
    listener: &Listener,
) -> io::Result<(OwnedSemaphorePermit, Connection)> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    Ok((permit, listener.accept().await?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_server_whose_permits_are_all_taken_stops() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let server =
            tokio::spawn(serve_at_most(1, Listener::Tcp(listener), Router::new(), stopped));
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut status = [0; 12];
        first.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 404");
        stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    }

    /// A server whose only answer looks like one of hyper's refusals.
    async fn answer_to(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        let _server = tokio::spawn(serve(
            Listener::Tcp(listener),
            Router::new().fallback(async || REFUSAL),
            stopped,
        ));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_secs(5), read).await.unwrap().unwrap();
        answer
    }

    const REFUSAL: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

    #[tokio::test]
    async fn what_is_no_http_gets_a_problem_and_an_answer_is_left_alone() {
        let good = "GET / HTTP/1.1\r\nHost: a\r\n";
        let after = format!("{good}\r\nnonsense\r\n\r\n");
        for request in [
            "nonsense\r\n\r\n",
            "GET / HTTP/7.0\r\n\r\n",
            "GET / HTTP/1.1\r\na b: c\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: one\r\n\r\n",
        ] {
            let answer = answer_to(request.as_bytes()).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
            assert!(head.contains("content-type: application/problem+json"), "{answer}");
            assert!(head.ends_with(&format!("content-length: {}", body.len())), "{answer}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["type"], "/problems/invalid-request");
        }
        let answer = answer_to(format!("{good}Connection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(REFUSAL), "{answer}");
        let answers = answer_to(after.as_bytes()).await;
        assert!(answers.starts_with("HTTP/1.1 200 "), "{answers}");
    }
}
