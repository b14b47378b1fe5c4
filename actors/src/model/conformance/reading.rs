//! What comes of a reply.

use abide_conversation::message::{StopReason, Usage};
use serde_json::json;

use super::draw::{self, call, done, heard, parts, pieces, plain, text};
use super::{Dialect, Drawn, End, Say};
use crate::model::testing::{Server, answered, whole};
use crate::model::{ReplyChunk, Request};

pub(super) async fn text_comes_in_its_pieces(on: &dyn Dialect) -> Drawn<()> {
    let heard = parts(on, &[Say::Text("Grüß"), Say::Text(" Gott 🦀")], StopReason::End).await?;
    let (parts, done) = done(heard);
    assert_eq!(parts, [text("Grüß"), text(" Gott 🦀")]);
    assert_eq!(done.verbatim, None, "text alone is lost in no other form");
    Ok(())
}

pub(super) async fn thinking_is_apart(on: &dyn Dialect) -> Drawn<()> {
    let thinking = Say::Thinking(&["Hm.", " So."], None);
    let (parts, _) = done(parts(on, &[thinking, Say::Text("Yes")], StopReason::End).await?);
    let thought = |text: &str| ReplyChunk::Thinking(text.to_owned());
    assert_eq!(parts, [thought("Hm."), thought(" So."), text("Yes")]);
    Ok(())
}

const TWO_CALLS: [Say<'_>; 3] = [
    Say::Text("Über "),
    Say::Call("call_a", "search", &["{\"q\":", " \"größe 🦀\"}"]),
    Say::Call("call_b", "mail", &["{\"id\": 123456789", "01234567890}"]),
];

fn two_calls(on: &dyn Dialect) -> [ReplyChunk; 3] {
    [
        text("Über "),
        call(on, "call_a", "search", Ok(json!({"q": "größe 🦀"}))),
        call(on, "call_b", "mail", Ok(json!({"id": 12345678901234567890_u64}))),
    ]
}

pub(super) async fn parallel_calls_are_whole(on: &dyn Dialect) -> Drawn<()> {
    let (parts, done) = done(parts(on, &TWO_CALLS, StopReason::ToolCalls).await?);
    assert_eq!(plain(on, parts), two_calls(on));
    assert_eq!(done.stop, Some(StopReason::ToolCalls));
    Ok(())
}

pub(super) async fn no_arguments_are_an_empty_object(on: &dyn Dialect) -> Drawn<()> {
    let (parts, _) =
        done(parts(on, &[Say::Call("c", "search", &[])], StopReason::ToolCalls).await?);
    assert_eq!(plain(on, parts), [call(on, "c", "search", Ok(json!({})))]);
    Ok(())
}

pub(super) async fn broken_arguments_are_kept(on: &dyn Dialect) -> Drawn<()> {
    let broken = Say::Call("c", "search", &["{\"q\": ", "tru"]);
    let (parts, _) = done(parts(on, &[broken], StopReason::ToolCalls).await?);
    assert_eq!(plain(on, parts), [call(on, "c", "search", Err("{\"q\": tru"))]);
    Ok(())
}

pub(super) async fn large_numbers_are_kept(on: &dyn Dialect) -> Drawn<()> {
    let args = "{\"id\":12345678901234567890123}";
    let (parts, _) =
        done(parts(on, &[Say::Call("c", "mail", &[args])], StopReason::ToolCalls).await?);
    assert_eq!(plain(on, parts), [call(on, "c", "mail", Err(args))]);
    Ok(())
}

/// Every byte ends a piece of some stream, and in the first one every byte is a piece.
pub(super) async fn bytes_may_be_split_anywhere(on: &dyn Dialect) -> Drawn<()> {
    let stream = on.frames(&TWO_CALLS, draw::end(StopReason::ToolCalls))?.concat().into_bytes();
    let split = |(size, from): (usize, usize)| {
        let (begin, rest) = stream.split_at(from);
        let pieces = [begin].into_iter().chain(rest.chunks(size));
        on.answer(pieces.map(<[u8]>::to_vec).collect())
    };
    let splits = [1, 2, 3, 7, 64].into_iter().flat_map(|size| (0..size).map(move |at| (size, at)));
    let splits: Vec<(usize, usize)> = splits.collect();
    let server = Server::start(splits.iter().copied().map(split)).await;
    let wire = draw::wire();
    let request = Request { tools: draw::tools(on), ..draw::asking(on, &server.url) };
    for (size, from) in splits {
        let (parts, _) = done(whole(answered(&wire, request.clone()).await));
        assert_eq!(plain(on, parts), two_calls(on), "pieces of {size} from {from}");
    }
    Ok(())
}

