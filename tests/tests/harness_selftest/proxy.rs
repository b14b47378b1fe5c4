//! The proxy causes the faults that its documentation promises.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use abide_tests::deadline::within;
use abide_tests::proxy::{Direction, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a connection must be silent.
const SILENCE_TIME: Duration = Duration::from_millis(100);

/// Starts a server that echoes bytes and counts them.
async fn echo() -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (count, received) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 1024];
                while let Ok(length @ 1..) = client.read(&mut bytes).await {
                    count.send_modify(|count| *count += length);
                    client.write_all(&bytes[..length]).await.unwrap();
                }
            });
        }
    });
    (address, received)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    within("a connection", TcpStream::connect(proxy.address())).await.unwrap()
}

async fn expect_echo(client: &mut TcpStream) {
    client.write_all(b"word").await.unwrap();
    let mut back = [0; 4];
    within("the echo", client.read_exact(&mut back)).await.unwrap();
    assert_eq!(&back, b"word");
}

/// Whether the other side has closed the connection, cleanly or not.
async fn is_closed(client: &mut TcpStream) -> bool {
    matches!(within("the end", client.read(&mut [0; 4])).await, Ok(0) | Err(_))
}

async fn is_silent(client: &mut TcpStream) -> bool {
    tokio::time::timeout(SILENCE_TIME, client.read(&mut [0; 4])).await.is_err()
}

#[tokio::test]
async fn what_is_cut_is_closed_and_may_come_back() {
    let (echo, _) = echo().await;
    let proxy = Proxy::to(&echo);
    let mut client = connect(&proxy).await;
    expect_echo(&mut client).await;
    proxy.cut();
    assert!(is_closed(&mut client).await);
    expect_echo(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn a_refusal_is_one_of_the_machine_and_leaves_what_is_open() {
    let (echo, _) = echo().await;
    let proxy = Proxy::to(&echo);
    let mut client = connect(&proxy).await;
    expect_echo(&mut client).await;
    for _ in 0..3 {
        proxy.refuse().await;
        let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        expect_echo(&mut client).await;
        proxy.heal().await;
        expect_echo(&mut connect(&proxy).await).await;
    }
}

#[tokio::test]
async fn each_direction_has_the_requested_delay() {
    let (echo, received) = echo().await;
    let proxy = Proxy::to(&echo);
    let mut client = connect(&proxy).await;
    let late = Duration::from_millis(150);
    for direction in [Direction::ToTarget, Direction::ToClient] {
        proxy.delay(direction, late);
        let before = *received.borrow();
        let sent = Instant::now();
        client.write_all(b"word").await.unwrap();
        let mut counts = received.clone();
        let arrived = within("the word", counts.wait_for(|count| *count > before)).await;
        drop(arrived);
        assert_eq!(
            sent.elapsed() >= late,
            direction == Direction::ToTarget,
            "{:?}",
            sent.elapsed()
        );
        within("the echo", client.read_exact(&mut [0; 4])).await.unwrap();
        assert!(sent.elapsed() >= late);
        proxy.heal().await;
    }
    expect_echo(&mut client).await;
}

#[tokio::test]
async fn a_half_open_connection_stays_and_loses_one_direction_until_it_heals() {
    let (echo, mut received) = echo().await;
    let proxy = Proxy::to(&echo);
    for direction in [Direction::ToTarget, Direction::ToClient] {
        let mut client = connect(&proxy).await;
        expect_echo(&mut client).await;
        let before = *received.borrow_and_update();
        proxy.swallow(direction);
        client.write_all(b"word").await.unwrap();
        if direction == Direction::ToClient {
            within("the word", received.wait_for(|count| *count == before + 4)).await.unwrap();
        }
        assert!(is_silent(&mut client).await);
        let arrived = if direction == Direction::ToClient { 4 } else { 0 };
        assert_eq!(*received.borrow(), before + arrived);
        proxy.heal().await;
        assert!(is_closed(&mut client).await, "a hole in the stream");
        expect_echo(&mut connect(&proxy).await).await;
    }
}

#[tokio::test]
async fn an_end_reaches_the_other_side_and_a_dropped_proxy_ends_every_connection() {
    let (echo, _) = echo().await;
    let proxy = Proxy::start();
    assert!(is_closed(&mut connect(&proxy).await).await, "nowhere to go");
    proxy.aim(&echo);
    let mut client = connect(&proxy).await;
    expect_echo(&mut client).await;
    client.shutdown().await.unwrap();
    assert!(is_closed(&mut client).await);

    let mut client = connect(&proxy).await;
    expect_echo(&mut client).await;
    let address = proxy.address();
    drop(proxy);
    assert!(is_closed(&mut client).await);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn what_waits_in_the_proxy_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(&listener.local_addr().unwrap().to_string());
    let mut client = connect(&proxy).await;
    let (_deaf, _) = listener.accept().await.unwrap();
    // More than the proxy and the machine's own buffers hold.
    let flood = vec![0; 64 << 20];
    let sent = tokio::time::timeout(Duration::from_secs(1), client.write_all(&flood)).await;
    assert!(sent.is_err(), "everything was taken");
}
