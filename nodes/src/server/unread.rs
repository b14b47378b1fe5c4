//! What a handler leaves of the body of a request.
//!
//! A connection that is closed while bytes of it wait to be read is reset, and the reset may reach the
//! client before the answer that says why. So what is left is read and discarded for a moment. If that
//! may be all, the connection goes on; else the answer says that it ends (RFC 9112 §9.6).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::{CONNECTION, HeaderMap, HeaderValue};
use axum::http::{Request, header};
use bytes::Bytes;
use futures::future::poll_fn;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The longest rest after which a connection goes on: any body in JSON is shorter.
const MAX_REST_BYTES: u64 = 1 << 20;
/// How long a client may take to send a body of which such a rest is left: as long as a handler waits
/// for one.
const REST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an answer waits for the end of a rest of unknown length.
const END_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a client may take to read the answer while it sends on.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is read in that time.
const MAX_LINGER_BYTES: u64 = 64 << 20;

/// The body of a request. What its handler drops of it is for [`Unread`].
pub(super) struct RequestBody {
    /// None once the body has ended.
    incoming: Option<Incoming>,
    /// None if there is no body.
    left: Option<oneshot::Sender<Rest>>,
    /// Whether the client sends the body without being asked, or was asked.
    is_invited: bool,
    /// Until when the whole body is waited for.
    deadline: Instant,
}

impl RequestBody {
    /// The request, and what tells later how much of its body was left.
    pub(super) fn watch(request: Request<Incoming>) -> (Request<Self>, Unread) {
        let deadline = Instant::now() + REST_TIMEOUT;
        if request.body().is_end_stream() {
            let empty = |_| Self { incoming: None, left: None, is_invited: true, deadline };
            return (request.map(empty), Unread(None));
        }
        let (left, unread) = oneshot::channel();
        let is_invited = !request.headers().contains_key(header::EXPECT);
        let body =
            |incoming| Self { incoming: Some(incoming), left: Some(left), is_invited, deadline };
        (request.map(body), Unread(Some(unread)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_invited = true;
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(incoming).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.incoming = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(incoming), Some(left)) = (self.incoming.take(), self.left.take()) else { return };
        if incoming.is_end_stream() {
            return;
        }
        let (is_invited, deadline) = (self.is_invited, self.deadline);
        let left = left.send(Rest { incoming, is_invited, deadline });
        // The answer did not wait for the handler to drop the body.
        if let (Err(rest), Ok(runtime)) = (left, Handle::try_current()) {
            drop(runtime.spawn(rest.discard(MAX_LINGER_BYTES, LINGER_TIMEOUT)));
        }
    }
}

/// What is left of the body once its handler has answered.
pub(super) struct Unread(Option<oneshot::Receiver<Rest>>);

impl Unread {
    /// Has what is left be read, and says in the answer if the connection ends with it.
    pub(super) async fn settle(self, answer: &mut HeaderMap) {
        let Some(mut left) = self.0 else { return };
        // Whoever drops the body from now on deals with the rest.
        left.close();
        if let Ok(rest) = left.try_recv()
            && !rest.ends_soon().await
        {
            answer.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// The rest of a body, which nobody wants.
struct Rest {
    incoming: Incoming,
    is_invited: bool,
    deadline: Instant,
}

impl Rest {
    /// Whether the connection goes on after the rest, which is read and discarded.
    async fn ends_soon(mut self) -> bool {
        let time_left = self.deadline.saturating_duration_since(Instant::now());
        let goes_on = match self.incoming.size_hint().exact() {
            // The client may wait for an invitation, which the answer rules out; or it has stalled.
            _ if !self.is_invited || time_left.is_zero() => false,
            Some(bytes) => bytes <= MAX_REST_BYTES,
            None => {
                let end = self.read_on(MAX_REST_BYTES);
                tokio::time::timeout(END_TIMEOUT, end).await.unwrap_or(false)
            }
        };
        let (bytes, timeout) =
            if goes_on { (MAX_REST_BYTES, time_left) } else { (MAX_LINGER_BYTES, LINGER_TIMEOUT) };
        drop(tokio::spawn(self.discard(bytes, timeout)));
        goes_on
    }

    /// Reads on within these bounds; dropping the rest then ends the connection.
    async fn discard(mut self, max_bytes: u64, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.read_on(max_bytes)).await;
    }

    /// Reads on, and says whether that was all.
    async fn read_on(&mut self, max_bytes: u64) -> bool {
        let mut left = max_bytes;
        loop {
            let frame = match poll_fn(|cx| Pin::new(&mut self.incoming).poll_frame(cx)).await {
                Some(Ok(frame)) => frame,
                None => return true,
                Some(Err(_)) => return false,
            };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX)) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::Router;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::super::{Listener, serve};

    /// Fails a test that waits in vain.
    const DEADLINE: std::time::Duration = std::time::Duration::from_secs(20);

    /// A client of a server that refuses everything without reading it.
    struct Client {
        stream: TcpStream,
        _stop: watch::Sender<bool>,
    }

    impl Client {
        async fn connect() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = watch::channel(false);
            let router = Router::new().fallback(async || "refused");
            drop(tokio::spawn(serve(Listener::Tcp(listener), router, stopped)));
            Self { stream: TcpStream::connect(address).await.unwrap(), _stop: stop }
        }

        async fn send(&mut self, bytes: &[u8]) {
            let sent = tokio::time::timeout(DEADLINE, self.stream.write_all(bytes));
            sent.await.unwrap().unwrap();
        }

        /// One answer, and no byte of what follows.
        async fn answer(&mut self) -> String {
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\nrefused") {
                let byte = tokio::time::timeout(DEADLINE, self.stream.read_u8()).await.unwrap();
                answer.push(byte.unwrap_or_else(|error| panic!("{error} after {answer:?}")));
            }
            String::from_utf8(answer).unwrap()
        }

        /// Waits until the server has closed the connection, in order.
        async fn end(&mut self) {
            let mut rest = Vec::new();
            let end = tokio::time::timeout(DEADLINE, self.stream.read_to_end(&mut rest));
            assert_eq!(end.await.unwrap().unwrap(), 0);
        }
    }

