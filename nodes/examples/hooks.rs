//! Hooks: one that adds to the context, one that redacts the stream, and one that denies a tool call.
#![allow(clippy::print_stdout, reason = "it shows what came out")]

mod client;

use std::error::Error;

use abide::{
    Config, Extensions, Hook, HookEvent, HookPayload, HookReply, Hooks, Node, StoreUrl,
    async_trait, typed,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

// ANCHOR: hooks
/// Adds a fact to the context of every model step.
struct Facts;

#[async_trait]
impl Hook for Facts {
    async fn call(&self, _: &HookEvent) -> HookReply {
        HookReply::add("The customer has a premium contract.")
    }
}

/// Replaces digits in all that the model says, before anybody sees it and before it is stored.
struct RedactDigits;

#[async_trait]
impl Hook for RedactDigits {
    async fn call(&self, event: &HookEvent) -> HookReply {
        match &event.payload {
            HookPayload::Stream { text, .. } => {
                HookReply::Show(text.replace(|c: char| c.is_ascii_digit(), "#"))
            }
            _ => HookReply::GoOn,
        }
    }
}

/// Denies calls that delete a protected file.
struct ProtectFiles;

#[async_trait]
impl Hook for ProtectFiles {
    async fn call(&self, event: &HookEvent) -> HookReply {
        match &event.payload {
            HookPayload::Call { args, .. } if args["path"] == "contract.pdf" => {
                HookReply::Deny("contract.pdf is protected".to_owned())
            }
            _ => HookReply::GoOn,
        }
    }
}

fn hooks() -> Hooks {
    Hooks::new()
        .with("facts", Facts)
        .with("redact_digits", RedactDigits)
        .with("protect_files", ProtectFiles)
}
// ANCHOR_END: hooks

#[derive(Deserialize, JsonSchema)]
struct File {
    path: String,
}

fn extensions() -> Extensions {
    let delete = typed("Deletes a file.", |file: File, _| {
        Box::pin(async move { format!("deleted {}", file.path) })
    });
    Extensions::new().with_tool("delete", delete).with_hooks(hooks())
}

// ANCHOR: agent
fn agent() -> Value {
    json!({
        "name": "clerk",
        "hooks": [
            {"on": "pre", "native": "facts"},
            {"on": "stream", "native": "redact_digits"},
            {"on": "PreToolUse", "native": "protect_files", "match": "delete"},
        ],
        "model": {"provider": "scripted", "script": [
            {"text": "Your number is 4711.",
             "calls": [{"name": "delete", "args": {"path": "contract.pdf"}}]},
            {"text": "The tool said: {{ results.delete.error }}"},
        ]},
        "tools": [{"name": "delete", "run": {"native": "delete"}}],
    })
}
// ANCHOR_END: agent

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
    for text in client::send(node.public, "c1", "clerk", "Delete my contract").await? {
        println!("assistant: {text}");
    }
    node.stop().await;
    Ok(())
}
