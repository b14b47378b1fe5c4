//! One list of cases that the adapter of every provider passes, over a real socket.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod anthropic;
mod cases;
mod failing;
mod gemini;
mod ollama;
mod openai;
mod openai_responses;
mod reading;
mod render;
mod replaying;
mod table;
mod writing;

use abide_conversation::message::{StopReason, Usage};
use serde_json::Value;

use self::cases::CASES;
use super::Provider;
use super::test_server::Answer;

/// The dialects that are spoken, in the order of the table's columns.
const DIALECTS: [&dyn Dialect; 5] = [
    &openai::OpenaiDialect,
    &openai_responses::ResponsesDialect,
    &anthropic::AnthropicDialect,
    &gemini::GeminiDialect,
    &ollama::OllamaDialect,
];

/// Why a dialect has no word for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unsupported(&'static str);

type Rendered<T> = Result<T, Unsupported>;

/// A piece of what a provider says, in the order in which it says it.
#[derive(Clone, Copy, Debug)]
enum Utterance<'a> {
    /// One delta of text; several in a row are of one block.
    Text(&'a str),
    /// Text for which the provider names its source.
    Cited(&'a str),
    /// Deltas of thinking, and the signature that must go back with it.
    Thinking(&'a [&'a str], Option<&'a str>),
    /// Thinking that nobody but the provider can read.
    Sealed(&'a str),
    /// A call, its arguments in fragments.
    Call(&'a str, &'a str, &'a [&'a str]),
    /// The provider runs the tool of [`Dialect::hosted`], with its result.
    Hosted,
    /// It begins to run it.
    HostedStart,
    /// It has run what a message before this one began.
    HostedResult,
    /// Words of a refusal.
    Refusal(&'a str),
    /// What only keeps the connection open.
    KeepAlive,
}

/// How a message ends.
#[derive(Clone, Copy, Debug)]
struct MessageEnd {
    stop: StopReason,
    usage: Usage,
}

/// How a provider says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProviderError {
    RateLimit,
    Overload,
    BadRequest,
    TooLong,
}

/// A tool that the provider runs, and one run of it.
struct HostedRun {
    /// Its `provider_options`.
    options: Value,
    args: Value,
    /// As it stands in the provider's reply.
    result: Value,
}

/// How a provider draws what the cases have it say, and where things stand in a request to it.
trait Dialect: Sync {
    fn provider(&self) -> Provider;

    /// The frames of a message that says this; without an end, of its beginning.
    fn frames(&self, said: &[Utterance<'_>], end: Option<MessageEnd>) -> Rendered<Vec<String>>;

    /// A frame that holds this and nothing else.
    fn frame(&self, data: &str) -> String {
        format!("data: {data}\n\n")
    }

    /// The answer that streams these pieces.
    fn answer(&self, pieces: Vec<Vec<u8>>) -> Answer {
        Answer::stream(pieces)
    }

    /// Whether calls have ids of their own.
    fn has_ids(&self) -> bool {
        true
    }

    /// Status and body of an error; its message has `said` in it.
    fn error(&self, trouble: ProviderError, said: &str) -> (u16, Value);

    /// The frame of an error in the stream.
    fn stream_error(&self, trouble: ProviderError, said: &str) -> Rendered<String>;

    /// Where the list of messages stands in a body.
    fn messages(&self) -> &'static str;

    /// The ids, or else the names, of the calls in a body, in their order.
    fn calls(&self, body: &Value) -> Vec<String>;

    /// The ids, or else the names, that the results in a body answer, in their order.
    fn results(&self, body: &Value) -> Vec<String>;

    /// Whether the provider takes such an id.
    fn is_legal(&self, id: &str) -> bool;

    /// How an image of [`render::PNG`] stands in a body.
    fn image(&self) -> Rendered<Value>;

    /// How a document of [`render::PDF`], titled `R`, stands in a body.
    fn document(&self) -> Rendered<Value>;

    /// What a body has for a structured answer of this schema.
    fn structured_output(&self, schema: &Value) -> Rendered<Value>;

    /// The texts in a body at which a cache mark stands, in their order.
    fn cache_marks(&self, body: &Value) -> Rendered<Vec<String>>;

    /// A body without its cache marks.
    fn unmarked(&self, body: &Value) -> Value {
        body.clone()
    }

    /// Where a body for the provider's own server names the conversation, for its cache.
    fn cache_key(&self) -> Rendered<&'static str>;

    /// The tool of [`Say::Hosted`].
    fn hosted(&self) -> Rendered<HostedRun>;
}

/// One thing that every adapter does.
struct Case {
    /// What it does, as the table says it.
    name: &'static str,
    run: fn(&'static dyn Dialect) -> futures::future::BoxFuture<'static, Rendered<()>>,
}

/// Runs all cases; what a wire has no word for is told with its reason.
async fn run_cases(dialect: &'static dyn Dialect) -> Vec<Rendered<()>> {
    let mut verdicts = Vec::new();
    for case in CASES {
        // Shown beside a failure, to say whose it is.
        println!("{}: {}", dialect.provider().name(), case.name);
        verdicts.push((case.run)(dialect).await);
    }
    verdicts
}
