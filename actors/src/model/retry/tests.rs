//! Tests of retries: against a real server for the requests, with paused time for the delays.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use abide_conversation::message::StopReason;
use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use serde_json::json;
use tokio::time::Instant;

use super::{RetryPolicy, RetryingModel};
use crate::model::http::{HttpModel, HttpTimeouts};
use crate::model::test_server::{
    FixedClock, TestEnd, TestResponse, TestServer, all_ok, collect_reply, delta, finish, request,
    settings,
};
use crate::model::{
    Model, ModelError, ModelRequest, ModelSettings, Provider, ReplyChunk, ReplyEnd, ReplyStream,
    Retry,
};

const QUICK: RetryPolicy = RetryPolicy {
    max_attempts: 3,
    base_delay: Duration::from_millis(1),
    max_delay: Duration::from_millis(2),
};

async fn call_with_retries(
    answers: Vec<TestResponse>,
) -> (Vec<Result<ReplyChunk, ModelError>>, usize) {
    let server = TestServer::start(answers).await;
    let openai = HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), |_| None);
    let base_url = Some(server.url.clone());
    let settings = ModelSettings { base_url, ..settings(Provider::Openai) };
    let model = RetryingModel::new(openai, QUICK, Arc::new(FixedClock));
    let chunks = collect_reply(&model, request(settings)).await;
    (chunks, server.requests().len())
}

fn hello_response() -> TestResponse {
    TestResponse::stream([delta(json!({"content": "Hi"})), finish("stop")])
}

#[tokio::test]
async fn a_busy_provider_is_called_again() {
    let busy = TestResponse::error(429, "busy").with_header("retry-after", "0");
    let (chunks, attempts) = call_with_retries(vec![busy, hello_response()]).await;
    assert_eq!(
        all_ok(chunks),
        [
            ReplyChunk::Text("Hi".into()),
            ReplyChunk::Done(ReplyEnd { stop: Some(StopReason::End), ..ReplyEnd::default() })
        ]
    );
    assert_eq!(attempts, 2);
}

#[tokio::test]
async fn the_last_error_is_returned() {
    let (chunks, attempts) = call_with_retries(vec![
        TestResponse::error(500, "one"),
        TestResponse::error(500, "two"),
        TestResponse::error(500, "three"),
        hello_response(),
    ])
    .await;
    let error = chunks[0].clone().unwrap_err();
    assert!(error.message.ends_with("three"), "{error}");
    assert_eq!(attempts, 3);
}

#[tokio::test]
async fn a_permanent_error_is_not_retried() {
    let (chunks, attempts) =
        call_with_retries(vec![TestResponse::error(400, "bad"), hello_response()]).await;
    assert_eq!(chunks[0].clone().unwrap_err().retry, Retry::Never);
    assert_eq!(attempts, 1);
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_first_chunk_is_retried() {
    let dead = TestResponse::stream([": hello\n\n"]).ending_with(TestEnd::Breaks);
    let (chunks, attempts) = call_with_retries(vec![dead, hello_response()]).await;
    assert_eq!((all_ok(chunks).len(), attempts), (2, 2));
}

#[tokio::test]
async fn after_the_first_chunk_an_error_passes_through() {
    let dies = TestResponse::stream([delta(json!({"content": "Hi"}))]).ending_with(TestEnd::Breaks);
    let (chunks, attempts) = call_with_retries(vec![dies, hello_response()]).await;
    assert_eq!(chunks[0], Ok(ReplyChunk::Text("Hi".into())));
    assert!(chunks[1].is_err());
    assert_eq!((chunks.len(), attempts), (2, 1));
}

/// Fails with each of these errors in turn, then returns empty replies.
struct Failing(Mutex<Vec<Retry>>);

#[async_trait]
impl Model for Failing {
    async fn call(&self, _: &ModelRequest) -> Result<ReplyStream, ModelError> {
        let mut left = self.0.lock().unwrap();
        if left.is_empty() {
            return Ok(stream::empty().boxed());
        }
        Err(ModelError { message: "no".into(), retry: left.remove(0) })
    }
}

#[tokio::test(start_paused = true)]
async fn delays_back_off_and_honour_the_providers_retry_after() {
    let hour = Duration::from_secs(3600);
    for (failures, expected) in [
        (vec![Retry::After(None); 2], Duration::from_millis(375 + 750)),
        (vec![Retry::After(Some(Duration::from_secs(5))), Retry::Never], Duration::from_secs(5)),
        (vec![Retry::After(Some(hour)), Retry::Never], Duration::from_secs(60)),
        (vec![Retry::Never], Duration::ZERO),
        (vec![], Duration::from_millis(375 + 750)),
    ] {
        let model = Failing(Mutex::new(failures));
        let model = RetryingModel::new(model, RetryPolicy::default(), Arc::new(FixedClock));
        let start = Instant::now();
        let chunks = collect_reply(&model, request(settings(Provider::Openai))).await;
        assert!(chunks[0].is_err());
        let elapsed = start.elapsed();
        assert!((expected..expected + Duration::from_millis(5)).contains(&elapsed), "{elapsed:?}");
    }
}

#[test]
fn a_delay_grows_to_its_maximum_and_jitters_below_it() {
    let policy = RetryPolicy::default();
    let wait = |attempt, chance| policy.delay(attempt, None, chance).as_millis();
    assert_eq!([wait(1, 0.0), wait(1, 1.0), wait(2, 1.0), wait(3, 1.0)], [250, 500, 1000, 2000]);
    assert_eq!([wait(5, 1.0), wait(50, 1.0), wait(u32::MAX, 0.0)], [8000, 8000, 4000]);
    let endless =
        RetryPolicy { base_delay: Duration::MAX, max_delay: Duration::MAX, max_attempts: 9 };
    assert!(endless.delay(9, None, f64::NAN) <= Duration::MAX);
}
