//! The tools that the provider ran by itself within a reply.

use serde_json::{Map, Value, json};

use super::tool;
use crate::model::{ModelToolCall, ToolSpec};

/// The runs that have begun and wait for their results.
#[derive(Debug, Default)]
pub(super) struct ProviderRuns {
    /// What a tool is on the wire, in snake case, and what the definition calls it.
    names: Vec<(String, String)>,
    open_count: Vec<OpenRun>,
}

/// A run without its result.
#[derive(Debug)]
struct OpenRun {
    kind: String,
    id: Option<String>,
    args: Value,
}

impl ProviderRuns {
    /// Those of a model that was told of these tools.
    pub(super) fn of(specs: &[ToolSpec]) -> Self {
        let kinds = |spec: &ToolSpec| {
            let kind = |kind: &String| (snake_case(kind), spec.name.clone());
            tool::hosted_options(spec).into_iter().flat_map(Map::keys).map(kind).collect::<Vec<_>>()
        };
        Self { names: specs.iter().flat_map(kinds).collect(), open_count: Vec::new() }
    }

    /// How many wait for their results.
    pub(super) fn open_count(&self) -> usize {
        self.open_count.len()
    }

    /// A part says what is run: `executableCode`, or a `toolCall` with its type.
    pub(super) fn begin(&mut self, mut part: Map<String, Value>) {
        let kind = take_kind(&mut part);
        let id = take_id(&mut part);
        // A tool's call has its arguments apart; code is the whole part.
        let args = part.remove("args").unwrap_or(Value::Object(part));
        self.open_count.push(OpenRun { kind, id, args });
    }

    /// A part says what it came to; it belongs to the run of its id, or else to the oldest.
    pub(super) fn finish(&mut self, part: Map<String, Value>) -> ModelToolCall {
        let mut rest = part.clone();
        let (kind, id) = (take_kind(&mut rest), take_id(&mut rest));
        let own = |run: &OpenRun| run.kind == kind && (id.is_none() || run.id == id);
        let run = self.open_count.iter().position(own).map(|at| self.open_count.remove(at));
        let run = run.unwrap_or(OpenRun { kind, id, args: json!({}) });
        self.call(run, part)
    }

    /// What a search found, which the wire tells beside the message and not in a part.
    pub(super) fn search_call(&self, metadata: Map<String, Value>) -> ModelToolCall {
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
        self.call(OpenRun { kind: kind.to_owned(), id: None, args }, metadata)
    }

    /// Which pages were read, which stands beside the message too.
    pub(super) fn page_fetch_call(&self, metadata: Map<String, Value>) -> ModelToolCall {
        let pages = metadata.get("urlMetadata").and_then(Value::as_array);
        let urls = pages.into_iter().flatten().filter_map(|page| page.get("retrievedUrl"));
        let args = json!({"urls": urls.collect::<Vec<_>>()});
        self.call(OpenRun { kind: "url_context".to_owned(), id: None, args }, metadata)
    }

    fn call(&self, run: OpenRun, result: Map<String, Value>) -> ModelToolCall {
        let OpenRun { kind, id, args } = run;
        // The wire tells two searches apart that are one tool.
        let is_it = |known: &str| kind.strip_prefix(known).is_some_and(ends_name);
        let name = self.names.iter().find(|(known, _)| is_it(known)).map(|(_, name)| name);
        let name = name.cloned().unwrap_or(kind);
        let provided = Some(Value::Object(result));
        ModelToolCall {
            id: id.unwrap_or_default(),
            name,
            args: Ok(args),
            provider_result: provided,
        }
    }
}

fn ends_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('_')
}

/// Code has no type of tool.
fn take_kind(part: &mut Map<String, Value>) -> String {
    match part.remove("toolType") {
        Some(Value::String(kind)) => kind.to_ascii_lowercase(),
        _ => "code_execution".to_owned(),
    }
}

fn take_id(part: &mut Map<String, Value>) -> Option<String> {
    match part.remove("id") {
        Some(Value::String(id)) if !id.is_empty() => Some(id),
        _ => None,
    }
}

/// `googleSearch` and `google_search` are the same key on this wire.
fn snake_case(key: &str) -> String {
    let mut snake = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
