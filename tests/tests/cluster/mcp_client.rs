//! The official MCP clients, which run in node and Python, one case at a time.

use std::path::PathBuf;

use abide_tests::client::Client;
use abide_tests::deadline::within;
use serde_json::{Value, json};
use tokio::process::Command;

/// An official client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpSdk {
    Node,
    Python,
}

/// Both clients.
pub(crate) const SDKS: [McpSdk; 2] = [McpSdk::Node, McpSdk::Python];
/// The negotiated version of the protocol, and the one before.
pub(crate) const ERAS: [&str; 2] = ["auto", "legacy"];

/// The directory of the packages.
fn installed() -> PathBuf {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/mcp-clients");
    assert!(packages.exists(), "{} is missing: run .ci/mcp-clients", packages.display());
    packages
}

impl McpSdk {
    fn command(self) -> Command {
        let packages = installed();
        match self {
            Self::Node => {
                let program = |machine: &str| {
                    packages.join(format!("node_modules/node-linux-{machine}/bin/node"))
                };
                let pinned = ["x64", "arm64"].map(program).into_iter().find(|it| it.exists());
                let mut command = Command::new(pinned.unwrap_or_else(|| PathBuf::from("node")));
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp-clients/client.mjs");
                command.arg(script).arg(&packages);
                command
            }
            Self::Python => {
                let mut command = Command::new(packages.join("venv/bin/python"));
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/mcp-clients/client.py"));
                command
            }
        }
    }

    /// Runs a case at this node. What the client told is `result`, `error`, `asked` and `progress`.
    pub(crate) async fn run(self, client: &Client, case: &str, mut options: Value) -> Value {
        options["base"] = json!(format!("http://{}", client.public_address()));
        let mut command = self.command();
        command.arg(case).arg(options.to_string()).kill_on_drop(true);
        let output = within(&format!("the case {case}"), command.output()).await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{case}: {error}: {text}{errors}"))
    }

    /// Runs a case that must succeed, and returns what the client told.
    pub(crate) async fn succeed(self, client: &Client, case: &str, options: Value) -> Value {
        let told = self.run(client, case, options).await;
        assert!(told["error"].is_null(), "{self:?} {case}: {told:#}");
        told
    }
}

/// The first text of a result.
pub(crate) fn text(told: &Value) -> &str {
    let text = told["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {told:#}"))
}
