//! Cases of what a provider does wrong.

use std::time::Duration;

use abide_conversation::message::StopReason;
use futures::StreamExt;

use super::render;
use super::render::{KEY, last_error, message, pieces, reply_to, text};
use super::{Dialect, ProviderError, Rendered, Utterance};
use crate::model::test_server::{TestEnd, TestResponse, TestServer, all_ok, collect_reply};
use crate::model::{Model, ModelError, ModelRequest, ReplyChunk, Retry};

fn first_text(dialect: &dyn Dialect) -> Rendered<Vec<String>> {
    dialect.frames(&[Utterance::Text("Hi")], None)
}

fn error(dialect: &dyn Dialect, kind: ProviderError, text: &str) -> TestResponse {
    let (status, body) = dialect.error(kind, text);
    let headers = vec![("content-type", "application/json".to_owned())];
    TestResponse { status, headers, pieces: vec![body.to_string().into()], end: TestEnd::Whole }
}

/// The error that follows the text `Hi`.
fn after_text(chunks: Vec<Result<ReplyChunk, ModelError>>) -> ModelError {
    assert_eq!((chunks.len(), &chunks[0]), (2, &Ok(text("Hi"))));
    last_error(chunks)
}

pub(super) async fn a_silent_refusal_fails(dialect: &dyn Dialect) -> Rendered<()> {
    let error = last_error(reply_to(dialect, message(dialect, &[], StopReason::Refusal)?).await);
    assert_eq!(error.retry, Retry::Never);
    assert!(error.message.contains("refused"), "{error}");
    Ok(())
}

pub(super) async fn invalid_json_fails(dialect: &dyn Dialect) -> Rendered<()> {
    for garbage in ["{\"a\": [", "7", "[[]]", "nothing"] {
        let mut frames = first_text(dialect)?;
        frames.push(dialect.frame(garbage));
        let error = after_text(reply_to(dialect, pieces(dialect, frames)).await);
        assert_eq!(error.retry, Retry::After(None), "{garbage}");
    }
    Ok(())
}

pub(super) async fn half_a_character_is_replaced(dialect: &dyn Dialect) -> Rendered<()> {
    let whole_stream =
        dialect.frames(&[Utterance::Text("H🦀i")], render::end(StopReason::End))?.concat();
    let crab = whole_stream.find('🦀').unwrap();
    let mut bytes = whole_stream.into_bytes();
    bytes.drain(crab + 2..crab + 4);
    let chunks = all_ok(reply_to(dialect, dialect.answer(vec![bytes])).await);
    assert_eq!(chunks[0], text("H\u{fffd}i"));
    Ok(())
}

pub(super) async fn an_error_in_the_stream_comes_after_its_text(
    dialect: &dyn Dialect,
) -> Rendered<()> {
    for (kind, retry) in [
        (ProviderError::Overload, Retry::After(None)),
        (ProviderError::BadRequest, Retry::Never),
        (ProviderError::TooLong, Retry::Shorter),
    ] {
        let mut frames = first_text(dialect)?;
        frames.push(dialect.stream_error(kind, "no room")?);
        let error = after_text(reply_to(dialect, pieces(dialect, frames)).await);
        assert_eq!(error.retry, retry, "{error}");
        assert!(error.message.contains("no room"), "{error}");
    }
    Ok(())
}

pub(super) async fn a_rate_limit_says_when(dialect: &dyn Dialect) -> Rendered<()> {
    let limited =
        error(dialect, ProviderError::RateLimit, "slow down").with_header("retry-after", "7");
    let error = last_error(reply_to(dialect, limited).await);
    assert_eq!(error.retry, Retry::After(Some(Duration::from_secs(7))));
    assert!(error.message.contains("slow down"), "{error}");
    Ok(())
}

pub(super) async fn an_overload_passes(dialect: &dyn Dialect) -> Rendered<()> {
    let error =
        last_error(reply_to(dialect, error(dialect, ProviderError::Overload, "busy")).await);
    assert_eq!(error.retry, Retry::After(None), "{error}");
    Ok(())
}

pub(super) async fn a_bad_request_lasts(dialect: &dyn Dialect) -> Rendered<()> {
    let error = last_error(
        reply_to(dialect, error(dialect, ProviderError::BadRequest, "no such field")).await,
    );
    assert_eq!(error.retry, Retry::Never, "{error}");
    assert!(error.message.contains("no such field"), "{error}");
    Ok(())
}

pub(super) async fn too_long_may_be_shorter(dialect: &dyn Dialect) -> Rendered<()> {
    let error = last_error(reply_to(dialect, error(dialect, ProviderError::TooLong, "")).await);
    assert_eq!(error.retry, Retry::Shorter, "{error}");
    Ok(())
}

pub(super) async fn an_early_end_fails(dialect: &dyn Dialect) -> Rendered<()> {
    for end in [TestEnd::Whole, TestEnd::Breaks] {
        let answer = pieces(dialect, first_text(dialect)?).ending_with(end);
        assert_eq!(
            after_text(reply_to(dialect, answer).await).retry,
            Retry::After(None),
            "{end:?}"
        );
    }
    Ok(())
}

/// Time is paused as soon as only time can end the stream.
pub(super) async fn silence_is_given_up(dialect: &dyn Dialect) -> Rendered<()> {
    let server =
        TestServer::start([pieces(dialect, first_text(dialect)?).ending_with(TestEnd::Hangs)])
            .await;
    let mut chunks =
        render::http_model().call(&render::request_to(dialect, &server.url)).await.unwrap();
    assert_eq!(chunks.next().await, Some(Ok(text("Hi"))));
    tokio::time::pause();
    let timeout_error = chunks.next().await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!(timeout_error, ModelError::transient("the model's provider sent nothing for 120s"));
    Ok(())
}

pub(super) async fn a_reply_without_end_is_refused(dialect: &dyn Dialect) -> Rendered<()> {
    let text = "x".repeat(1 << 20);
    let answer = pieces(dialect, dialect.frames(&[Utterance::Text(&text); 20], None)?)
        .ending_with(TestEnd::Hangs);
    let chunks = reply_to(dialect, answer).await;
    assert!((15..=17).contains(&chunks.len()), "{}", chunks.len());
    assert_eq!(last_error(chunks).retry, Retry::Never);
    Ok(())
}

pub(super) async fn the_key_is_never_told(dialect: &dyn Dialect) -> Rendered<()> {
    let echo = format!("no such key: {KEY}, masked: {}***", &KEY[..8]);
    let mut answers = vec![error(dialect, ProviderError::BadRequest, &echo)];
    if let Ok(frame) = dialect.stream_error(ProviderError::BadRequest, &echo) {
        answers.push(pieces(dialect, vec![frame]));
    }
    let count = answers.len();
    let server = TestServer::start(answers).await;
    let mut request: ModelRequest = render::request_to(dialect, &server.url);
    request.settings.api_key_env = Some("A_KEY".to_owned());
    for _ in 0..count {
        let error = last_error(collect_reply(&render::http_model(), request.clone()).await);
        assert!(error.message.contains("[key] masked: [key]"), "{error}");
    }
    let sent = server.requests().remove(0).headers;
    assert!(sent.values().any(|value| value.to_str().unwrap().ends_with(KEY)), "{sent:?}");
    Ok(())
}
