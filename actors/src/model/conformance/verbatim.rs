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
fn assert_replayed(dialect: &dyn Dialect, body: &Value, verbatim: &ProviderMessage) {
    assert!(!verbatim.items.is_empty());
    let body = &dialect.without_cache_marks(body);
    for item in &verbatim.items {
        assert!(contains(body, item), "{item} is not in {body}");
    }
}

async fn assert_goes_back(
    dialect: &dyn Dialect,
    utterances: &[Utterance<'_>],
    sealed: &[&str],
) -> Rendered<()> {
    let message = split_end(reply_chunks(dialect, utterances, StopReason::ToolCalls).await?);
    let (mut request, verbatim) = next_request(dialect, message, &["call_a"]);
    let sent = body(&request);
    assert_replayed(dialect, &sent, &verbatim);
    for word in sealed {
        assert_eq!(sent.to_string().matches(word).count(), 1, "{word} in {sent}");
    }
    assert_eq!(dialect.results(&sent), dialect.calls(&sent));
    // Another provider's form is not sent.
    let mut foreign = verbatim;
    foreign.provider = "other".to_owned();
    request.verbatim = [(MessageId::new("2"), foreign)].into();
    let sent = body(&request).to_string();
    assert!(sealed.iter().all(|word| !sent.contains(word)), "{sent}");
    Ok(())
}

pub(super) async fn signed_thinking_goes_back(dialect: &dyn Dialect) -> Rendered<()> {
    let signed = Utterance::Thinking(&["I think", " so."], Some("U0lHTkVE"));
    let call = Utterance::Call("call_a", "search", &["{\"q\": \"x\"}"]);
    assert_goes_back(dialect, &[signed, Utterance::Text("I look."), call], &["U0lHTkVE"]).await
}

pub(super) async fn sealed_thinking_goes_back(dialect: &dyn Dialect) -> Rendered<()> {
    let call = Utterance::Call("call_a", "search", &["{\"q\": \"x\"}"]);
    assert_goes_back(dialect, &[Utterance::Sealed("U0VBTEVE"), call], &["U0VBTEVE"]).await
}

pub(super) async fn citations_go_back(dialect: &dyn Dialect) -> Rendered<()> {
    let (chunks, end) =
        split_end(reply_chunks(dialect, &[Utterance::Cited("It rains.")], StopReason::End).await?);
    assert_eq!(chunks, [render::text("It rains.")]);
    let (request, verbatim) = next_request(dialect, (chunks, end), &[]);
    assert_replayed(dialect, &body(&request), &verbatim);
    Ok(())
}

pub(super) async fn a_renamed_call_goes_back_renamed(dialect: &dyn Dialect) -> Rendered<()> {
    let signed = Utterance::Thinking(&["Hm."], Some("U0lHTkVE"));
    let twice = [
        signed,
        Utterance::Call("call_a", "search", &["{\"q\": \"x\"}"]),
        Utterance::Call("call_a", "search", &["{\"q\": \"y\"}"]),
    ];
    let message = split_end(reply_chunks(dialect, &twice, StopReason::ToolCalls).await?);
    let (request, _) = next_request(dialect, message, &["call_a", "call_a~2"]);
    let sent = body(&request);
    let calls = dialect.calls(&sent);
    assert_eq!((calls.len(), &calls), (2, &dialect.results(&sent)));
    assert!(!dialect.has_ids() || calls[0] != calls[1], "{calls:?}");
    assert!(calls.iter().all(|id| dialect.is_legal(id)), "{calls:?}");
    assert!(contains(&sent, &"U0lHTkVE".into()), "{sent}");
    Ok(())
}

/// The provider's runs in a reply.
fn runs(chunks: &[ReplyChunk]) -> Vec<&ModelToolCall> {
    fn run(chunk: &ReplyChunk) -> Option<&ModelToolCall> {
        match chunk {
            ReplyChunk::Call(call) => Some(call).filter(|call| call.provider_result.is_some()),
            ReplyChunk::Text(_) | ReplyChunk::Thinking(_) | ReplyChunk::Done(_) => None,
        }
    }
    chunks.iter().filter_map(run).collect()
}

pub(super) async fn hosted_runs_go_back(dialect: &dyn Dialect) -> Rendered<()> {
    let hosted = dialect.hosted()?;
    let utterances = [
        Utterance::Text("I look."),
        Utterance::Hosted,
        Utterance::Text("Found."),
        Utterance::Call("call_a", "search", &["{}"]),
    ];
    let (chunks, end) = split_end(reply_chunks(dialect, &utterances, StopReason::ToolCalls).await?);
    let run = runs(&chunks);
    assert_eq!(run.len(), 1, "{chunks:?}");
    assert_eq!((&*run[0].name, &run[0].args), (WEB, &Ok(hosted.args)));
    assert_eq!(run[0].provider_result, Some(hosted.result.clone()));
    let (request, verbatim) = next_request(dialect, (chunks, end), &["call_a"]);
    let sent = body(&request);
    assert_replayed(dialect, &sent, &verbatim);
    assert!(contains(&sent, &hosted.result), "{sent}");
    assert_eq!(dialect.results(&sent), dialect.calls(&sent));
    let declared = hosted.options[dialect.provider().name()].clone();
    assert!(contains(&dialect.without_cache_marks(&sent), &declared), "{declared} in {sent}");
    Ok(())
}

pub(super) async fn a_pause_is_gone_on_from(dialect: &dyn Dialect) -> Rendered<()> {
    let hosted = dialect.hosted()?;
    let paused = [Utterance::Text("I look."), Utterance::HostedStart];
    let (chunks, end) = split_end(reply_chunks(dialect, &paused, StopReason::Paused).await?);
    assert_eq!((end.stop, &*chunks), (Some(StopReason::Paused), &[render::text("I look.")][..]));
    let (request, verbatim) = next_request(dialect, (chunks, end), &[]);
    assert_replayed(dialect, &body(&request), &verbatim);

    let server = TestServer::start([message(
        dialect,
        &[Utterance::HostedResult, Utterance::Text("Found.")],
        StopReason::End,
    )?]);
    let server = server.await;
    let mut request = request;
    request.settings.base_url = Some(server.url.clone());
    let (chunks, _) = split_end(all_ok(collect_reply(&render::http_model(), request).await));
    let run = runs(&chunks);
    assert_eq!(run.len(), 1, "{chunks:?}");
    assert_eq!((&*run[0].name, &run[0].args), (WEB, &Ok(hosted.args)));
    assert_eq!(run[0].provider_result, Some(hosted.result));
    Ok(())
}
