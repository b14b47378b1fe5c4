//! How a server tool runs: the `run` of its entry.

use std::time::Duration;

use abide_conversation::AgentName;
use abide_conversation::event::Executor;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::agent::fields::Fields;
use crate::agent::later::UNSUPPORTED;
use crate::tools::Builtin;
use crate::tools::bounds::cut;
use crate::tools::native::Natives;
use crate::tools::tool::{Endpoint, Target};

/// Headers that one tool may be sent.
const MOST_HEADERS: usize = 32;
const LONGEST_URL: usize = 2_048;
const LONGEST_VARIABLE: usize = 128;
/// Headers that the contract gives a meaning, or that the connection does.
const RESERVED: [&str; 8] = [
    "host",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "idempotency-key",
    "te",
    "upgrade",
];

/// A target, and the description and parameters that it brings along.
#[derive(Default)]
pub(super) struct Described {
    pub(super) target: Option<Target>,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
    pub(super) run_timeout: Option<Duration>,
}

/// The kinds of `run` that this version knows.
const KINDS: [&str; 4] = ["http", "native", "builtin", "agent"];
/// A child may wait for people, each as long as its suspensions do.
const CHILD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Reads `run`; `None` if it is wrong, or missing where it must be.
pub(super) fn read(
    fields: &mut Fields,
    executor: Executor,
    natives: &Natives,
) -> Option<Described> {
    match (executor, fields.says("run")) {
        (Executor::Server, true) => run(fields, natives),
        (Executor::Server, false) => {
            fields.any("run");
            fields.wrong("run", "is missing; a server tool needs one");
            None
        }
        (Executor::Human | Executor::Client | Executor::Provider, true) => {
            fields.any("run");
            fields.wrong("run", "is for a server tool only");
            None
        }
        (Executor::Human | Executor::Client | Executor::Provider, false) => {
            fields.any("run");
            Some(Described::default())
        }
    }
}

fn run(fields: &mut Fields, natives: &Natives) -> Option<Described> {
    let mut run = fields.nested("run")?;
    if run.says("mcp") {
        run.any("mcp");
        run.wrong("mcp", UNSUPPORTED);
        fields.absorb(run);
        return None;
    }
    let said: Vec<&str> = KINDS.into_iter().filter(|kind| run.says(kind)).collect();
    let described = match said[..] {
        ["http"] => http(&mut run).map(|endpoint| Described {
            target: Some(Target::Http(endpoint)),
            ..Described::default()
        }),
        ["native"] => native(&mut run, natives),
        ["builtin"] => builtin(&mut run),
        ["agent"] => agent(&mut run),
        _ => {
            KINDS.into_iter().for_each(|kind| drop(run.any(kind)));
            fields.wrong("run", format!("must be exactly one of {}", KINDS.join(", ")));
            None
        }
    };
    fields.absorb(run);
    let own = described.as_ref().is_some_and(|described| described.parameters.is_some());
    if own && fields.says("parameters") {
        fields.any("parameters");
        fields.wrong("parameters", "come from the native or built-in tool");
    }
    described
}

fn native(run: &mut Fields, natives: &Natives) -> Option<Described> {
    let name = run.text("native", 256)?;
    let Some(tool) = natives.get(&name) else {
        run.wrong("native", format!("names no native tool of this program: {}", cut(&name, 64)));
        return None;
    };
    Some(Described {
        target: Some(Target::Native(name)),
        description: Some(tool.description()),
        parameters: Some(tool.parameters()),
        run_timeout: None,
    })
}

fn builtin(run: &mut Fields) -> Option<Described> {
    let name = run.text("builtin", 256)?;
    let Some(builtin) = Builtin::named(&name) else {
        run.wrong("builtin", format!("names no built-in tool: {}", cut(&name, 64)));
        return None;
    };
    Some(Described {
        target: Some(Target::Builtin(builtin)),
        description: Some(builtin.description().to_owned()),
        parameters: Some(builtin.checked()),
        run_timeout: Some(builtin.run_timeout()),
    })
}

fn agent(run: &mut Fields) -> Option<Described> {
    let name = run.text("agent", 256)?;
    let Some(agent) = AgentName::parse(&name) else {
        run.wrong("agent", "must be the name of an agent");
        return None;
    };
    let target = Some(Target::Agent(agent));
    Some(Described { target, run_timeout: Some(CHILD_TIMEOUT), ..Described::default() })
}

/// Reads the `http` of a server tool's `run`, or of a hook.
pub(in crate::agent) fn http(run: &mut Fields) -> Option<Endpoint> {
    let mut http = run.nested("http")?;
    let url = url(&mut http);
    let headers = headers(&mut http);
    let signing_secret_env = variable(&mut http);
    run.absorb(http);
    Some(Endpoint { url: url?, headers, signing_secret_env })
}

fn url(http: &mut Fields) -> Option<Url> {
    if !http.says("url") {
        http.wrong("url", "is missing");
    }
    let text = http.text("url", LONGEST_URL)?;
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(Url::has_host) else {
        http.wrong("url", "must be an http or https URL");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        http.wrong("url", "must not carry a user name or password");
        return None;
    }
    Some(url)
}

fn headers(http: &mut Fields) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let given = http.map("headers");
    if given.len() > MOST_HEADERS {
        http.wrong("headers", format!("must be at most {MOST_HEADERS}"));
        return headers;
    }
    for (name, value) in given {
        let field = format!("headers.{name}");
        let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
        match (HeaderName::try_from(&name), value) {
            (Ok(name), _) if is_reserved(&name) => http.wrong(&field, "is set by the program"),
            (Ok(name), Some(value)) => {
                headers.insert(name, value);
            }
            (Ok(_), None) => http.wrong(&field, "must be a text that fits into a header"),
            (Err(_), _) => http.wrong(&field, "is no name of a header"),
        }
    }
    headers
}

fn is_reserved(name: &HeaderName) -> bool {
    RESERVED.contains(&name.as_str()) || name.as_str().starts_with("webhook-")
}

fn variable(http: &mut Fields) -> Option<String> {
    let name = http.text("signing_secret_env", LONGEST_VARIABLE)?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(legal) {
        http.wrong("signing_secret_env", "must be the name of a variable, [A-Za-z0-9_]+");
        return None;
    }
    Some(name)
}
