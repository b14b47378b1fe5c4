//! A2A's own clients, which run in node and Python, one case at a time.

use std::path::PathBuf;

use abide_tests::client::Client;
use abide_tests::deadline::within;
use serde_json::{Value, json};
use tokio::process::Command;

/// The directory of the packages.
fn installed() -> PathBuf {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let packages = cache.join("abide-tests/a2a");
    assert!(packages.exists(), "{} is missing: run .ci/a2a", packages.display());
    packages
}

/// The two clients, which have the same cases.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sdk {
    Node,
    Python,
}

impl Sdk {
    pub(crate) const BOTH: [Self; 2] = [Self::Node, Self::Python];

    /// The client's name, for what each has of its own.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Python => "python",
        }
    }

    /// Runs a case at this node with these options in addition, and returns its result.
    pub(crate) async fn run(self, client: &Client, case: &str, more: Value) -> Value {
        let mut options = json!({"base": format!("http://{}", client.public_address())});
        for (name, value) in more.as_object().unwrap() {
            options[name] = value.clone();
        }
        let mut command = self.command();
        let output = command.arg(case).arg(options.to_string()).kill_on_drop(true).output();
        let output = within(&format!("the case {case}"), output).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case} of {self:?}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{case}: {error}: {text}"))
    }

    fn command(self) -> Command {
        let packages = installed();
        match self {
            Self::Node => {
                let program = |machine: &str| {
                    packages.join(format!("node_modules/node-linux-{machine}/bin/node"))
                };
                let pinned = ["x64", "arm64"].map(program).into_iter().find(|it| it.exists());
                let mut command = Command::new(pinned.unwrap_or_else(|| PathBuf::from("node")));
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/a2a/client.mjs")).arg(&packages);
                command
            }
            Self::Python => {
                let mut command = Command::new(packages.join("venv/bin/python"));
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/a2a/client.py"));
                command
            }
        }
    }
}
