//! Cases of what a provider does wrong.

use std::time::Duration;

use abide_conversation::message::StopReason;
use futures::StreamExt;

use super::render;
use super::render::{KEY, failure, message, pieces, reply_to, text};
use super::{Dialect, ProviderError, Rendered, Utterance};
use crate::model::test_server::{TestEnd, TestResponse, TestServer, all_ok, collect_reply};
use crate::model::{Model, ModelError, ModelRequest, ReplyChunk, Retry};

fn first_text(on: &dyn Dialect) -> Rendered<Vec<String>> {
    on.frames(&[Utterance::Text("Hi")], None)
}

fn error(on: &dyn Dialect, trouble: ProviderError, said: &str) -> TestResponse {
    let (status, body) = on.error(trouble, said);
    let headers = vec![("content-type", "application/json".to_owned())];
    TestResponse { status, headers, pieces: vec![body.to_string().into()], end: TestEnd::Whole }
}

/// The error that follows the text `Hi`.
fn after_text(parts: Vec<Result<ReplyChunk, ModelError>>) -> ModelError {
    assert_eq!((parts.len(), &parts[0]), (2, &Ok(text("Hi"))));
    failure(parts)
}

pub(super) async fn a_silent_refusal_fails(on: &dyn Dialect) -> Rendered<()> {
    let failure = failure(reply_to(on, message(on, &[], StopReason::Refusal)?).await);
    assert_eq!(failure.retry, Retry::Never);
    assert!(failure.message.contains("refused"), "{failure}");
    Ok(())
}

pub(super) async fn invalid_json_fails(on: &dyn Dialect) -> Rendered<()> {
    for garbage in ["{\"a\": [", "7", "[[]]", "nothing"] {
        let mut frames = first_text(on)?;
        frames.push(on.frame(garbage));
        let failure = after_text(reply_to(on, pieces(on, frames)).await);
        assert_eq!(failure.retry, Retry::After(None), "{garbage}");
    }
    Ok(())
}

pub(super) async fn half_a_character_is_replaced(on: &dyn Dialect) -> Rendered<()> {
    let whole_stream =
        on.frames(&[Utterance::Text("H🦀i")], render::end(StopReason::End))?.concat();
    let crab = whole_stream.find('🦀').unwrap();
    let mut bytes = whole_stream.into_bytes();
    bytes.drain(crab + 2..crab + 4);
    let parts = all_ok(reply_to(on, on.answer(vec![bytes])).await);
    assert_eq!(parts[0], text("H\u{fffd}i"));
    Ok(())
}

pub(super) async fn an_error_in_the_stream_comes_after_its_text(on: &dyn Dialect) -> Rendered<()> {
    for (trouble, retry) in [
        (ProviderError::Overload, Retry::After(None)),
        (ProviderError::BadRequest, Retry::Never),
        (ProviderError::TooLong, Retry::Shorter),
    ] {
        let mut frames = first_text(on)?;
        frames.push(on.stream_error(trouble, "no room")?);
        let failure = after_text(reply_to(on, pieces(on, frames)).await);
        assert_eq!(failure.retry, retry, "{failure}");
        assert!(failure.message.contains("no room"), "{failure}");
    }
    Ok(())
}

pub(super) async fn a_rate_limit_says_when(on: &dyn Dialect) -> Rendered<()> {
    let limited = error(on, ProviderError::RateLimit, "slow down").with_header("retry-after", "7");
    let failure = failure(reply_to(on, limited).await);
    assert_eq!(failure.retry, Retry::After(Some(Duration::from_secs(7))));
    assert!(failure.message.contains("slow down"), "{failure}");
    Ok(())
}

pub(super) async fn an_overload_passes(on: &dyn Dialect) -> Rendered<()> {
    let failure = failure(reply_to(on, error(on, ProviderError::Overload, "busy")).await);
    assert_eq!(failure.retry, Retry::After(None), "{failure}");
    Ok(())
}

pub(super) async fn a_bad_request_lasts(on: &dyn Dialect) -> Rendered<()> {
    let failure =
        failure(reply_to(on, error(on, ProviderError::BadRequest, "no such field")).await);
    assert_eq!(failure.retry, Retry::Never, "{failure}");
    assert!(failure.message.contains("no such field"), "{failure}");
    Ok(())
}

pub(super) async fn too_long_may_be_shorter(on: &dyn Dialect) -> Rendered<()> {
    let failure = failure(reply_to(on, error(on, ProviderError::TooLong, "")).await);
    assert_eq!(failure.retry, Retry::Shorter, "{failure}");
    Ok(())
}

pub(super) async fn an_early_end_fails(on: &dyn Dialect) -> Rendered<()> {
    for end in [TestEnd::Whole, TestEnd::Breaks] {
        let answer = pieces(on, first_text(on)?).ending_with(end);
        assert_eq!(after_text(reply_to(on, answer).await).retry, Retry::After(None), "{end:?}");
    }
    Ok(())
}

/// Time is paused as soon as only time can end the stream.
pub(super) async fn silence_is_given_up(on: &dyn Dialect) -> Rendered<()> {
    let server = TestServer::start([pieces(on, first_text(on)?).ending_with(TestEnd::Hangs)]).await;
    let mut parts = render::http_model().call(&render::request_to(on, &server.url)).await.unwrap();
    assert_eq!(parts.next().await, Some(Ok(text("Hi"))));
    tokio::time::pause();
    let silent = parts.next().await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!(silent, ModelError::transient("the model's provider said nothing for 120s"));
    Ok(())
}

pub(super) async fn a_reply_without_end_is_refused(on: &dyn Dialect) -> Rendered<()> {
    let text = "x".repeat(1 << 20);
    let answer =
        pieces(on, on.frames(&[Utterance::Text(&text); 20], None)?).ending_with(TestEnd::Hangs);
    let parts = reply_to(on, answer).await;
    assert!((15..=17).contains(&parts.len()), "{}", parts.len());
    assert_eq!(failure(parts).retry, Retry::Never);
    Ok(())
}

pub(super) async fn the_key_is_never_told(on: &dyn Dialect) -> Rendered<()> {
    let echo = format!("no such key: {KEY}, masked: {}***", &KEY[..8]);
    let mut answers = vec![error(on, ProviderError::BadRequest, &echo)];
    if let Ok(frame) = on.stream_error(ProviderError::BadRequest, &echo) {
        answers.push(pieces(on, vec![frame]));
    }
    let count = answers.len();
    let server = TestServer::start(answers).await;
    let mut request: ModelRequest = render::request_to(on, &server.url);
    request.settings.api_key_env = Some("A_KEY".to_owned());
    for _ in 0..count {
        let failure = failure(collect_reply(&render::http_model(), request.clone()).await);
        assert!(failure.message.contains("[key] masked: [key]"), "{failure}");
    }
    let sent = server.requests().remove(0).headers;
    assert!(sent.values().any(|value| value.to_str().unwrap().ends_with(KEY)), "{sent:?}");
    Ok(())
}
