//! Middleware: code around every run of a server tool, which logs runs and refuses large payments.
#![allow(clippy::print_stdout, reason = "it shows what came out")]

mod client;

use std::error::Error;

use abide::{
    Config, Extensions, Middleware, Middlewares, Next, Node, Run, StoreUrl, ToolReturn,
    async_trait, typed,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

// ANCHOR: middleware
/// Prints each run of a tool, and its outcome.
struct PrintRuns;

#[async_trait]
impl Middleware for PrintRuns {
    async fn call(&self, run: &Run, next: Next<'_>) -> ToolReturn {
        let returned = next.run().await;
        println!("{} -> {}", run.grant.args(), json!(returned.outcome));
        returned
    }
}

/// Refuses payments of more than 100.
struct LimitPayments;

#[async_trait]
impl Middleware for LimitPayments {
    async fn call(&self, run: &Run, next: Next<'_>) -> ToolReturn {
        match run.grant.args()["amount"].as_f64() {
            Some(amount) if amount > 100.0 => ToolReturn::error("more than 100 is refused"),
            _ => next.run().await,
        }
    }
}

fn middlewares() -> Middlewares {
    // The first is around every tool of every agent; the other around those of agents that name it.
    Middlewares::new().with_global(PrintRuns).with_named("limit_payments", LimitPayments)
}
// ANCHOR_END: middleware

#[derive(Deserialize, JsonSchema)]
struct Payment {
    amount: f64,
}

fn extensions() -> Extensions {
    let pay = typed("Pays an amount.", |payment: Payment, _| {
        Box::pin(async move { format!("paid {}", payment.amount) })
    });
    Extensions::new().with_tool("pay", pay).with_middlewares(middlewares())
}

fn agent() -> Value {
    json!({
        "name": "cashier",
        "middleware": ["limit_payments"],
        "model": {"provider": "scripted", "script": [
            {"calls": [{"name": "pay", "args": {"amount": 50}}]},
            {"calls": [{"name": "pay", "args": {"amount": 500}}]},
            {"text": "Done: {{ results.pay.error }}."},
        ]},
        "tools": [{"name": "pay", "run": {"native": "pay"}}],
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
    for text in client::send(node.public, "c1", "cashier", "Pay 50, then 500").await? {
        println!("assistant: {text}");
    }
    node.stop().await;
    Ok(())
}
