//! What a provider signed, sealed, cited or ran goes back to it as it came.

use abide_conversation::MessageId;
use abide_conversation::message::{ProviderMessage, StopReason};
use serde_json::Value;

use super::draw::{self, WEB, body, continued, done, has, message, parts};
use super::{Dialect, Drawn, Say};
use crate::model::testing::{Server, answered, whole};
use crate::model::{ModelToolCall, ReplyChunk};

/// All pieces of the message stand in the body, as they were.
fn goes_back(on: &dyn Dialect, body: &Value, verbatim: &ProviderMessage) {
    assert!(!verbatim.items.is_empty());
    let body = &on.unmarked(body);
    for item in &verbatim.items {
        assert!(has(body, item), "{item} is not in {body}");
    }
}

async fn replayed(on: &dyn Dialect, said: &[Say<'_>], sealed: &[&str]) -> Drawn<()> {
    let message = done(parts(on, said, StopReason::ToolCalls).await?);
    let (mut request, verbatim) = continued(on, message, &["call_a"]);
    let sent = body(&request);
    goes_back(on, &sent, &verbatim);
    for word in sealed {
        assert_eq!(sent.to_string().matches(word).count(), 1, "{word} in {sent}");
    }
    assert_eq!(on.results(&sent), on.calls(&sent));
    // Another provider's form is not sent.
    let mut foreign = verbatim;
    foreign.provider = "other".to_owned();
    request.verbatim = [(MessageId::new("2"), foreign)].into();
    let sent = body(&request).to_string();
    assert!(sealed.iter().all(|word| !sent.contains(word)), "{sent}");
    Ok(())
}

pub(super) async fn signed_thinking_goes_back(on: &dyn Dialect) -> Drawn<()> {
    let signed = Say::Thinking(&["I think", " so."], Some("U0lHTkVE"));
    let call = Say::Call("call_a", "search", &["{\"q\": \"x\"}"]);
    replayed(on, &[signed, Say::Text("I look."), call], &["U0lHTkVE"]).await
}

pub(super) async fn sealed_thinking_goes_back(on: &dyn Dialect) -> Drawn<()> {
    let call = Say::Call("call_a", "search", &["{\"q\": \"x\"}"]);
    replayed(on, &[Say::Sealed("U0VBTEVE"), call], &["U0VBTEVE"]).await
}

pub(super) async fn citations_go_back(on: &dyn Dialect) -> Drawn<()> {
    let (parts, end) = done(parts(on, &[Say::Cited("It rains.")], StopReason::End).await?);
    assert_eq!(parts, [draw::text("It rains.")]);
    let (request, verbatim) = continued(on, (parts, end), &[]);
    goes_back(on, &body(&request), &verbatim);
    Ok(())
}

pub(super) async fn a_renamed_call_goes_back_renamed(on: &dyn Dialect) -> Drawn<()> {
    let signed = Say::Thinking(&["Hm."], Some("U0lHTkVE"));
    let twice = [
        signed,
        Say::Call("call_a", "search", &["{\"q\": \"x\"}"]),
        Say::Call("call_a", "search", &["{\"q\": \"y\"}"]),
    ];
    let message = done(parts(on, &twice, StopReason::ToolCalls).await?);
    let (request, _) = continued(on, message, &["call_a", "call_a~2"]);
    let sent = body(&request);
    let calls = on.calls(&sent);
    assert_eq!((calls.len(), &calls), (2, &on.results(&sent)));
    assert!(!on.has_ids() || calls[0] != calls[1], "{calls:?}");
    assert!(calls.iter().all(|id| on.is_legal(id)), "{calls:?}");
    assert!(has(&sent, &"U0lHTkVE".into()), "{sent}");
    Ok(())
}

/// The runs that a reply tells of.
fn runs(parts: &[ReplyChunk]) -> Vec<&ModelToolCall> {
    fn run(part: &ReplyChunk) -> Option<&ModelToolCall> {
        match part {
            ReplyChunk::Call(call) => Some(call).filter(|call| call.provided.is_some()),
            ReplyChunk::Text(_) | ReplyChunk::Thinking(_) | ReplyChunk::Done(_) => None,
        }
    }
    parts.iter().filter_map(run).collect()
}

pub(super) async fn hosted_runs_go_back(on: &dyn Dialect) -> Drawn<()> {
    let hosted = on.hosted()?;
    let said = [
        Say::Text("I look."),
        Say::Hosted,
        Say::Text("Found."),
        Say::Call("call_a", "search", &["{}"]),
    ];
    let (parts, end) = done(parts(on, &said, StopReason::ToolCalls).await?);
    let run = runs(&parts);
    assert_eq!(run.len(), 1, "{parts:?}");
    assert_eq!((&*run[0].name, &run[0].args), (WEB, &Ok(hosted.args)));
    assert_eq!(run[0].provided, Some(hosted.result.clone()));
    let (request, verbatim) = continued(on, (parts, end), &["call_a"]);
    let sent = body(&request);
    goes_back(on, &sent, &verbatim);
    assert!(has(&sent, &hosted.result), "{sent}");
    assert_eq!(on.results(&sent), on.calls(&sent));
    let declared = hosted.options[on.provider().name()].clone();
    assert!(has(&on.unmarked(&sent), &declared), "{declared} in {sent}");
    Ok(())
}

pub(super) async fn a_pause_is_gone_on_from(on: &dyn Dialect) -> Drawn<()> {
    let hosted = on.hosted()?;
    let paused = [Say::Text("I look."), Say::HostedBegins];
    let (parts, end) = done(parts(on, &paused, StopReason::Paused).await?);
    assert_eq!((end.stop, &*parts), (Some(StopReason::Paused), &[draw::text("I look.")][..]));
    let (request, verbatim) = continued(on, (parts, end), &[]);
    goes_back(on, &body(&request), &verbatim);

    let server =
        Server::start([message(on, &[Say::HostedEnds, Say::Text("Found.")], StopReason::End)?]);
    let server = server.await;
    let mut request = request;
    request.settings.base_url = Some(server.url.clone());
    let (parts, _) = done(whole(answered(&draw::wire(), request).await));
    let run = runs(&parts);
    assert_eq!(run.len(), 1, "{parts:?}");
    assert_eq!((&*run[0].name, &run[0].args), (WEB, &Ok(hosted.args)));
    assert_eq!(run[0].provided, Some(hosted.result));
    Ok(())
}
