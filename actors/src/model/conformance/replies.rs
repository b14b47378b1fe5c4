//! Cases of how replies are read.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::render;
use super::render::{
    call, pieces, reply_chunks, reply_to, split_end, text, without_unsupported_ids,
};
use super::{Dialect, MessageEnd, Rendered, Unsupported, Utterance};
use crate::model::test_server::{TestServer, all_ok, collect_reply};
use crate::model::{CallPiece, CallPieceSink, ModelRequest, ReplyChunk};

pub(super) async fn text_comes_in_its_pieces(dialect: &dyn Dialect) -> Rendered<()> {
    let reply = reply_chunks(
        dialect,
        &[Utterance::Text("Grüß"), Utterance::Text(" Gott 🦀")],
        StopReason::End,
    )
    .await?;
    let (chunks, done) = split_end(reply);
    assert_eq!(chunks, [text("Grüß"), text(" Gott 🦀")]);
    assert_eq!(done.verbatim, None, "text alone is lost in no other form");
    Ok(())
}

pub(super) async fn thinking_is_apart(dialect: &dyn Dialect) -> Rendered<()> {
    let thinking = Utterance::Thinking(&["Hm.", " So."], None);
    let (chunks, _) = split_end(
        reply_chunks(dialect, &[thinking, Utterance::Text("Yes")], StopReason::End).await?,
    );
    let thought = |text: &str| ReplyChunk::Thinking(text.to_owned());
    assert_eq!(chunks, [thought("Hm."), thought(" So."), text("Yes")]);
    Ok(())
}

const TWO_CALLS: [Utterance<'_>; 3] = [
    Utterance::Text("Über "),
    Utterance::Call("call_a", "search", &["{\"q\":", " \"größe 🦀\"}"]),
    Utterance::Call("call_b", "mail", &["{\"id\": 123456789", "01234567890}"]),
];

fn two_calls(dialect: &dyn Dialect) -> [ReplyChunk; 3] {
    [
        text("Über "),
        call(dialect, "call_a", "search", Ok(json!({"q": "größe 🦀"}))),
        call(dialect, "call_b", "mail", Ok(json!({"id": 12345678901234567890_u64}))),
    ]
}

pub(super) async fn parallel_calls_are_whole(dialect: &dyn Dialect) -> Rendered<()> {
    let (chunks, done) = split_end(reply_chunks(dialect, &TWO_CALLS, StopReason::ToolCalls).await?);
    assert_eq!(without_unsupported_ids(dialect, chunks), two_calls(dialect));
    assert_eq!(done.stop, Some(StopReason::ToolCalls));
    Ok(())
}

pub(super) async fn arguments_come_in_pieces(dialect: &dyn Dialect) -> Rendered<()> {
    let (server, sink, pieces) = {
        let server =
            TestServer::start([render::message(dialect, &TWO_CALLS, StopReason::ToolCalls)?]);
        let (sender, pieces) = std::sync::mpsc::channel();
        let sink = CallPieceSink::new(move |piece| sender.send(piece).unwrap());
        (server.await, sink, pieces)
    };
    let request = render::request_to(dialect, &server.url);
    let tools = render::tools(dialect);
    let request = ModelRequest { tools, call_pieces: sink, ..request };
    let chunks = all_ok(collect_reply(&render::http_model(), request).await);
    let pieces: Vec<CallPiece> = pieces.try_iter().collect();
    if pieces.is_empty() {
        return Err(Unsupported("calls come whole"));
    }
    let calls = chunks.iter().filter_map(|chunk| match chunk {
        ReplyChunk::Call(call) => Some(call),
        ReplyChunk::Text(_) | ReplyChunk::Thinking(_) | ReplyChunk::Done(_) => None,
    });
    for (index, call) in calls.enumerate() {
        let own: Vec<&CallPiece> = pieces.iter().filter(|piece| piece.index == index).collect();
        assert_eq!(own[0].name.as_ref(), Some(&call.name));
        assert!(own.len() > 2 && own[1..].iter().all(|piece| piece.name.is_none()), "{own:?}");
        let args: String = own.iter().map(|piece| piece.args_text.as_str()).collect();
        assert_eq!(&serde_json::from_str::<Value>(&args).unwrap(), call.args.as_ref().unwrap());
    }
    Ok(())
}

