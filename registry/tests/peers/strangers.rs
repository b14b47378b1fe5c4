//! Strangers that connect without a right to, and peers whose handshake is refused.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{ECHO, peer_address};
use crate::node_process::{NodeProcess, pair, within};

#[tokio::test]
async fn a_wrong_secret_is_refused_and_logged_once_in_each_direction() {
    let mut a = NodeProcess::start("a", "p-a").await;
    let mut b = NodeProcess::with(
        "b",
        "p-b",
        "127.0.0.1:0",
        Some("another secret than that of the others"),
    )
    .await;
    let both = [a.peer_address(), b.peer_address()];
    a.set_members(&both).await;
    b.set_members(&both).await;
    for node in [&mut a, &mut b] {
        node.metric_reaches("abide_peers_refused_total{cause=\"secret\"}", 5).await;
        // Each node dials the other, and is dialled.
        assert!((1..=2).contains(&node.log_lines("cause=\"secret\"").len()));
    }
    a.wait_for_link("p-b", Some("Lost")).await;
    assert!(!a.was_link_ever("p-b", "Connected") && !b.was_link_ever("p-a", "Connected"));
    // A peer with the right secret still connects.
    let mut c = NodeProcess::start("c", "p-c").await;
    c.set_members(&[a.peer_address()]).await;
    a.set_members(&[b.peer_address(), c.peer_address()]).await;
    a.wait_for_link("p-c", Some("Connected")).await;
    c.wait_for_link("p-a", Some("Connected")).await;
}

#[tokio::test]
async fn nodes_without_a_secret_find_each_other_and_no_one_with_one() {
    let mut a = NodeProcess::with("a", "p-a", "127.0.0.1:0", None).await;
    let b = NodeProcess::with("b", "p-b", "127.0.0.1:0", None).await;
    let c = NodeProcess::start("c", "p-c").await;
    a.set_members(&[b.peer_address(), c.peer_address()]).await;
    a.wait_for_link("p-b", Some("Connected")).await;
    a.metric_reaches("abide_peers_refused_total{cause=\"secret\"}", 2).await;
    assert!(!a.was_link_ever("p-c", "Connected"));
}

/// A man in the middle can reflect a handshake to its sender, and gains nothing by it.
#[tokio::test]
async fn a_relayed_handshake_leads_nowhere() {
    let (mut a, b) = pair().await;
    let relay = crate::proxy::Proxy::start(&a.address).await;
    a.set_members(&[b.peer_address(), peer_address("c", "p-c", &relay.address)]).await;
    a.metric_reaches("abide_peers_refused_total{cause=\"ourselves\"}", 6).await;
    assert!(a.log_lines("cause=\"ourselves\"").len() <= 2);
    assert!(!a.was_link_ever("p-c", "Connected") && !a.was_link_ever("p-a", "Connected"));
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
}

#[tokio::test]
async fn a_flood_of_strangers_harms_nobody_and_fills_no_log() {
    let (mut a, mut b) = pair().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(&b.address).await.unwrap());
    }
    let frame = vec![0x17; 1 << 20];
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&b.address).await.unwrap();
        // The node closes the connection before all is sent.
        let _ = stream.write_all(&frame).await;
    }
    let (outcomes, took) = a.calls("p-b", (1_000, 8, 256), ECHO, 10_000).await;
    assert_eq!(outcomes, [("Answered".to_owned(), 1_000)].into());
    println!("1000 calls in a flood: {took} ms");
    for mut stream in silent {
        // Every one of them gets an end or a reset.
        let _ = within("the end of a silent connection", stream.read(&mut [0; 64])).await;
    }
    // Closed connections no longer take room from others: a silent one may stay until its time is up.
    let mut patient = TcpStream::connect(&b.address).await.unwrap();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&b.address).await.unwrap();
        let _ = stream.write_all(&frame).await;
        let _ = within("the end of a loud connection", stream.read(&mut [0; 64])).await;
    }
    let _ = within("the end of the last silent connection", patient.read(&mut [0; 64])).await;
    for cause in ["crowded", "silent", "garbage"] {
        b.metric_reaches(&format!("abide_peers_refused_total{{cause=\"{cause}\"}}"), 1).await;
        let lines = b.log_lines(&format!("cause=\"{cause}\"")).len();
        assert!((1..=3).contains(&lines), "{lines} log lines for {cause}");
    }
    let mut c = NodeProcess::start("c", "p-c").await;
    c.set_members(&[b.peer_address()]).await;
    b.set_members(&[a.peer_address(), c.peer_address()]).await;
    b.wait_for_link("p-c", Some("Connected")).await;
    assert_eq!(b.call("p-c", 256, 10_000).await, Ok(256));
}

/// ractor_cluster always opens a listener of its own.
#[tokio::test]
async fn the_listener_of_ractor_cluster_accepts_nobody() {
    let (mut a, b) = pair().await;
    let others: Vec<String> = listeners(b.pid).into_iter().filter(|at| *at != b.address).collect();
    let [inner] = others.as_slice() else { panic!("{others:?}") };
    assert!(inner.starts_with("127.0.0.1:"));
    // The first bytes of a ractor_cluster session, as for a listener without TLS.
    let mut stream = TcpStream::connect(inner).await.unwrap();
    let _ =
        stream.write_all(&[&8_u64.to_be_bytes()[..], b"\x0a\x06\x0a\x04\x0a\x02xy"].concat()).await;
    let mut answer = Vec::new();
    let _ = within("its end", stream.read_to_end(&mut answer)).await;
    assert!(answer.len() < 16, "{answer:?} is more than an alert");
    // A node that dials this listener is not let in, either.
    a.set_members(&[b.peer_address(), peer_address("c", "p-c", inner)]).await;
    a.metric_reaches("abide_peers_refused_total{cause=\"secret\"}", 2).await;
    assert!(!a.was_link_ever("p-c", "Connected"));
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
}

/// The IPv4 addresses on which a process listens.
fn listeners(pid: u32) -> Vec<String> {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| {
            std::fs::read_link(fd.unwrap().path()).ok()?.into_os_string().into_string().ok()
        })
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours = fields[3] == "0A" && sockets.iter().any(|socket| socket == fields[9]);
        let (host, port) = fields[1].split_once(':')?;
        let host = u32::from_str_radix(host, 16).unwrap().to_le_bytes();
        let port = u16::from_str_radix(port, 16).unwrap();
        ours.then(|| format!("{}:{port}", std::net::Ipv4Addr::from(host)))
    };
    table.lines().skip(1).filter_map(listens).collect()
}