    fn head(header: &str) -> Vec<u8> {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n").into_bytes()
    }

    fn says_close(answer: &str) -> bool {
        answer.contains("\r\nconnection: close\r\n")
    }

    #[tokio::test]
    async fn a_connection_goes_on_after_a_short_body_that_nobody_read() {
        let mut client = Client::connect().await;
        for _ in 0..3 {
            client.send(&head("Content-Length: 900000")).await;
            // The answer is there before the body.
            let answer = client.answer().await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && !says_close(&answer), "{answer}");
            client.send(&vec![b'x'; 900_000]).await;
        }
    }

    #[tokio::test]
    async fn a_connection_goes_on_after_a_body_without_a_length_that_ends() {
        let mut client = Client::connect().await;
        let mut request = head("Transfer-Encoding: chunked");
        request.extend(b"5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n");
        for _ in 0..3 {
            client.send(&request).await;
            let answer = client.answer().await;
            assert!(!says_close(&answer), "{answer}");
        }
    }

    #[tokio::test]
    async fn the_answer_to_a_long_body_says_that_the_connection_ends_and_arrives() {
        let mut client = Client::connect().await;
        client.send(&head("Content-Length: 3000000")).await;
        client.send(&vec![b'x'; 3_000_000]).await;
        let answer = client.answer().await;
        assert!(says_close(&answer), "{answer}");
        client.end().await;
    }

    #[tokio::test]
    async fn a_connection_ends_after_a_body_that_does_not_end_or_was_not_invited() {
        for header in ["Transfer-Encoding: chunked", "Expect: 100-continue\r\nContent-Length: 9"] {
            let mut client = Client::connect().await;
            client.send(&head(header)).await;
            let answer = client.answer().await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && says_close(&answer), "{answer}");
            client.end().await;
        }
    }
}