pub(super) async fn no_arguments_are_an_empty_object(dialect: &dyn Dialect) -> Rendered<()> {
    let (chunks, _) = split_end(
        reply_chunks(dialect, &[Utterance::Call("c", "search", &[])], StopReason::ToolCalls)
            .await?,
    );
    assert_eq!(
        without_unsupported_ids(dialect, chunks),
        [call(dialect, "c", "search", Ok(json!({})))]
    );
    Ok(())
}

pub(super) async fn broken_arguments_are_kept(dialect: &dyn Dialect) -> Rendered<()> {
    let broken = Utterance::Call("c", "search", &["{\"q\": ", "tru"]);
    let (chunks, _) = split_end(reply_chunks(dialect, &[broken], StopReason::ToolCalls).await?);
    assert_eq!(
        without_unsupported_ids(dialect, chunks),
        [call(dialect, "c", "search", Err("{\"q\": tru"))]
    );
    Ok(())
}

pub(super) async fn large_numbers_are_kept(dialect: &dyn Dialect) -> Rendered<()> {
    let args = "{\"id\":12345678901234567890123}";
    let (chunks, _) = split_end(
        reply_chunks(dialect, &[Utterance::Call("c", "mail", &[args])], StopReason::ToolCalls)
            .await?,
    );
    assert_eq!(without_unsupported_ids(dialect, chunks), [call(dialect, "c", "mail", Err(args))]);
    Ok(())
}

/// Every byte ends a piece of some stream, and in the first one every byte is a piece.
pub(super) async fn bytes_may_be_split_anywhere(dialect: &dyn Dialect) -> Rendered<()> {
    let stream =
        dialect.frames(&TWO_CALLS, render::end(StopReason::ToolCalls))?.concat().into_bytes();
    let split = |(size, from): (usize, usize)| {
        let (begin, rest) = stream.split_at(from);
        let pieces = [begin].into_iter().chain(rest.chunks(size));
        dialect.answer(pieces.map(<[u8]>::to_vec).collect())
    };
    let splits = [1, 2, 3, 7, 64].into_iter().flat_map(|size| (0..size).map(move |at| (size, at)));
    let splits: Vec<(usize, usize)> = splits.collect();
    let server = TestServer::start(splits.iter().copied().map(split)).await;
    let model = render::http_model();
    let request =
        ModelRequest { tools: render::tools(dialect), ..render::request_to(dialect, &server.url) };
    for (size, from) in splits {
        let (chunks, _) = split_end(all_ok(collect_reply(&model, request.clone()).await));
        assert_eq!(
            without_unsupported_ids(dialect, chunks),
            two_calls(dialect),
            "pieces of {size} from {from}"
        );
    }
    Ok(())
}

async fn usage(dialect: &dyn Dialect, usage: Usage) -> Rendered<()> {
    let frames = dialect
        .frames(&[Utterance::Text("Hi")], Some(MessageEnd { stop: StopReason::End, usage }))?;
    let (_, done) = split_end(all_ok(reply_to(dialect, pieces(dialect, frames)).await));
    assert_eq!(done.usage, Some(usage));
    Ok(())
}

pub(super) async fn usage_counts_all_input(dialect: &dyn Dialect) -> Rendered<()> {
    let cached =
        Usage { input_tokens: 100, output_tokens: 50, cached_tokens: 60, ..Usage::default() };
    usage(dialect, cached).await
}

pub(super) async fn usage_counts_what_was_written(dialect: &dyn Dialect) -> Rendered<()> {
    let cached_tokens = 60;
    let written = Usage {
        input_tokens: 100,
        output_tokens: 50,
        cached_tokens,
        cache_write_tokens: 30,
        ..Usage::default()
    };
    usage(dialect, written).await
}

