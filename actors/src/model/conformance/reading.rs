//! Cases of how replies are read.

use abide_conversation::message::{StopReason, Usage};
use serde_json::json;

use super::render;
use super::render::{
    call, pieces, reply_chunks, reply_to, split_end, text, without_unsupported_ids,
};
use super::{Dialect, MessageEnd, Rendered, Utterance};
use crate::model::test_server::{TestServer, all_ok, collect_reply};
use crate::model::{ModelRequest, ReplyChunk};

pub(super) async fn text_comes_in_its_pieces(on: &dyn Dialect) -> Rendered<()> {
    let heard =
        reply_chunks(on, &[Utterance::Text("Grüß"), Utterance::Text(" Gott 🦀")], StopReason::End)
            .await?;
    let (parts, done) = split_end(heard);
    assert_eq!(parts, [text("Grüß"), text(" Gott 🦀")]);
    assert_eq!(done.verbatim, None, "text alone is lost in no other form");
    Ok(())
}

pub(super) async fn thinking_is_apart(on: &dyn Dialect) -> Rendered<()> {
    let thinking = Utterance::Thinking(&["Hm.", " So."], None);
    let (parts, _) =
        split_end(reply_chunks(on, &[thinking, Utterance::Text("Yes")], StopReason::End).await?);
    let thought = |text: &str| ReplyChunk::Thinking(text.to_owned());
    assert_eq!(parts, [thought("Hm."), thought(" So."), text("Yes")]);
    Ok(())
}

const TWO_CALLS: [Utterance<'_>; 3] = [
    Utterance::Text("Über "),
    Utterance::Call("call_a", "search", &["{\"q\":", " \"größe 🦀\"}"]),
    Utterance::Call("call_b", "mail", &["{\"id\": 123456789", "01234567890}"]),
];

fn two_calls(on: &dyn Dialect) -> [ReplyChunk; 3] {
    [
        text("Über "),
        call(on, "call_a", "search", Ok(json!({"q": "größe 🦀"}))),
        call(on, "call_b", "mail", Ok(json!({"id": 12345678901234567890_u64}))),
    ]
}

pub(super) async fn parallel_calls_are_whole(on: &dyn Dialect) -> Rendered<()> {
    let (parts, done) = split_end(reply_chunks(on, &TWO_CALLS, StopReason::ToolCalls).await?);
    assert_eq!(without_unsupported_ids(on, parts), two_calls(on));
    assert_eq!(done.stop, Some(StopReason::ToolCalls));
    Ok(())
}

pub(super) async fn no_arguments_are_an_empty_object(on: &dyn Dialect) -> Rendered<()> {
    let (parts, _) = split_end(
        reply_chunks(on, &[Utterance::Call("c", "search", &[])], StopReason::ToolCalls).await?,
    );
    assert_eq!(without_unsupported_ids(on, parts), [call(on, "c", "search", Ok(json!({})))]);
    Ok(())
}

pub(super) async fn broken_arguments_are_kept(on: &dyn Dialect) -> Rendered<()> {
    let broken = Utterance::Call("c", "search", &["{\"q\": ", "tru"]);
    let (parts, _) = split_end(reply_chunks(on, &[broken], StopReason::ToolCalls).await?);
    assert_eq!(without_unsupported_ids(on, parts), [call(on, "c", "search", Err("{\"q\": tru"))]);
    Ok(())
}

pub(super) async fn large_numbers_are_kept(on: &dyn Dialect) -> Rendered<()> {
    let args = "{\"id\":12345678901234567890123}";
    let (parts, _) = split_end(
        reply_chunks(on, &[Utterance::Call("c", "mail", &[args])], StopReason::ToolCalls).await?,
    );
    assert_eq!(without_unsupported_ids(on, parts), [call(on, "c", "mail", Err(args))]);
    Ok(())
}

/// Every byte ends a piece of some stream, and in the first one every byte is a piece.
pub(super) async fn bytes_may_be_split_anywhere(on: &dyn Dialect) -> Rendered<()> {
    let stream = on.frames(&TWO_CALLS, render::end(StopReason::ToolCalls))?.concat().into_bytes();
    let split = |(size, from): (usize, usize)| {
        let (begin, rest) = stream.split_at(from);
        let pieces = [begin].into_iter().chain(rest.chunks(size));
        on.answer(pieces.map(<[u8]>::to_vec).collect())
    };
    let splits = [1, 2, 3, 7, 64].into_iter().flat_map(|size| (0..size).map(move |at| (size, at)));
    let splits: Vec<(usize, usize)> = splits.collect();
    let server = TestServer::start(splits.iter().copied().map(split)).await;
    let wire = render::http_model();
    let request = ModelRequest { tools: render::tools(on), ..render::request_to(on, &server.url) };
    for (size, from) in splits {
        let (parts, _) = split_end(all_ok(collect_reply(&wire, request.clone()).await));
        assert_eq!(
            without_unsupported_ids(on, parts),
            two_calls(on),
            "pieces of {size} from {from}"
        );
    }
    Ok(())
}

