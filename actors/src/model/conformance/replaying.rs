//! Cases of what is sent back unchanged: what a provider signed, encrypted, cited or ran.

use abide_conversation::MessageId;
use abide_conversation::message::{ProviderMessage, StopReason};
use serde_json::Value;

use super::render;
use super::render::{WEB, body, contains, message, next_request, reply_chunks, split_end};
use super::{Dialect, Rendered, Utterance};
use crate::model::test_server::{TestServer, all_ok, collect_reply};
use crate::model::{ModelToolCall, ReplyChunk};

/// Asserts that the body contains all pieces of the message unchanged.
fn assert_replayed(on: &dyn Dialect, body: &Value, verbatim: &ProviderMessage) {
    assert!(!verbatim.items.is_empty());
    let body = &on.without_cache_marks(body);
    for item in &verbatim.items {
        assert!(contains(body, item), "{item} is not in {body}");
    }
}

async fn assert_goes_back(
    on: &dyn Dialect,
    said: &[Utterance<'_>],
    sealed: &[&str],
) -> Rendered<()> {
    let message = split_end(reply_chunks(on, said, StopReason::ToolCalls).await?);
    let (mut request, verbatim) = next_request(on, message, &["call_a"]);
    let sent = body(&request);
    assert_replayed(on, &sent, &verbatim);
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

pub(super) async fn signed_thinking_goes_back(on: &dyn Dialect) -> Rendered<()> {
    let signed = Utterance::Thinking(&["I think", " so."], Some("U0lHTkVE"));
    let call = Utterance::Call("call_a", "search", &["{\"q\": \"x\"}"]);
    assert_goes_back(on, &[signed, Utterance::Text("I look."), call], &["U0lHTkVE"]).await
}

pub(super) async fn sealed_thinking_goes_back(on: &dyn Dialect) -> Rendered<()> {
    let call = Utterance::Call("call_a", "search", &["{\"q\": \"x\"}"]);
    assert_goes_back(on, &[Utterance::Sealed("U0VBTEVE"), call], &["U0VBTEVE"]).await
}

pub(super) async fn citations_go_back(on: &dyn Dialect) -> Rendered<()> {
    let (parts, end) =
        split_end(reply_chunks(on, &[Utterance::Cited("It rains.")], StopReason::End).await?);
    assert_eq!(parts, [render::text("It rains.")]);
    let (request, verbatim) = next_request(on, (parts, end), &[]);
    assert_replayed(on, &body(&request), &verbatim);
    Ok(())
}

pub(super) async fn a_renamed_call_goes_back_renamed(on: &dyn Dialect) -> Rendered<()> {
    let signed = Utterance::Thinking(&["Hm."], Some("U0lHTkVE"));
    let twice = [
        signed,
        Utterance::Call("call_a", "search", &["{\"q\": \"x\"}"]),
        Utterance::Call("call_a", "search", &["{\"q\": \"y\"}"]),
    ];
    let message = split_end(reply_chunks(on, &twice, StopReason::ToolCalls).await?);
    let (request, _) = next_request(on, message, &["call_a", "call_a~2"]);
    let sent = body(&request);
    let calls = on.calls(&sent);
    assert_eq!((calls.len(), &calls), (2, &on.results(&sent)));
    assert!(!on.has_ids() || calls[0] != calls[1], "{calls:?}");
    assert!(calls.iter().all(|id| on.is_legal(id)), "{calls:?}");
    assert!(contains(&sent, &"U0lHTkVE".into()), "{sent}");
    Ok(())
}

/// The provider's runs in a reply.
fn runs(parts: &[ReplyChunk]) -> Vec<&ModelToolCall> {
    fn run(part: &ReplyChunk) -> Option<&ModelToolCall> {
        match part {
            ReplyChunk::Call(call) => Some(call).filter(|call| call.provider_result.is_some()),
            ReplyChunk::Text(_) | ReplyChunk::Thinking(_) | ReplyChunk::Done(_) => None,
        }
    }
    parts.iter().filter_map(run).collect()
}

pub(super) async fn hosted_runs_go_back(on: &dyn Dialect) -> Rendered<()> {
    let hosted = on.hosted()?;
    let said = [
        Utterance::Text("I look."),
        Utterance::Hosted,
        Utterance::Text("Found."),
        Utterance::Call("call_a", "search", &["{}"]),
    ];
    let (parts, end) = split_end(reply_chunks(on, &said, StopReason::ToolCalls).await?);
    let run = runs(&parts);
    assert_eq!(run.len(), 1, "{parts:?}");
    assert_eq!((&*run[0].name, &run[0].args), (WEB, &Ok(hosted.args)));
    assert_eq!(run[0].provider_result, Some(hosted.result.clone()));
    let (request, verbatim) = next_request(on, (parts, end), &["call_a"]);
    let sent = body(&request);
    assert_replayed(on, &sent, &verbatim);
    assert!(contains(&sent, &hosted.result), "{sent}");
    assert_eq!(on.results(&sent), on.calls(&sent));
    let declared = hosted.options[on.provider().name()].clone();
    assert!(contains(&on.without_cache_marks(&sent), &declared), "{declared} in {sent}");
    Ok(())
}

pub(super) async fn a_pause_is_gone_on_from(on: &dyn Dialect) -> Rendered<()> {
    let hosted = on.hosted()?;
    let paused = [Utterance::Text("I look."), Utterance::HostedStart];
    let (parts, end) = split_end(reply_chunks(on, &paused, StopReason::Paused).await?);
    assert_eq!((end.stop, &*parts), (Some(StopReason::Paused), &[render::text("I look.")][..]));
    let (request, verbatim) = next_request(on, (parts, end), &[]);
    assert_replayed(on, &body(&request), &verbatim);

    let server = TestServer::start([message(
        on,
        &[Utterance::HostedResult, Utterance::Text("Found.")],
        StopReason::End,
    )?]);
    let server = server.await;
    let mut request = request;
    request.settings.base_url = Some(server.url.clone());
    let (parts, _) = split_end(all_ok(collect_reply(&render::http_model(), request).await));
    let run = runs(&parts);
    assert_eq!(run.len(), 1, "{parts:?}");
    assert_eq!((&*run[0].name, &run[0].args), (WEB, &Ok(hosted.args)));
    assert_eq!(run[0].provider_result, Some(hosted.result));
    Ok(())
}
