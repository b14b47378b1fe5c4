//! Accepts connections: bounded in number, in headers, and in the time that they may take to say
//! what they want.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many connections may be open; each costs a descriptor and some kilobytes.
const CONNECTIONS: usize = 16_384;
/// How long a client may take to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The buffer that a request's head must fit into; a little over what the API admits.
const HEAD_BYTES: usize = 64 << 10;
/// How long open connections may finish once the server stops; streams are cut then.
const GRACE: Duration = Duration::from_millis(500);

/// Serves until `stop` turns true.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: watch::Receiver<bool>) {
    serve_at_most(CONNECTIONS, listener, router, stop).await;
}

async fn serve_at_most(
    connections: usize,
    listener: TcpListener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(connections));
    let open = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&places, &listener) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (place, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of descriptors, most likely: let some go first.
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
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
    // Event streams never finish by themselves.
    let _ = tokio::time::timeout(GRACE, open.shutdown()).await;
}

/// The next connection, once there is a place for it.
async fn accept(
    places: &Arc<Semaphore>,
    listener: &TcpListener,
) -> io::Result<(OwnedSemaphorePermit, TcpStream)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((place, stream))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_server_whose_places_are_all_taken_stops() {
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
