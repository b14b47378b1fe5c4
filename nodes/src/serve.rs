//! Accepts connections: bounded in number, in headers, and in the time that they may take to say
//! what they want.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// How many connections may be open; each costs a descriptor and some kilobytes.
const CONNECTIONS: usize = 16_384;
/// How long a client may take to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The buffer that a request's head must fit into; a little over what the API admits.
const HEAD_BYTES: usize = 64 << 10;
/// How long open connections may finish once the server stops; streams are cut then.
const GRACE: Duration = Duration::from_millis(500);

/// Serves until `stop` turns true.
pub(crate) async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let open = GracefulShutdown::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
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
