//! Native tools: one as a trait object, and one as a function whose arguments have a Rust type.
#![allow(clippy::print_stdout, reason = "it shows what came out")]

mod client;

use std::error::Error;

use abide::{
    Config, Context, Extensions, NativeTool, Node, StoreUrl, ToolReturn, async_trait, typed,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

// ANCHOR: trait_object
/// Counts the words of a text.
struct CountWords;

#[async_trait]
impl NativeTool for CountWords {
    fn description(&self) -> String {
        "Counts the words of a text.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "required": ["text"],
               "properties": {"text": {"type": "string"}}})
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        let Some(text) = args["text"].as_str() else { return ToolReturn::error("no text") };
        let words = text.split_whitespace().count();
        ToolReturn::ok(json!({"words": words, "attempt": context.attempt}))
    }
}
// ANCHOR_END: trait_object

// ANCHOR: typed
#[derive(Deserialize, JsonSchema)]
struct Amount {
    /// The amount in euros.
    euros: f64,
}

/// How many dollars a euro buys; the program provides it to its tools.
struct DollarRate(f64);

fn extensions() -> Extensions {
    let exchange = typed("Converts euros to dollars.", |amount: Amount, context| {
        Box::pin(async move {
            let DollarRate(rate) = context.dependency().ok_or("no exchange rate")?;
            Ok::<_, &str>(amount.euros * rate)
        })
    });
    Extensions::new()
        .with_tool("count_words", CountWords)
        .with_tool("exchange", exchange)
        .provide(DollarRate(1.5))
}
// ANCHOR_END: typed

fn agent() -> Value {
    json!({
        "name": "assistant",
        "model": {"provider": "scripted", "script": [
            {"calls": [{"name": "count_words", "args": {"text": "{{ user }}"}},
                       {"name": "exchange", "args": {"euros": 2}}]},
            {"text": "{{ results.count_words.result.words }} words; 2 euros are \
                      {{ results.exchange.result }} dollars."},
        ]},
        "tools": [
            {"name": "count_words", "run": {"native": "count_words"}},
            {"name": "exchange", "run": {"native": "exchange"}},
        ],
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    abide::run_launcher_if_asked();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let node = Node::builder(Config::new(StoreUrl::Memory))
        .extensions(extensions())
        .agent(agent())
        .start()
        .await?;
    for text in client::send(node.public, "c1", "assistant", "How long is this?").await? {
        println!("assistant: {text}");
    }
    node.stop().await;
    Ok(())
}
