//! Runs of the provider's own tools within a reply.

use serde_json::{Map, Value, json};

use super::tool;
use crate::model::{ModelToolCall, ToolSpec};

/// The runs that have started and lack their results.
#[derive(Debug, Default)]
pub(super) struct ProviderRuns {
    /// The API's name of each tool, in snake case, and the name in the agent's definition.
    names: Vec<(String, String)>,
    open: Vec<OpenRun>,
}

/// A run without its result.
#[derive(Debug)]
struct OpenRun {
    kind: String,
    id: Option<String>,
    args: Value,
}

impl ProviderRuns {
    /// No runs yet, of a model that may use these tools.
    pub(super) fn of(specs: &[ToolSpec]) -> Self {
        let kinds = |spec: &ToolSpec| {
            let kind = |kind: &String| (snake_case(kind), spec.name.clone());
            tool::hosted_options(spec).into_iter().flat_map(Map::keys).map(kind).collect::<Vec<_>>()
        };
        Self { names: specs.iter().flat_map(kinds).collect(), open: Vec::new() }
    }

    /// How many runs lack their results.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Takes a part that starts a run: `executableCode`, or a `toolCall` with its type.
    pub(super) fn begin(&mut self, mut part: Map<String, Value>) {
        let kind = take_kind(&mut part);
        let id = take_id(&mut part);
        // A tool's call has a field for its arguments; code is the whole part.
        let args = part.remove("args").unwrap_or(Value::Object(part));
        self.open.push(OpenRun { kind, id, args });
    }

    /// Takes a part that holds a result; it belongs to the run with its id, or else to the oldest
    /// one.
    pub(super) fn finish(&mut self, part: Map<String, Value>) -> ModelToolCall {
        let mut rest = part.clone();
        let (kind, id) = (take_kind(&mut rest), take_id(&mut rest));
        let is_its_run = |run: &OpenRun| run.kind == kind && (id.is_none() || run.id == id);
        let run = self.open.iter().position(is_its_run).map(|at| self.open.remove(at));
        let run = run.unwrap_or(OpenRun { kind, id, args: json!({}) });
        self.call(run, part)
    }

    /// The result of a search, which the API sends as metadata of the message and not as a part.
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

    /// The pages that were fetched, which the API sends as metadata of the message, too.
    pub(super) fn page_fetch_call(&self, metadata: Map<String, Value>) -> ModelToolCall {
        let pages = metadata.get("urlMetadata").and_then(Value::as_array);
        let urls = pages.into_iter().flatten().filter_map(|page| page.get("retrievedUrl"));
        let args = json!({"urls": urls.collect::<Vec<_>>()});
        self.call(OpenRun { kind: "url_context".to_owned(), id: None, args }, metadata)
    }

    fn call(&self, run: OpenRun, result: Map<String, Value>) -> ModelToolCall {
        let OpenRun { kind, id, args } = run;
        // The API distinguishes two kinds of search that are one tool.
        let matches = |known: &str| kind.strip_prefix(known).is_some_and(ends_name);
        let name = self.names.iter().find(|(known, _)| matches(known)).map(|(_, name)| name);
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

/// Takes the tool's type, which a run of code does not have.
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

/// The API treats `googleSearch` and `google_search` as the same key.
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