pub(super) async fn it_ends(dialect: &dyn Dialect) -> Rendered<()> {
    stops(dialect, &[Utterance::Text("Hi")], StopReason::End).await
}

pub(super) async fn it_waits_for_calls(dialect: &dyn Dialect) -> Rendered<()> {
    stops(dialect, &[Utterance::Call("c", "search", &["{}"])], StopReason::ToolCalls).await
}

pub(super) async fn it_is_cut(dialect: &dyn Dialect) -> Rendered<()> {
    stops(dialect, &[Utterance::Text("Hi, I")], StopReason::MaxTokens).await?;
    // Where arguments are always complete, none is cut.
    let cut = |args: &'static [&'static str]| {
        [Utterance::Text("I"), Utterance::Call("c", "search", args)]
    };
    for args in [&[] as &[&str], &["{\"q\": "]] {
        let Ok(reply) = reply_chunks(dialect, &cut(args), StopReason::MaxTokens).await else {
            continue;
        };
        let (chunks, _) = split_end(reply);
        assert_eq!(chunks[1..], [call(dialect, "c", "search", Err(&args.concat()))]);
    }
    Ok(())
}

pub(super) async fn it_refuses_in_words(dialect: &dyn Dialect) -> Rendered<()> {
    stops(dialect, &[Utterance::Refusal("I will not.")], StopReason::Refusal).await?;
    let (chunks, _) = split_end(
        reply_chunks(dialect, &[Utterance::Refusal("I will not.")], StopReason::Refusal).await?,
    );
    assert_eq!(chunks, [text("I will not.")]);
    Ok(())
}

async fn stops(
    dialect: &dyn Dialect,
    utterances: &[Utterance<'_>],
    stop: StopReason,
) -> Rendered<()> {
    let (chunks, done) = split_end(reply_chunks(dialect, utterances, stop).await?);
    assert_eq!(done.stop, Some(stop));
    assert_eq!(chunks.len(), utterances.len());
    Ok(())
}

pub(super) async fn keep_alives_are_skipped(dialect: &dyn Dialect) -> Rendered<()> {
    let alive = Utterance::KeepAlive;
    let utterances = [
        alive,
        Utterance::Text("Hi"),
        alive,
        alive,
        Utterance::Call("c", "search", &["{}"]),
        alive,
    ];
    let (chunks, _) = split_end(reply_chunks(dialect, &utterances, StopReason::ToolCalls).await?);
    assert_eq!(
        without_unsupported_ids(dialect, chunks),
        [text("Hi"), call(dialect, "c", "search", Ok(json!({})))]
    );
    Ok(())
}

pub(super) async fn one_id_twice_is_two_calls(dialect: &dyn Dialect) -> Rendered<()> {
    let twice = [
        Utterance::Call("c", "search", &["{\"q\": \"a\"}"]),
        Utterance::Call("c", "search", &["{\"q\": \"b\"}"]),
    ];
    let (chunks, _) = split_end(reply_chunks(dialect, &twice, StopReason::ToolCalls).await?);
    let args = ["a", "b"].map(|q| call(dialect, "c", "search", Ok(json!({"q": q}))));
    assert_eq!(without_unsupported_ids(dialect, chunks), args);
    Ok(())
}

pub(super) async fn text_around_a_call_is_kept(dialect: &dyn Dialect) -> Rendered<()> {
    let utterances = [
        Utterance::Text("I look"),
        Utterance::Call("c", "search", &["{}"]),
        Utterance::Text(" now."),
    ];
    let (chunks, _) = split_end(reply_chunks(dialect, &utterances, StopReason::ToolCalls).await?);
    let looked = call(dialect, "c", "search", Ok(json!({})));
    assert_eq!(without_unsupported_ids(dialect, chunks), [text("I look"), text(" now."), looked]);
    Ok(())
}
