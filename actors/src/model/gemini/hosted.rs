//! The tools that the provider ran by itself within a reply.

use serde_json::{Map, Value, json};

use super::tool;
use crate::model::{ModelToolCall, ToolSpec};

/// The runs that have begun and wait for their results.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// What a tool is on the wire, in snake case, and what the definition calls it.
    names: Vec<(String, String)>,
    open: Vec<Run>,
}

/// A run without its result.
#[derive(Debug)]
struct Run {
    kind: String,
    id: Option<String>,
    args: Value,
}

impl Runs {
    /// Those of a model that was told of these tools.
    pub(super) fn of(specs: &[ToolSpec]) -> Self {
        let kinds = |spec: &ToolSpec| {
            let kind = |kind: &String| (snake(kind), spec.name.clone());
            tool::hosted(spec).into_iter().flat_map(Map::keys).map(kind).collect::<Vec<_>>()
        };
        Self { names: specs.iter().flat_map(kinds).collect(), open: Vec::new() }
    }

    /// How many wait for their results.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// A part says what is run: `executableCode`, or a `toolCall` with its type.
    pub(super) fn begin(&mut self, mut part: Map<String, Value>) {
        let kind = kind(&mut part);
        let id = id(&mut part);
        // A tool's call has its arguments apart; code is the whole part.
        let args = part.remove("args").unwrap_or(Value::Object(part));
        self.open.push(Run { kind, id, args });
    }

    /// A part says what it came to; it belongs to the run of its id, or else to the oldest.
    pub(super) fn end(&mut self, part: Map<String, Value>) -> ModelToolCall {
        let mut rest = part.clone();
        let (kind, id) = (kind(&mut rest), id(&mut rest));
        let own = |run: &Run| run.kind == kind && (id.is_none() || run.id == id);
        let run = self.open.iter().position(own).map(|at| self.open.remove(at));
        let run = run.unwrap_or(Run { kind, id, args: json!({}) });
        self.call(run, part)
    }

    /// What a search found, which the wire tells beside the message and not in a part.
    pub(super) fn grounded(&self, metadata: Map<String, Value>) -> ModelToolCall {
        let from = |source: &str| {
            let chunks = metadata.get("groundingChunks").and_then(Value::as_array);
            chunks.into_iter().flatten().any(|chunk| chunk.get(source).is_some())
        };
        let kind = if from("maps") {
            "google_maps"
        } else if from("retrievedContext") {
            "file_search"
        } else {
            "google_search"
        };
        let queries = metadata.get("webSearchQueries").cloned();
        let args = queries.map_or(json!({}), |queries| json!({"queries": queries}));
        self.call(Run { kind: kind.to_owned(), id: None, args }, metadata)
    }

    /// Which pages were read, which stands beside the message too.
    pub(super) fn fetched(&self, metadata: Map<String, Value>) -> ModelToolCall {
        let pages = metadata.get("urlMetadata").and_then(Value::as_array);
        let urls = pages.into_iter().flatten().filter_map(|page| page.get("retrievedUrl"));
        let args = json!({"urls": urls.collect::<Vec<_>>()});
        self.call(Run { kind: "url_context".to_owned(), id: None, args }, metadata)
    }

    fn call(&self, run: Run, result: Map<String, Value>) -> ModelToolCall {
        let Run { kind, id, args } = run;
        // The wire tells two searches apart that are one tool.
        let is_it = |known: &str| kind.strip_prefix(known).is_some_and(is_an_end);
        let name = self.names.iter().find(|(known, _)| is_it(known)).map(|(_, name)| name);
        let name = name.cloned().unwrap_or(kind);
        let provided = Some(Value::Object(result));
        ModelToolCall { id: id.unwrap_or_default(), name, args: Ok(args), provided }
    }
}

fn is_an_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('_')
}

/// Code has no type of tool.
fn kind(part: &mut Map<String, Value>) -> String {
    match part.remove("toolType") {
        Some(Value::String(kind)) => kind.to_ascii_lowercase(),
        _ => "code_execution".to_owned(),
    }
}

fn id(part: &mut Map<String, Value>) -> Option<String> {
    match part.remove("id") {
        Some(Value::String(id)) if !id.is_empty() => Some(id),
        _ => None,
    }
}

/// `googleSearch` and `google_search` are the same key on this wire.
fn snake(key: &str) -> String {
    let mut snake = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
