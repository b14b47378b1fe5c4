//! What a provider does wrong, and what is made of it.

use std::time::Duration;

use abide_conversation::message::StopReason;
use futures::StreamExt;

use super::draw::{self, KEY, failure, heard, message, pieces, text};
use super::{Dialect, Drawn, Say, Trouble};
use crate::model::testing::{Answer, End, Server, answered, whole};
use crate::model::{Model, ModelError, ReplyChunk, Request, Retry};

fn begun(on: &dyn Dialect) -> Drawn<Vec<String>> {
    on.frames(&[Say::Text("Hi")], None)
}

fn error(on: &dyn Dialect, trouble: Trouble, said: &str) -> Answer {
    let (status, body) = on.trouble(trouble, said);
    let headers = vec![("content-type", "application/json".to_owned())];
    Answer { status, headers, pieces: vec![body.to_string().into()], end: End::Whole }
}

/// The failure that follows the text `Hi`.
fn after_text(parts: Vec<Result<ReplyChunk, ModelError>>) -> ModelError {
    assert_eq!((parts.len(), &parts[0]), (2, &Ok(text("Hi"))));
    failure(parts)
}

pub(super) async fn a_silent_refusal_fails(on: &dyn Dialect) -> Drawn<()> {
    let failure = failure(heard(on, message(on, &[], StopReason::Refusal)?).await);
    assert_eq!(failure.retry, Retry::Never);
    assert!(failure.message.contains("refused"), "{failure}");
    Ok(())
}

pub(super) async fn invalid_json_fails(on: &dyn Dialect) -> Drawn<()> {
    for garbage in ["{\"a\": [", "7", "[[]]", "nothing"] {
        let mut frames = begun(on)?;
        frames.push(on.frame(garbage));
        let failure = after_text(heard(on, pieces(on, frames)).await);
        assert_eq!(failure.retry, Retry::After(None), "{garbage}");
    }
    Ok(())
}

pub(super) async fn half_a_character_is_replaced(on: &dyn Dialect) -> Drawn<()> {
    let whole_stream = on.frames(&[Say::Text("H🦀i")], draw::end(StopReason::End))?.concat();
    let crab = whole_stream.find('🦀').unwrap();
    let mut bytes = whole_stream.into_bytes();
    bytes.drain(crab + 2..crab + 4);
    let parts = whole(heard(on, on.answer(vec![bytes])).await);
    assert_eq!(parts[0], text("H\u{fffd}i"));
    Ok(())
}

pub(super) async fn an_error_in_the_stream_comes_after_its_text(on: &dyn Dialect) -> Drawn<()> {
    for (trouble, retry) in [
        (Trouble::Overload, Retry::After(None)),
        (Trouble::BadRequest, Retry::Never),
        (Trouble::TooLong, Retry::Shorter),
    ] {
        let mut frames = begun(on)?;
        frames.push(on.trouble_in_stream(trouble, "no room")?);
        let failure = after_text(heard(on, pieces(on, frames)).await);
        assert_eq!(failure.retry, retry, "{failure}");
        assert!(failure.message.contains("no room"), "{failure}");
    }
    Ok(())
}

pub(super) async fn a_rate_limit_says_when(on: &dyn Dialect) -> Drawn<()> {
    let limited = error(on, Trouble::RateLimit, "slow down").with("retry-after", "7");
    let failure = failure(heard(on, limited).await);
    assert_eq!(failure.retry, Retry::After(Some(Duration::from_secs(7))));
    assert!(failure.message.contains("slow down"), "{failure}");
    Ok(())
}

pub(super) async fn an_overload_passes(on: &dyn Dialect) -> Drawn<()> {
    let failure = failure(heard(on, error(on, Trouble::Overload, "busy")).await);
    assert_eq!(failure.retry, Retry::After(None), "{failure}");
    Ok(())
}

pub(super) async fn a_bad_request_lasts(on: &dyn Dialect) -> Drawn<()> {
    let failure = failure(heard(on, error(on, Trouble::BadRequest, "no such field")).await);
    assert_eq!(failure.retry, Retry::Never, "{failure}");
    assert!(failure.message.contains("no such field"), "{failure}");
    Ok(())
}

pub(super) async fn too_long_may_be_shorter(on: &dyn Dialect) -> Drawn<()> {
    let failure = failure(heard(on, error(on, Trouble::TooLong, "")).await);
    assert_eq!(failure.retry, Retry::Shorter, "{failure}");
    Ok(())
}

pub(super) async fn an_early_end_fails(on: &dyn Dialect) -> Drawn<()> {
    for end in [End::Whole, End::Dies] {
        let answer = pieces(on, begun(on)?).ending(end);
        assert_eq!(after_text(heard(on, answer).await).retry, Retry::After(None), "{end:?}");
    }
    Ok(())
}

/// Time stands still from the moment in which nothing but time can end it.
pub(super) async fn silence_is_given_up(on: &dyn Dialect) -> Drawn<()> {
    let server = Server::start([pieces(on, begun(on)?).ending(End::Hangs)]).await;
    let mut parts = draw::wire().ask(&draw::asking(on, &server.url)).await.unwrap();
    assert_eq!(parts.next().await, Some(Ok(text("Hi"))));
    tokio::time::pause();
    let silent = parts.next().await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!(silent, ModelError::transient("the model's provider said nothing for 120s"));
    Ok(())
}

pub(super) async fn a_reply_without_end_is_refused(on: &dyn Dialect) -> Drawn<()> {
    let text = "x".repeat(1 << 20);
    let answer = pieces(on, on.frames(&[Say::Text(&text); 20], None)?).ending(End::Hangs);
    let parts = heard(on, answer).await;
    assert!((15..=17).contains(&parts.len()), "{}", parts.len());
    assert_eq!(failure(parts).retry, Retry::Never);
    Ok(())
}

pub(super) async fn the_key_is_never_told(on: &dyn Dialect) -> Drawn<()> {
    let echo = format!("no such key: {KEY}, masked: {}***", &KEY[..8]);
    let mut answers = vec![error(on, Trouble::BadRequest, &echo)];
    if let Ok(frame) = on.trouble_in_stream(Trouble::BadRequest, &echo) {
        answers.push(pieces(on, vec![frame]));
    }
    let count = answers.len();
    let server = Server::start(answers).await;
    let mut request: Request = draw::asking(on, &server.url);
    request.settings.api_key_env = Some("A_KEY".to_owned());
    for _ in 0..count {
        let failure = failure(answered(&draw::wire(), request.clone()).await);
        assert!(failure.message.contains("[key] masked: [key]"), "{failure}");
    }
    let sent = server.asked().remove(0).headers;
    assert!(sent.values().any(|value| value.to_str().unwrap().ends_with(KEY)), "{sent:?}");
    Ok(())
}
