//! Reads the sections of a definition, and collects every mistake on the way.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::error::DefinitionError;
use crate::limits::cut;

/// The longest piece of a document that a mistake quotes, in bytes.
const MAX_QUOTED_BYTES: usize = 64;
/// The longest message of a mistake, in bytes.
const MAX_MESSAGE_BYTES: usize = 500;
/// How many fields of one section may have a wrong shape before the rest of it is left unread. Each
/// costs another pass over the section.
const MAX_SHAPE_MISTAKES: usize = 64;

/// The mistakes of a definition, or of one of its tools, found so far.
#[derive(Default)]
pub(super) struct Mistakes {
    tool: Option<String>,
    /// Stands before the name of every field; ends with a dot unless it is empty.
    prefix: String,
    list: Vec<DefinitionError>,
}

impl Mistakes {
    /// An empty list, for the fields below `prefix`; `tool` is `None` for the agent's own fields.
    pub(super) fn new(tool: Option<&str>, prefix: &str) -> Self {
        Self { tool: tool.map(str::to_owned), prefix: prefix.to_owned(), list: Vec::new() }
    }

    /// Adds a mistake.
    pub(super) fn add(&mut self, field: &str, message: impl Into<String>) {
        let field = format!("{}{field}", self.prefix);
        let message = cut(&message.into(), MAX_MESSAGE_BYTES);
        self.list.push(DefinitionError { tool: self.tool.clone(), field, message });
    }

    /// Adds that a field is missing, unless it was given in a wrong shape.
    pub(super) fn add_missing(&mut self, field: &str) {
        if !self.has(field) {
            self.add(field, "is missing");
        }
    }

    /// Whether a mistake of this field, or of a field within it, was found.
    pub(super) fn has(&self, field: &str) -> bool {
        let field = format!("{}{field}", self.prefix);
        let is_within = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.list.iter().any(|mistake| mistake.field.strip_prefix(&field).is_some_and(is_within))
    }

    /// Takes over the mistakes of a section or a tool.
    pub(super) fn absorb(&mut self, other: Mistakes) {
        self.list.extend(other.list);
    }

    /// All mistakes, in the order in which they were found.
    pub(super) fn finish(self) -> Vec<DefinitionError> {
        self.list
    }

    /// Reads the section at `field` (empty for the whole document). A field whose shape is wrong
    /// is a mistake and counts as absent; `None` if the section itself has the wrong shape.
    pub(super) fn read<T: DeserializeOwned>(&mut self, field: &str, mut value: Value) -> Option<T> {
        for _ in 0..MAX_SHAPE_MISTAKES {
            let error = match serde_path_to_error::deserialize(&value) {
                Ok(section) => return Some(section),
                Err(error) => error,
            };
            let path: Vec<Segment> = error.path().iter().cloned().collect();
            let message = error.into_inner().to_string();
            if message.contains(ENUM_TYPE_ERROR) && replace(&mut value, &path, Value::from("")) {
                // Read again with an empty word here: the error then lists the words that are
                // legal.
                continue;
            }
            let (path, message) = match message.strip_prefix("missing field `") {
                Some(rest) => {
                    let key = rest.split('`').next().unwrap_or_default();
                    let path = format!("{}.{key}", field_path(field, &path));
                    self.add(path.trim_start_matches('.'), "is missing");
                    return None;
                }
                None => (path, author_message(&message)),
            };
            self.add(&field_path(field, &path), message);
            if !remove(&mut value, &path) {
                return None;
            }
        }
        self.add(field, "has more mistakes than are listed");
        None
    }
}

/// What serde's error says where a value that is not a string stands in the place of an enum.
const ENUM_TYPE_ERROR: &str = "expected string or map";

/// The path of a field within a section, as mistakes name it.
fn field_path(field: &str, path: &[Segment]) -> String {
    let mut field_path = field.to_owned();
    for segment in path {
        match segment {
            Segment::Seq { index } => field_path.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !field_path.is_empty() {
                    field_path.push('.');
                }
                field_path.push_str(&cut(key, MAX_QUOTED_BYTES));
            }
            Segment::Unknown => {}
        }
    }
    field_path
}

/// The value at `path`, as far as it leads through objects and lists.
fn at<'v>(value: &'v mut Value, path: &[Segment]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get_mut(*index),
        Segment::Map { key } => value.get_mut(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

fn replace(value: &mut Value, path: &[Segment], with: Value) -> bool {
    at(value, path).map(|found| *found = with).is_some()
}

/// Removes the innermost key on the path, so that the rest of the section can be read.
fn remove(value: &mut Value, path: &[Segment]) -> bool {
    let is_key = |segment: &Segment| matches!(segment, Segment::Map { .. });
    let Some(last) = path.iter().rposition(is_key) else { return false };
    let Segment::Map { key } = &path[last] else { return false };
    let object = at(value, &path[..last]).and_then(Value::as_object_mut);
    object.and_then(|object| object.remove(key)).is_some()
}

/// Translates serde's error about a wrong shape into a message for the author of the definition.
fn author_message(message: &str) -> String {
    if message.starts_with("unknown field") {
        return "is not a known key".to_owned();
    }
    let Some((_, expected)) = message.split_once("expected ") else { return message.to_owned() };
    if message.starts_with("unknown variant") {
        let words: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        return format!("must be one of {}", words.join(", "));
    }
    // A list in the place of an object has the wrong length for serde.
    if !message.starts_with("invalid type") && !expected.starts_with("struct ") {
        return message.to_owned();
    }
    match expected {
        "a boolean" => "must be true or false".to_owned(),
        "a string" => "must be a text".to_owned(),
        "a sequence" => "must be a list".to_owned(),
        "a map" => "must be an object".to_owned(),
        expected if expected.starts_with("struct ") => "must be an object".to_owned(),
        expected => format!("must be {expected}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Section {
        word: Option<Word>,
        flag: Option<bool>,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        list: Option<Vec<String>>,
        map: Option<serde_json::Map<String, Value>>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        One,
        Two,
    }

    fn read(value: Value) -> (Option<Section>, Vec<String>) {
        let mut mistakes = Mistakes::default();
        let section = mistakes.read("s", value);
        (section, mistakes.finish().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_mistake_of_shape_is_found_and_the_rest_is_read() {
        let (section, mistakes) = read(json!({"word": 1, "flag": true, "other": null,
            "inner": {"list": ["a", 1], "map": 2, "more": 3}}));
        let inner = Inner { list: None, map: None };
        assert_eq!(section, Some(Section { word: None, flag: Some(true), inner: Some(inner) }));
        let mut mistakes = mistakes;
        mistakes.sort();
        let wanted = [
            "s.inner.list[1]: must be a text",
            "s.inner.map: must be an object",
            "s.inner.more: is not a known key",
            "s.other: is not a known key",
            "s.word: must be one of one, two",
        ];
        assert_eq!(mistakes, wanted);
    }

    #[test]
    fn a_section_of_the_wrong_shape_is_one_mistake() {
        for wrong in [json!(5), json!([])] {
            assert_eq!(read(wrong), (None, vec!["s: must be an object".to_owned()]));
        }
        let null = read(json!({"inner": null, "flag": null}));
        assert_eq!(null, (Some(Section { word: None, flag: None, inner: None }), Vec::new()));
    }

    #[test]
    fn a_section_with_endless_mistakes_ends() {
        let many = (0..10_000).map(|n| (format!("k{n}"), json!(1))).collect();
        let (section, mistakes) = read(Value::Object(many));
        assert_eq!((section, mistakes.len()), (None, MAX_SHAPE_MISTAKES + 1));
    }
}
