//! An OpenID provider that others wrote: the node finds its keys, and accepts what it issues.

use std::path::PathBuf;
use std::process::Stdio;

use abide_tests::deadline::within;
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::ABIDE;
use crate::console::Person;

/// npm's oidc-provider, which ends with this value.
struct Provider {
    issuer: String,
    /// Open, since the provider writes hints to it, and would end without a reader.
    _output: BufReader<ChildStdout>,
    _process: Child,
}

impl Provider {
    async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts one at which people sign in, and come back to this address.
    async fn start_with(redirect: Option<&str>) -> Self {
        let home = PathBuf::from(std::env::var("HOME").unwrap());
        let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
        let package = cache.join("abide-tests/oidc-provider");
        assert!(package.exists(), "{} is missing: run .ci/oidc-provider", package.display());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/oidc/provider.mjs");
        let mut command = Command::new("node");
        command
            .arg(script)
            .arg(package)
            .args(redirect)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut issuer = String::new();
        within("the provider's URL", lines.read_line(&mut issuer)).await.unwrap();
        Self { issuer: issuer.trim_end().to_owned(), _output: lines, _process: process }
    }

    /// An access token of its only client, for this audience's API.
    async fn token(&self) -> String {
        let form = "grant_type=client_credentials&resource=https://abide.test&scope=api";
        let asked = reqwest::Client::new().post(format!("{}/token", self.issuer)).body(form);
        let asked = asked.header("Content-Type", "application/x-www-form-urlencoded");
        let answer = asked.basic_auth("shop", Some("secret-of-a-test")).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// A node that trusts it for this audience.
    fn site(&self, audience: &str) -> Site {
        let site = Site::new(ABIDE).with(&["--auth", "auth.yaml"]);
        let file = json!({
            "issuers": [{"issuer": self.issuer, "audience": [audience], "algorithms": ["ES256"],
                "claims": {"tenant": "/org", "roles": "/roles"}, "roles": {"bot": ["backend"]}}],
            "tenants": {"default": {}, "acme": {}},
        });
        std::fs::write(site.dir().join("auth.yaml"), file.to_string()).unwrap();
        site
    }
}

#[tokio::test]
async fn a_node_accepts_what_a_real_provider_issues_for_it_and_nothing_else() {
    let provider = Provider::start().await;
    let token = provider.token().await;
    let (site, other) = (provider.site("abide"), provider.site("another"));
    let (_node, _other) = (site.start().await, other.start().await);
    let caller = site.client.clone().with_credential(&token);
    let me = caller.get("/v1/me").await.expect(200);
    let expected = [("tenant", json!("acme")), ("subject", json!("shop")), ("auth", json!("jwt"))];
    for (member, value) in expected {
        assert_eq!(me[member], value, "{me:#}");
    }
    assert_eq!(me["roles"], json!(["backend"]), "{me:#}");
    caller.get("/v1/conversations").await.expect(200);
    let elsewhere = other.client.clone().with_credential(&token);
    elsewhere.get("/v1/me").await.expect_problem(401, "unauthorized");
    let [head, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let altered = format!("{head}.{claims}.{}", signature.chars().rev().collect::<String>());
    let caller = site.client.clone().with_credential(&altered);
    caller.get("/v1/me").await.expect_problem(401, "unauthorized");
}

#[tokio::test]
async fn a_person_signs_in_to_the_console_with_a_provider() {
    let site = Site::new(ABIDE).with(&["--auth", "auth.yaml"]);
    // The provider knows the console's address before the node has one.
    let proxy = Proxy::start();
    let url = format!("http://{}/console/", proxy.address());
    let provider = Provider::start_with(Some(&url)).await;
    let file = json!({
        "issuers": [{"issuer": provider.issuer, "audience": ["abide"], "algorithms": ["ES256"],
            "claims": {"tenant": "/org", "roles": "/roles"}, "roles": {"bot": ["backend"]},
            "console": {"client_id": "console", "scope": "openid api",
                "resource": "https://abide.test"}}],
        "tenants": {"default": {}, "acme": {}},
    });
    std::fs::write(site.dir().join("auth.yaml"), file.to_string()).unwrap();
    let _node = site.start().await;
    proxy.aim(&site.client.public_address());
    Person::start("sign_in.mjs", &url).finish().await;
}
