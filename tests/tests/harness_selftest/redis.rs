//! The harness's Redis keeps what it acknowledged, and has the faults that tests cause.

use abide_tests::redis::Redis;

async fn set(redis: &Redis) {
    let () = redis.ask(&["SET", "key", "kept"]).await;
}

async fn value(redis: &Redis) -> Option<String> {
    redis.ask(&["GET", "key"]).await
}

async fn exercise_faults(mut redis: Redis) {
    let url = redis.url().to_owned();
    set(&redis).await;
    redis.restart().await;
    assert_eq!(value(&redis).await.as_deref(), Some("kept"));

    redis.kill().await;
    assert!(redis.try_ask::<String>(&["PING"]).await.is_err());
    redis.restart().await;
    assert_eq!(value(&redis).await.as_deref(), Some("kept"));

    redis.stop().await;
    let silent = tokio::time::timeout(std::time::Duration::from_millis(100), value(&redis));
    assert!(silent.await.is_err(), "a stopped server answers nothing");
    redis.cont().await;
    assert_eq!(value(&redis).await.as_deref(), Some("kept"));

    redis.refuse_writes(true).await;
    let refused = redis.try_ask::<()>(&["SET", "key", "new"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("NOREPLICAS"));
    redis.refuse_writes(false).await;
    redis.fill(true).await;
    let refused = redis.try_ask::<()>(&["SET", "key", "new"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"));
    redis.fill(false).await;
    set(&redis).await;

    redis.restart_empty().await;
    assert_eq!(value(&redis).await, None);
    assert_eq!(redis.url(), url, "the address stays");
}

#[tokio::test]
async fn a_redis_process_keeps_what_it_acknowledged_and_has_every_fault() {
    exercise_faults(Redis::process().await).await;
}

#[tokio::test]
async fn the_default_redis_keeps_what_it_acknowledged_and_has_every_fault() {
    exercise_faults(Redis::own().await).await;
}

#[tokio::test]
async fn a_stopped_one_can_be_restarted_and_nothing_of_it_outlives_it() {
    let mut redis = Redis::own().await;
    redis.stop().await;
    redis.restart().await;
    let url = redis.url().to_owned();
    drop(redis);
    let client = ::redis::Client::open(url).unwrap();
    let dead = async || client.get_multiplexed_async_connection().await.err();
    abide_tests::deadline::poll("the server's end", dead).await;
}

#[tokio::test]
async fn a_loss_of_power_loses_what_was_not_synced_and_nothing_else() {
    let mut redis = Redis::process_on_disk(&["--appendfsync", "always"]).await;
    set(&redis).await;
    redis.lose_power(|_| 0).await;
    redis.restart().await;
    assert_eq!(value(&redis).await.as_deref(), Some("kept"), "a synced write is lost");

    let mut redis = Redis::process_on_disk(&["--appendfsync", "no"]).await;
    set(&redis).await;
    let () = redis.ask(&["SET", "key", "later"]).await;
    redis.lose_power(|writes| writes.saturating_sub(1)).await;
    redis.restart().await;
    assert_eq!(value(&redis).await.as_deref(), Some("kept"), "the earlier writes reached the disk");
    redis.lose_power(|_| 0).await;
    redis.restart().await;
    assert_eq!(value(&redis).await.as_deref(), Some("kept"), "what was read again is on the disk");
}
