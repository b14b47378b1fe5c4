//! A node refuses to start on bad settings with one clear line; two nodes of one name.

use abide_tests::deadline::poll;
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use abide_tests::redis::Redis;
use reqwest::Method;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{calls_once, human};
use crate::cluster_state::{
    admin, cluster, metric, node, wait_for_readiness, wait_until_connected,
};

const PASSWORD: &str = "s3cr3t-and-long";

/// Runs the program, which must exit with this code and one line that contains these words.
async fn refuses(site: &Site, store: &str, flags: &[&str], code: i32, words: &[&str]) {
    let ports = ["--listen", "--admin-listen", "--cluster-listen"];
    let mut all = vec!["--store", store];
    all.extend(ports.iter().flat_map(|flag| [*flag, "127.0.0.1:0"]));
    all.extend(flags);
    let output = site.run(&all).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{store} {flags:?}: {stderr}");
    assert_eq!(
        stderr.lines().count(),
        1,
        "{store} {flags:?} must be refused in one line: {stderr}"
    );
    for word in words {
        assert!(stderr.contains(word), "{store} {flags:?}: {word} is not named in: {stderr}");
    }
    assert!(!stderr.contains(PASSWORD), "a password is printed: {stderr}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

#[tokio::test]
async fn a_redis_that_cannot_promise_the_durability_is_refused_by_its_setting() {
    let (site, redis) = (Site::new(ABIDE), Redis::own().await);
    let set = async |name: &str, value: &str| {
        redis.ask::<()>(&["CONFIG", "SET", name, value]).await;
    };
    let fsync = ["--durability", "fsync"];
    set("appendfsync", "everysec").await;
    let words = ["appendfsync", "everysec", redis.address()];
    refuses(&site, redis.url(), &fsync, 2, &words).await;
    set("appendfsync", "always").await;
    set("appendonly", "no").await;
    refuses(&site, redis.url(), &fsync, 2, &["appendonly", "no"]).await;
    refuses(&site, redis.url(), &["--durability", "os"], 2, &["appendonly", "no"]).await;
    set("appendonly", "yes").await;
    set("maxmemory", "1gb").await;
    set("maxmemory-policy", "allkeys-lru").await;
    refuses(&site, redis.url(), &fsync, 2, &["maxmemory-policy", "allkeys-lru"]).await;
    set("maxmemory", "0").await;
    let replicas = ["--durability", "replicas=1"];
    refuses(&site, redis.url(), &replicas, 2, &["replicas=1", "0 replicas"]).await;
    let keys: u64 = redis.ask(&["DBSIZE"]).await;
    assert_eq!(keys, 0, "a node that did not start wrote something");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_no_password_is_printed() {
    let (site, redis) = (Site::new(ABIDE), Redis::own().await);
    redis.ask::<()>(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    redis.ask::<()>(&["CONFIG", "SET", "requirepass", "other"]).await;
    let url = format!("redis://:{PASSWORD}@{}", redis.address());
    refuses(&site, &url, &[], 2, &["password", redis.address()]).await;
    let nobody = format!("redis://{}", redis.address());
    refuses(&site, &nobody, &[], 2, &["password", redis.address()]).await;

    let redis = Redis::own().await;
    redis.ask::<()>(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    redis.ask::<()>(&["CONFIG", "SET", "requirepass", PASSWORD]).await;
    let url = format!("redis://:{PASSWORD}@{}", redis.address());
    refuses(&site, &url, &[], 2, &["appendfsync", redis.address()]).await;
}

#[tokio::test]
async fn a_redis_that_is_away_is_reported_in_one_line() {
    // The proxy reserves the port, so that no other server gets it.
    let (site, nobody) = (Site::new(ABIDE), Proxy::start());
    nobody.refuse().await;
    let address = nobody.address().to_string();
    let url = format!("redis://u:{PASSWORD}@{address}");
    refuses(&site, &url, &[], 1, &[&address, "away"]).await;
    let watched = format!("redis+sentinel://u:{PASSWORD}@{address}/main");
    refuses(&site, &watched, &[], 1, &[&address, "away"]).await;
    let many = format!("redis+cluster://u:{PASSWORD}@{address}");
    refuses(&site, &many, &[], 1, &[&address, "away"]).await;
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    let site = Site::new(ABIDE);
    for bad in ["redis://", "redis://h:99999", "redis+sentinel://h", "redis+cluster://h/1"] {
        refuses(&site, bad, &[], 2, &["--store"]).await;
    }
    let bad = format!("redis://u:{PASSWORD}@h:99999");
    refuses(&site, &bad, &[], 2, &["--store"]).await;
}

#[tokio::test]
async fn without_a_secret_every_address_must_be_loopback() {
    let (site, redis) = (Site::new(ABIDE), Redis::own().await);
    let auth = site.dir().join("auth.yaml");
    std::fs::write(&auth, "keys: []").unwrap();
    for flag in ["--listen", "--admin-listen", "--cluster-listen", "--cluster-advertise"] {
        let mut all = vec!["--store", redis.url(), "--auth", auth.to_str().unwrap()];
        for address in ["--listen", "--admin-listen", "--cluster-listen", "--cluster-advertise"] {
            let open = if address == flag { "0.0.0.0:0" } else { "127.0.0.1:0" };
            all.extend([address, open]);
        }
        let output = site.run(&all).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.lines().count()),
            (Some(2), 1),
            "{flag}: {stderr}"
        );
        assert!(stderr.contains("ABIDE_CLUSTER_SECRET"), "{flag}: {stderr}");
    }
    for short in ["summer2026", &"s".repeat(31)] {
        let site = Site::new(ABIDE).with_env("ABIDE_CLUSTER_SECRET", short);
        let words = ["ABIDE_CLUSTER_SECRET", "at least 32 characters"];
        refuses(&site, redis.url(), &[], 2, &words).await;
        refuses(&site, "memory", &[], 2, &words).await;
    }
    let site = Site::new(ABIDE)
        .with_store(redis.url())
        .with_env("ABIDE_CLUSTER_SECRET", "long and random, as it has to be since 2026")
        .with(&["--cluster-advertise", "192.0.2.1:7070"]);
    let _node = site.start().await;
}

#[tokio::test]
async fn the_newer_of_two_nodes_of_one_name_stays_and_the_older_reports_it_and_stays_out() {
    let mut cluster = cluster(2, &[]).await;
    wait_until_connected(&cluster).await;
    let client = cluster.client(0);
    client.define("a", &calls_once(vec![human("ask")])).await;
    client.send_message("c", "a", "go").await;
    client.wait_for_pending("c", "ask", "elicitation").await;
    let older = node(cluster.client(1), "node-0").await;

    let newer = cluster.join(|site| site.named("node-0")).await;
    wait_for_readiness(cluster.client(0), 503).await;
    let now = poll("the newer one to be node-0", async || {
        let now = node(cluster.client(1), "node-0").await;
        (now["address"] == json!(cluster.client(newer).cluster_address())).then_some(now)
    })
    .await;
    assert_ne!(now["incarnation"], older["incarnation"]);
    cluster.client(newer).resolve("c", "ask", json!({"result": 1})).await.expect(200);
    cluster.client(1).wait_until_settled("c", 1).await;

    // The older one keeps trying to rejoin, without success.
    let burials = metric(cluster.client(0), "abide_burials_total").await;
    poll("the older one to try a few times more", async || {
        let tries = metric(cluster.client(0), "abide_burials_total").await - burials;
        (tries >= 3.0).then_some(())
    })
    .await;
    let still = node(cluster.client(1), "node-0").await;
    assert_eq!(still["incarnation"], now["incarnation"]);
    assert_eq!(
        admin(cluster.client(1), "/admin/nodes").await["nodes"].as_array().unwrap().len(),
        2
    );
    wait_for_readiness(cluster.client(newer), 200).await;
    let body = json!({"text": "go", "agent": "a"});
    let refused = cluster.client(0).post("/v1/conversations/d/messages", &body).await;
    refused.expect_problem(503, "unavailable");
    let healthy = cluster.client(0).admin(Method::GET, "/healthz").await;
    assert_eq!(healthy.status, 200);
    let log = cluster.log(0);
    let lines = log.lines().filter(|line| {
        line.contains("lease renewal failed")
            && line.contains("another live process has the name node-0")
    });
    assert_eq!(lines.count(), 1, "{log}");
    cluster.evidence(&[]).await.assert_no_violations();
}