async fn usage(on: &dyn Dialect, usage: Usage) -> Rendered<()> {
    let frames =
        on.frames(&[Utterance::Text("Hi")], Some(MessageEnd { stop: StopReason::End, usage }))?;
    let (_, done) = split_end(all_ok(reply_to(on, pieces(on, frames)).await));
    assert_eq!(done.usage, Some(usage));
    Ok(())
}

pub(super) async fn usage_counts_all_input(on: &dyn Dialect) -> Rendered<()> {
    let cached =
        Usage { input_tokens: 100, output_tokens: 50, cached_tokens: 60, ..Usage::default() };
    usage(on, cached).await
}

pub(super) async fn usage_counts_what_was_written(on: &dyn Dialect) -> Rendered<()> {
    let cached_tokens = 60;
    let written = Usage {
        input_tokens: 100,
        output_tokens: 50,
        cached_tokens,
        cache_write_tokens: 30,
        ..Usage::default()
    };
    usage(on, written).await
}

pub(super) async fn it_ends(on: &dyn Dialect) -> Rendered<()> {
    stops(on, &[Utterance::Text("Hi")], StopReason::End).await
}

pub(super) async fn it_waits_for_calls(on: &dyn Dialect) -> Rendered<()> {
    stops(on, &[Utterance::Call("c", "search", &["{}"])], StopReason::ToolCalls).await
}

pub(super) async fn it_is_cut(on: &dyn Dialect) -> Rendered<()> {
    stops(on, &[Utterance::Text("Hi, I")], StopReason::MaxTokens).await?;
    // Where arguments are always complete, none is cut.
    let cut = |args: &'static [&'static str]| {
        [Utterance::Text("I"), Utterance::Call("c", "search", args)]
    };
    for args in [&[] as &[&str], &["{\"q\": "]] {
        let Ok(heard) = reply_chunks(on, &cut(args), StopReason::MaxTokens).await else { continue };
        let (parts, _) = split_end(heard);
        assert_eq!(parts[1..], [call(on, "c", "search", Err(&args.concat()))]);
    }
    Ok(())
}

pub(super) async fn it_refuses_in_words(on: &dyn Dialect) -> Rendered<()> {
    stops(on, &[Utterance::Refusal("I will not.")], StopReason::Refusal).await?;
    let (parts, _) = split_end(
        reply_chunks(on, &[Utterance::Refusal("I will not.")], StopReason::Refusal).await?,
    );
    assert_eq!(parts, [text("I will not.")]);
    Ok(())
}

async fn stops(on: &dyn Dialect, said: &[Utterance<'_>], stop: StopReason) -> Rendered<()> {
    let (parts, done) = split_end(reply_chunks(on, said, stop).await?);
    assert_eq!(done.stop, Some(stop));
    assert_eq!(parts.len(), said.len());
    Ok(())
}

pub(super) async fn keep_alives_are_skipped(on: &dyn Dialect) -> Rendered<()> {
    let alive = Utterance::KeepAlive;
    let said = [
        alive,
        Utterance::Text("Hi"),
        alive,
        alive,
        Utterance::Call("c", "search", &["{}"]),
        alive,
    ];
    let (parts, _) = split_end(reply_chunks(on, &said, StopReason::ToolCalls).await?);
    assert_eq!(
        without_unsupported_ids(on, parts),
        [text("Hi"), call(on, "c", "search", Ok(json!({})))]
    );
    Ok(())
}

pub(super) async fn one_id_twice_is_two_calls(on: &dyn Dialect) -> Rendered<()> {
    let twice = [
        Utterance::Call("c", "search", &["{\"q\": \"a\"}"]),
        Utterance::Call("c", "search", &["{\"q\": \"b\"}"]),
    ];
    let (parts, _) = split_end(reply_chunks(on, &twice, StopReason::ToolCalls).await?);
    let args = ["a", "b"].map(|q| call(on, "c", "search", Ok(json!({"q": q}))));
    assert_eq!(without_unsupported_ids(on, parts), args);
    Ok(())
}

pub(super) async fn text_around_a_call_is_kept(on: &dyn Dialect) -> Rendered<()> {
    let said = [
        Utterance::Text("I look"),
        Utterance::Call("c", "search", &["{}"]),
        Utterance::Text(" now."),
    ];
    let (parts, _) = split_end(reply_chunks(on, &said, StopReason::ToolCalls).await?);
    let looked = call(on, "c", "search", Ok(json!({})));
    assert_eq!(without_unsupported_ids(on, parts), [text("I look"), text(" now."), looked]);
    Ok(())
}
