//! The conformance suite: one list of cases that the format of every provider passes, over a real
//! socket.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod anthropic;
mod cases;
mod failures;
mod gemini;
mod ollama;
mod openai;
mod openai_responses;
mod render;
mod replies;
mod requests;
mod table;
mod verbatim;

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::Value;

use self::cases::CASES;
use super::Provider;
use super::test_server::TestResponse;

/// The dialects, in the order of the table's columns.
const DIALECTS: [&dyn Dialect; 5] = [
    &openai::OpenaiDialect,
    &openai_responses::ResponsesDialect,
    &anthropic::AnthropicDialect,
    &gemini::GeminiDialect,
    &ollama::OllamaDialect,
];

/// Why a provider's API does not support something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unsupported(&'static str);

type Rendered<T> = Result<T, Unsupported>;

/// A piece of a provider's message, in the order of the stream.
#[derive(Clone, Copy, Debug)]
enum Utterance<'a> {
    /// One delta of text; several in a row belong to one block.
    Text(&'a str),
    /// Text with a citation.
    Cited(&'a str),
    /// Deltas of thinking, and the signature that must be sent back with it.
    Thinking(&'a [&'a str], Option<&'a str>),
    /// Thinking that only the provider can read.
    Sealed(&'a str),
    /// A call with its arguments in fragments.
    Call(&'a str, &'a str, &'a [&'a str]),
    /// The provider runs the tool of [`Dialect::hosted`] and sends its result.
    Hosted,
    /// The provider starts the run.
    HostedStart,
    /// The result of the run that an earlier message started.
    HostedResult,
    /// The text of a refusal.
    Refusal(&'a str),
    /// A keep-alive.
    KeepAlive,
}

/// How a message ends.
#[derive(Clone, Copy, Debug)]
struct MessageEnd {
    stop: StopReason,
    usage: Usage,
}

/// The kinds of errors that a provider answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProviderError {
    RateLimit,
    Overload,
    BadRequest,
    TooLong,
}

/// A tool that the provider runs, and one run of it.
struct HostedRun {
    /// The tool's `provider_options`.
    options: Value,
    args: Value,
    /// As in the provider's reply.
    result: Value,
}

/// How a provider writes the messages of the cases, and where things stand in a request to it.
trait Dialect: Sync {
    fn provider(&self) -> Provider;

    /// The frames of a message with these pieces; without an end, of its beginning.
    fn frames(
        &self,
        utterances: &[Utterance<'_>],
        end: Option<MessageEnd>,
    ) -> Rendered<Vec<String>>;

    /// A frame that holds nothing but `data`.
    fn frame(&self, data: &str) -> String {
        format!("data: {data}\n\n")
    }

    /// The response that streams these pieces.
    fn answer(&self, pieces: Vec<Vec<u8>>) -> TestResponse {
        TestResponse::stream(pieces)
    }

    /// Whether calls have ids of their own.
    fn has_ids(&self) -> bool {
        true
    }

    /// The status and body of an error whose message contains `text`.
    fn error(&self, kind: ProviderError, text: &str) -> (u16, Value);

    /// The frame of an error within the stream.
    fn stream_error(&self, kind: ProviderError, text: &str) -> Rendered<String>;

    /// The path of the list of messages in a body.
    fn messages(&self) -> &'static str;

    /// The ids, or else the names, of the calls in a body, in order.
    fn calls(&self, body: &Value) -> Vec<String>;

    /// The ids, or else the names, that the results in a body answer, in order.
    fn results(&self, body: &Value) -> Vec<String>;

    /// Whether the provider accepts such an id.
    fn is_legal(&self, id: &str) -> bool;

    /// An image of [`render::PNG`] as it is sent.
    fn image(&self) -> Rendered<Value>;

    /// A document of [`render::PDF`], titled `R`, as it is sent.
    fn document(&self) -> Rendered<Value>;

    /// The part of a body that requests a structured answer with this schema.
    fn structured_output(&self, schema: &Value) -> Rendered<Value>;

    /// The texts in a body that carry a cache mark, in order.
    fn cache_marks(&self, body: &Value) -> Rendered<Vec<String>>;

    /// A body without its cache marks.
    fn without_cache_marks(&self, body: &Value) -> Value {
        body.clone()
    }

    /// The path of the cache key in a body for the provider's own server.
    fn cache_key(&self) -> Rendered<&'static str>;

    /// The tool of [`Utterance::Hosted`].
    fn hosted(&self) -> Rendered<HostedRun>;
}

/// One behaviour of every provider's format.
struct Case {
    /// The behaviour, as the table's row states it.
    name: &'static str,
    run: fn(&'static dyn Dialect) -> futures::future::BoxFuture<'static, Rendered<()>>,
}

/// Runs all cases; a case that the provider's API does not support returns the reason.
async fn run_cases(dialect: &'static dyn Dialect) -> Vec<Rendered<()>> {
    let mut verdicts = Vec::new();
    for case in CASES {
        // Printed with a failure, to identify the case.
        println!("{}: {}", dialect.provider().name(), case.name);
        verdicts.push((case.run)(dialect).await);
    }
    verdicts
}
