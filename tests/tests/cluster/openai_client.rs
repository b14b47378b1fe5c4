//! OpenAI's own clients, which run in node and Python, one case at a time.

use std::path::PathBuf;

use abide_tests::client::Client;
use abide_tests::deadline::within;
use serde_json::{Value, json};
use tokio::process::Command;

/// The directory of the packages.
fn installed() -> PathBuf {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/openai");
    assert!(packages.exists(), "{} is missing: run .ci/openai", packages.display());
    packages
}

/// The options of a case at this node, with these in addition.
fn options(client: &Client, more: &Value) -> String {
    let mut options = json!({"base": format!("http://{}", client.public_address())});
    for (name, value) in more.as_object().unwrap() {
        options[name] = value.clone();
    }
    options.to_string()
}

/// Runs a case of the client for node, and returns its result.
pub(crate) async fn node(client: &Client, case: &str, more: Value) -> Value {
    let packages = installed();
    let program =
        |machine: &str| packages.join(format!("node_modules/node-linux-{machine}/bin/node"));
    let pinned = ["x64", "arm64"].map(program).into_iter().find(|program| program.exists());
    let mut command = Command::new(pinned.unwrap_or_else(|| PathBuf::from("node")));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/openai/client.mjs")).arg(&packages);
    run(command.arg(case).arg(options(client, &more)), case).await
}

/// Runs a case of the client for Python, and returns its result.
pub(crate) async fn python(client: &Client, case: &str, more: Value) -> Value {
    let mut command = Command::new(installed().join("venv/bin/python"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/openai/client.py"));
    run(command.arg(case).arg(options(client, &more)), case).await
}

async fn run(command: &mut Command, case: &str) -> Value {
    let output = within(&format!("the case {case}"), command.kill_on_drop(true).output()).await;
    let output = output.unwrap();
    assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{case}: {error}: {text}"))
}
