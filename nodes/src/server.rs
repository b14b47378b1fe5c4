//! Accepts connections, with bounds on their number, their headers, and the time in which the headers
//! must arrive.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// Each open connection costs a file descriptor and some kilobytes.
const MAX_CONNECTIONS: usize = 16_384;
/// How long a client may take to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The buffer for the head of a request; larger than what the API admits, so that the API refuses it.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long open connections have to finish once the server stops; event streams are then cut.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves until `stop` turns true.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: watch::Receiver<bool>) {
    serve_at_most(MAX_CONNECTIONS, listener, router, stop).await;
}

async fn serve_at_most(
    max_connections: usize,
    listener: TcpListener,
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
        // Small frames must not wait for one another.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
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
    listener: &TcpListener,
) -> io::Result<(OwnedSemaphorePermit, TcpStream)> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((permit, stream))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_server_whose_permits_are_all_taken_stops() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve_at_most(1, listener, Router::new(), stopped));
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut status = [0; 12];
        first.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 404");
        stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    }
}
