//! The fetcher against real servers on the loopback interface.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt;
use reqwest::dns::{Addrs, Name, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::body::MAX_PAGE_BYTES;
use super::*;

const ANY: &Outbound = &Outbound::Unbound;

/// Longer than anything here takes; only a test of a timeout may reach it.
const LONG_TIMEOUT: Duration = Duration::from_secs(30);
/// Counts as a private address in tests with a rule of their own.
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Serves each connection with `answer`, then closes it.
async fn server<F>(answer: impl Fn(String, TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => break,
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            // The task ends with the connection, when the client has what it wants.
            tokio::spawn(answer(request, stream));
        }
    });
    address
}

/// Serves these bytes to every request.
async fn serving(bytes: impl Into<Vec<u8>>) -> SocketAddr {
    let bytes = Arc::new(bytes.into());
    let answer = move |_, mut stream: TcpStream| {
        let bytes = Arc::clone(&bytes);
        async move { stream.write_all(&bytes).await }
    };
    server(answer).await
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{headers}\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn redirect(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

fn allowing(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

async fn fetch(url: &str) -> Result<FetchedPage, FetchError> {
    let allowed = allowing(&["127.0.0.1"]);
    Fetcher::new().unwrap().fetch(url, &allowed, ANY, LONG_TIMEOUT).await
}

async fn fetch_at(address: SocketAddr) -> Result<FetchedPage, FetchError> {
    fetch(&format!("http://{address}/")).await
}

async fn text_of(headers: &str, body: &[u8]) -> Result<String, FetchError> {
    fetch_at(serving(answer(headers, body)).await).await.map(|page| page.text)
}

/// A resolver that returns these answers in turn, and then fails.
struct Given(Mutex<VecDeque<Vec<IpAddr>>>);

impl Resolve for Given {
    fn resolve(&self, _: Name) -> Resolving {
        let answer = self.0.lock().unwrap().pop_front();
        Box::pin(async move {
            let addresses = answer.ok_or("asked too often")?;
            Ok(Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

fn names(answers: &[&str]) -> Arc<Given> {
    let parse = |answer: &&str| answer.split(' ').map(|ip| ip.parse().unwrap()).collect();
    Arc::new(Given(Mutex::new(answers.iter().map(parse).collect())))
}

/// A fetcher whose resolver returns these answers in turn.
fn fetcher(answers: &[&str]) -> Fetcher {
    Fetcher::with_resolver(names(answers), public_address::is_public).unwrap()
}

#[tokio::test]
async fn a_page_comes_with_its_final_url() {
    let answers = |request: String, mut stream: TcpStream| async move {
        let bytes = match request.split(' ').nth(1).unwrap() {
            "/a/old?x" => redirect("../new"),
            _ => answer("content-type: application/json\r\n", br#"{"a": 1}"#),
        };
        stream.write_all(&bytes).await
    };
    let address = server(answers).await;
    let page = fetch(&format!("http://{address}/a/old?x")).await.unwrap();
    let url = format!("http://{address}/new");
    let expected =
        FetchedPage { url, status: 200, text: r#"{"a": 1}"#.to_owned(), truncated: false };
    assert_eq!(page, expected);
}

#[tokio::test]
async fn a_refused_address_is_refused_however_it_is_written() {
    let fetcher = fetcher(&[]);
    for (url, host) in [
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0177.0.0.01:8080/", "127.0.0.1"),
        ("http://127.1./", "127.0.0.1"),
        ("http://①②⑦.0.0.1/", "127.0.0.1"),
        ("http://0/", "0.0.0.0"),
        ("https://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ("http://[::1]/", "[::1]"),
        ("http://[::ffff:10.0.0.1]/", "[::ffff:a00:1]"),
        ("http://[64:ff9b::7f00:1]/", "[64:ff9b::7f00:1]"),
        ("http://[fd00:ec2::254]/", "[fd00:ec2::254]"),
    ] {
        let fetched = fetcher.fetch(url, &[], ANY, LONG_TIMEOUT).await;
        assert_eq!(fetched, Err(FetchError::BlockedHost(host.to_owned())), "{url}");
    }
}

#[tokio::test]
async fn a_name_with_any_refused_address_is_refused() {
    for addresses in ["127.0.0.1", "8.8.8.8 10.0.0.1", "10.0.0.1 8.8.8.8", "2606:4700::1 ::1"] {
        let fetched =
            fetcher(&[addresses]).fetch("http://Mixed.example/", &[], ANY, LONG_TIMEOUT).await;
        let expected = FetchError::BlockedHost("mixed.example".to_owned());
        assert_eq!(fetched, Err(expected), "{addresses}");
    }
    let fetched =
        Fetcher::new().unwrap().fetch("http://localhost:1/", &[], ANY, LONG_TIMEOUT).await;
    assert_eq!(fetched, Err(FetchError::BlockedHost("localhost".to_owned())));
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_connected_to() {
    let public = serving(answer("", b"public")).await;
    let private = TcpListener::bind(("127.0.0.2", public.port())).await.unwrap();
    let url = format!("http://rebinding.example:{}/", public.port());
    let (names, is_public) = (names(&["127.0.0.1", "127.0.0.2"]), |ip| ip != PRIVATE);
    let fetcher = Fetcher::with_resolver(names.clone(), is_public).unwrap();
    assert_eq!(fetcher.fetch(&url, &[], ANY, LONG_TIMEOUT).await.unwrap().text, "public");
    assert_eq!(names.0.lock().unwrap().len(), 1, "the second answer was asked for");
    // The next page resolves the name again and does not reuse the connection.
    let fetched = fetcher.fetch(&url, &[], ANY, LONG_TIMEOUT).await;
    assert_eq!(fetched, Err(FetchError::BlockedHost("rebinding.example".to_owned())));
    assert!(private.accept().now_or_never().is_none());
}

#[tokio::test]
async fn a_redirect_to_the_same_name_is_checked_again() {
    let from = serving(redirect("/inner")).await;
    let url = format!("http://rebinding.example:{}/", from.port());
    let names = names(&["127.0.0.1", "127.0.0.2"]);
    let fetcher = Fetcher::with_resolver(names, |ip| ip != PRIVATE).unwrap();
    let fetched = fetcher.fetch(&url, &[], ANY, LONG_TIMEOUT).await;
    assert_eq!(fetched, Err(FetchError::BlockedHost("rebinding.example".to_owned())));
}

#[tokio::test]
async fn an_allowed_host_is_reached_and_no_other_from_it() {
    let secret = serving(answer("", b"secret")).await;
    let to = format!("http://127.0.0.2:{}/", secret.port());
    let from = serving(redirect(&to)).await;
    let fetched = fetch_at(from).await;
    assert_eq!(fetched, Err(FetchError::BlockedHost("127.0.0.2".to_owned())));

    let fetcher = fetcher(&["127.0.0.1", "127.0.0.1", "127.0.0.1"]);
    let url = format!("http://docs.internal:{}/", secret.port());
    let allowed = allowing(&[&format!("docs.internal:{}", secret.port())]);
    assert_eq!(fetcher.fetch(&url, &allowed, ANY, LONG_TIMEOUT).await.unwrap().text, "secret");
    let other_port = allowing(&["docs.internal:1"]);
    let fetched = fetcher.fetch(&url, &other_port, ANY, LONG_TIMEOUT).await;
    assert_eq!(fetched, Err(FetchError::BlockedHost("docs.internal".to_owned())));
}

#[tokio::test]
async fn a_redirect_to_a_name_is_checked_by_its_addresses() {
    let from = serving(redirect("http://inner.example/")).await;
    let fetcher = fetcher(&["10.0.0.1"]);
    let url = format!("http://{from}/");
    let fetched = fetcher.fetch(&url, &allowing(&["127.0.0.1"]), ANY, LONG_TIMEOUT).await;
    assert_eq!(fetched, Err(FetchError::BlockedHost("inner.example".to_owned())));
}

#[tokio::test]
async fn a_redirect_leads_to_the_web_only() {
    for (location, expected) in [
        ("file:///etc/passwd", FetchError::InvalidScheme("file".to_owned())),
        ("ftp://127.0.0.1/", FetchError::InvalidScheme("ftp".to_owned())),
        ("http://", FetchError::MissingHost),
        ("http://a:b@127.0.0.1/", FetchError::failed("a URL with a user name or password")),
    ] {
        assert_eq!(fetch_at(serving(redirect(location)).await).await, Err(expected), "{location}");
    }
}

#[tokio::test]
async fn the_fifth_redirect_is_followed_and_the_sixth_is_not() {
    let answers = |request: String, mut stream: TcpStream| async move {
        let left: usize = request.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        let bytes = match left {
            0 => answer("", b"there"),
            left => redirect(&format!("/{}", left - 1)),
        };
        stream.write_all(&bytes).await
    };
    let address = server(answers).await;
    assert_eq!(fetch(&format!("http://{address}/5")).await.unwrap().text, "there");
    let fetched = fetch(&format!("http://{address}/6")).await;
    assert_eq!(fetched, Err(FetchError::TooManyRedirects));
}

#[tokio::test]
async fn an_invalid_web_url_is_refused() {
    for (url, expected) in [
        ("ftp://example.com/", "invalid_scheme: ftp"),
        ("file:///etc/passwd", "invalid_scheme: file"),
        ("example.com/page", "invalid_scheme"),
        ("http://", "missing_host"),
        ("http:///path", "missing_host"),
        ("https://:80/", "missing_host"),
        ("http://[fe80::1%25eth0]/", "fetch_failed: not a URL: invalid IPv6 address"),
        ("http://example.com:99999/", "fetch_failed: not a URL: invalid port number"),
        ("http://me:secret@127.0.0.1/", "fetch_failed: a URL with a user name or password"),
        (
            &format!("http://127.0.0.1/{}", "x".repeat(9_000)),
            "fetch_failed: a URL of more than 8192 bytes",
        ),
    ] {
        assert_eq!(fetch(url).await.unwrap_err().to_string(), expected, "{url}");
    }
}

#[tokio::test]
async fn nothing_is_revealed_to_the_next_server() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&received);
    let answers = move |request: String, mut stream: TcpStream| {
        seen.lock().unwrap().push(request.to_ascii_lowercase());
        let bytes = if request.starts_with("GET /first ") {
            b"HTTP/1.1 302 Found\r\nset-cookie: a=b\r\nlocation: /next\r\n\r\n".to_vec()
        } else {
            answer("", b"")
        };
        async move { stream.write_all(&bytes).await }
    };
    let address = server(answers).await;
    fetch(&format!("http://{address}/first#part")).await.unwrap();
    let received = received.lock().unwrap();
    assert_eq!(received.len(), 2);
    for name in ["cookie:", "referer:", "authorization:", "#part"] {
        assert!(!received[1].contains(name), "{name} in {received:?}");
    }
}

#[tokio::test]
async fn no_connection_outlives_its_page_or_a_fetch_that_is_dropped() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let answers = move |request: String, mut stream: TcpStream| {
        let sender = sender.clone();
        async move {
            if !request.starts_with("GET /never ") {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage").await?;
            }
            let _ = sender.send("asked");
            let _ = stream.read(&mut [0]).await;
            let _ = sender.send("left");
            Ok(())
        }
    };
    let (address, fetcher) = (server(answers).await, Fetcher::new().unwrap());
    let allowed = allowing(&["127.0.0.1"]);
    for path in ["page", "never"] {
        let url = format!("http://{address}/{path}");
        let mut fetching = Box::pin(fetcher.fetch(&url, &allowed, ANY, 10 * LONG_TIMEOUT));
        match path {
            "page" => assert_eq!(fetching.await.unwrap().text, "page"),
            _ => tokio::select! {
                fetched = &mut fetching => unreachable!("{fetched:?}"),
                Some("asked") = seen.recv() => drop(fetching),
            },
        }
        let left = async { while seen.recv().await != Some("left") {} };
        tokio::time::timeout(LONG_TIMEOUT, left).await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_of_400_or_more_is_an_error() {
    for status in [400, 404, 500, 599] {
        let bytes = format!("HTTP/1.1 {status} No\r\ncontent-length: 4\r\n\r\nbody");
        assert_eq!(fetch_at(serving(bytes).await).await, Err(FetchError::HttpError(status)));
    }
    let unmoved = fetch_at(serving("HTTP/1.1 304 Same\r\n\r\n").await).await.unwrap();
    assert_eq!((unmoved.status, unmoved.text.as_str()), (304, ""));
}

#[tokio::test]
async fn a_compressed_page_is_decompressed_up_to_the_limit() {
    let headers = "content-encoding: gzip\r\n";
    assert_eq!(text_of(headers, &gzip(b"packed")).await.unwrap(), "packed");
    let exact = vec![b'x'; MAX_PAGE_BYTES];
    let page = fetch_at(serving(answer(headers, &gzip(&exact))).await).await.unwrap();
    assert_eq!((page.text.len(), page.truncated), (MAX_PAGE_BYTES, false));

    let bomb = answer(headers, &gzip(&vec![b'x'; 10 * MAX_PAGE_BYTES]));
    let answers = move |_, mut stream: TcpStream| {
        let bomb = bomb.clone();
        async move {
            stream.write_all(&bomb).await?;
            // The connection never ends, and the fetch does not wait for it.
            stream.read(&mut [0]).await.map(drop)
        }
    };
    let page = fetch_at(server(answers).await).await.unwrap();
    assert_eq!((page.text.len(), page.truncated), (MAX_PAGE_BYTES, true));
}

#[tokio::test]
async fn a_page_that_decompresses_to_nothing_is_read_up_to_the_limit() {
    let mut endless = gzip(b"");
    endless.truncate(10);
    // Stored gzip blocks without content.
    endless.extend([0, 0, 0, 0xff, 0xff].repeat(MAX_PAGE_BYTES));
    let page = fetch_at(serving(answer("content-encoding: gzip\r\n", &endless)).await).await;
    let page = page.unwrap();
    assert_eq!((page.text.as_str(), page.truncated), ("", true));
}

#[tokio::test]
async fn a_page_with_another_encoding_or_a_broken_one_is_refused() {
    let broken = "the body is not valid gzip";
    let packed = gzip(b"packed");
    for (encoding, body, why) in [
        ("br", &packed[..], "encoded as br, which was not requested"),
        ("gzip, gzip", &packed[..], "encoded as gzip, gzip, which was not requested"),
        ("gzip", b"plain text", broken),
        ("gzip", &packed[..packed.len() - 9], broken),
        ("gzip", &packed[..packed.len() - 4], broken),
    ] {
        let text = text_of(&format!("content-encoding: {encoding}\r\n"), body).await;
        assert_eq!(text, Err(FetchError::failed(why)), "{encoding}");
    }
}

#[tokio::test]
async fn an_endless_page_is_cut() {
    let answers = |_, mut stream: TcpStream| async move {
        stream.write_all(&answer("content-type: text/plain; charset=utf-8\r\n", b"")).await?;
        loop {
            stream.write_all("€".repeat(4_000).as_bytes()).await?;
        }
    };
    let page = fetch_at(server(answers).await).await.unwrap();
    // The character that was cut through is dropped.
    assert_eq!((page.text.len(), page.truncated), (MAX_PAGE_BYTES / 3 * 3, true));
    assert!(page.text.ends_with('€'));
}

#[tokio::test]
async fn a_slow_server_ends_at_the_total_timeout() {
    let answers = |_, mut stream: TcpStream| async move {
        stream.write_all(&answer("", b"")).await?;
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        loop {
            pace.tick().await;
            stream.write_all(b"x").await?;
        }
    };
    let url = format!("http://{}/", server(answers).await);
    let begun = Instant::now();
    let within = Duration::from_millis(200);
    let fetched = Fetcher::new().unwrap().fetch(&url, &allowing(&["127.0.0.1"]), ANY, within).await;
    assert_eq!(fetched, Err(FetchError::failed("timed out after 200 ms")));
    assert!(begun.elapsed() < LONG_TIMEOUT);
}

#[tokio::test]
async fn headers_have_a_bound() {
    let huge = answer(&format!("x-huge: {}\r\n", "x".repeat(4_000_000)), b"body");
    let many = answer(&"x-many: x\r\n".repeat(10_000), b"body");
    for bytes in [huge, many] {
        let fetched = fetch_at(serving(bytes).await).await;
        assert_eq!(fetched, Err(FetchError::failed("the connection broke")));
    }
}

#[tokio::test]
async fn an_error_about_an_unreachable_server_hides_its_address() {
    let left = fetch_at(serving("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await).await;
    assert_eq!(left, Err(FetchError::failed("the connection broke")));
    let fetcher = fetcher(&["127.0.0.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://away.internal:{}/", listener.local_addr().unwrap().port());
    drop(listener);
    let away = fetcher.fetch(&url, &allowing(&["away.internal"]), ANY, LONG_TIMEOUT).await;
    assert_eq!(away, Err(FetchError::failed("no connection")));
    // Longer than a DNS label may be, so that no server is queried.
    let unknown = fetch(&format!("http://{}.example/", "x".repeat(64))).await;
    assert_eq!(unknown, Err(FetchError::failed("unknown host")));
}

#[tokio::test]
async fn text_is_decoded_in_its_declared_charset() {
    let meta = b"<html><head><meta charset=\"windows-1252\"><p>\xfcber";
    for (headers, body, text) in [
        ("content-type: text/plain\r\n", "über".as_bytes(), "über"),
        ("content-type: text/plain\r\n", b"\xfcber", "\u{fffd}ber"),
        ("content-type: text/plain; Charset=\"ISO-8859-1\"\r\n", b"\xfcber", "über"),
        ("content-type: text/plain; charset=utf-16le\r\n", b"a\0b\0", "ab"),
        ("content-type: text/html; charset=shift_jis\r\n", b"<p>\x93\xfa\x96\x7b", "日本"),
        ("content-type: text/html; charset=no-such\r\n", b"<p>x", "x"),
        ("content-type: text/html\r\n", meta, "über"),
        ("", meta, "über"),
        ("", b"\xef\xbb\xbfa<b>c", "a<b>c"),
        ("content-type: image/svg+xml\r\n", b"<svg/>", "<svg/>"),
    ] {
        assert_eq!(text_of(headers, body).await.unwrap(), text, "{headers}{body:?}");
    }
}

#[tokio::test]
async fn what_is_not_text_is_refused() {
    for (headers, body, why) in [
        ("content-type: image/png\r\n", b"x", "not text: image/png"),
        ("content-type: Application/ZIP; a=b\r\n", b"x", "not text: application/zip"),
        ("content-type: application/octet-stream\r\n", b"x", "not text: application/octet-stream"),
        ("content-type: text/plain\r\n", b"\0", "not text: it contains zero bytes"),
        ("", b"\0", "not text: it contains zero bytes"),
    ] {
        assert_eq!(text_of(headers, body).await, Err(FetchError::failed(why)));
    }
}