async fn usage(on: &dyn Dialect, usage: Usage) -> Drawn<()> {
    let frames = on.frames(&[Say::Text("Hi")], Some(End { stop: StopReason::End, usage }))?;
    let (_, done) = done(whole(heard(on, pieces(on, frames)).await));
    assert_eq!(done.usage, Some(usage));
    Ok(())
}

pub(super) async fn usage_counts_all_input(on: &dyn Dialect) -> Drawn<()> {
    let cached =
        Usage { input_tokens: 100, output_tokens: 50, cached_tokens: 60, ..Usage::default() };
    usage(on, cached).await
}

pub(super) async fn usage_counts_what_was_written(on: &dyn Dialect) -> Drawn<()> {
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

pub(super) async fn it_ends(on: &dyn Dialect) -> Drawn<()> {
    stops(on, &[Say::Text("Hi")], StopReason::End).await
}

pub(super) async fn it_waits_for_calls(on: &dyn Dialect) -> Drawn<()> {
    stops(on, &[Say::Call("c", "search", &["{}"])], StopReason::ToolCalls).await
}

pub(super) async fn it_is_cut(on: &dyn Dialect) -> Drawn<()> {
    stops(on, &[Say::Text("Hi, I")], StopReason::MaxTokens).await?;
    // Where arguments come whole, none is cut.
    let cut = |args: &'static [&'static str]| [Say::Text("I"), Say::Call("c", "search", args)];
    for args in [&[] as &[&str], &["{\"q\": "]] {
        let Ok(heard) = parts(on, &cut(args), StopReason::MaxTokens).await else { continue };
        let (parts, _) = done(heard);
        assert_eq!(parts[1..], [call(on, "c", "search", Err(&args.concat()))]);
    }
    Ok(())
}

pub(super) async fn it_refuses_in_words(on: &dyn Dialect) -> Drawn<()> {
    stops(on, &[Say::Refuses("I will not.")], StopReason::Refusal).await?;
    let (parts, _) = done(parts(on, &[Say::Refuses("I will not.")], StopReason::Refusal).await?);
    assert_eq!(parts, [text("I will not.")]);
    Ok(())
}

async fn stops(on: &dyn Dialect, said: &[Say<'_>], stop: StopReason) -> Drawn<()> {
    let (parts, done) = done(parts(on, said, stop).await?);
    assert_eq!(done.stop, Some(stop));
    assert_eq!(parts.len(), said.len());
    Ok(())
}

pub(super) async fn keep_alives_are_skipped(on: &dyn Dialect) -> Drawn<()> {
    let alive = Say::KeepAlive;
    let said = [alive, Say::Text("Hi"), alive, alive, Say::Call("c", "search", &["{}"]), alive];
    let (parts, _) = done(parts(on, &said, StopReason::ToolCalls).await?);
    assert_eq!(plain(on, parts), [text("Hi"), call(on, "c", "search", Ok(json!({})))]);
    Ok(())
}

pub(super) async fn one_id_twice_is_two_calls(on: &dyn Dialect) -> Drawn<()> {
    let twice = [
        Say::Call("c", "search", &["{\"q\": \"a\"}"]),
        Say::Call("c", "search", &["{\"q\": \"b\"}"]),
    ];
    let (parts, _) = done(parts(on, &twice, StopReason::ToolCalls).await?);
    let args = ["a", "b"].map(|q| call(on, "c", "search", Ok(json!({"q": q}))));
    assert_eq!(plain(on, parts), args);
    Ok(())
}

pub(super) async fn text_around_a_call_is_kept(on: &dyn Dialect) -> Drawn<()> {
    let said = [Say::Text("I look"), Say::Call("c", "search", &["{}"]), Say::Text(" now.")];
    let (parts, _) = done(parts(on, &said, StopReason::ToolCalls).await?);
    let looked = call(on, "c", "search", Ok(json!({})));
    assert_eq!(plain(on, parts), [text("I look"), text(" now."), looked]);
    Ok(())
}
