//! The subschemas of a schema, and where its references lead.
//!
//! The library resolves references relative to `$id`s, anchors and the dynamic scope. To know
//! before it compiles which subschemas are applied to one value, they are resolved here, and it
//! gets a schema in which each `$ref` is a plain path from the root.

use std::collections::{HashMap, VecDeque};

use reqwest::Url;
use serde_json::{Map, Value};

use crate::limits::cut;

/// A path in an error is cut to this length.
const MAX_SHOWN_BYTES: usize = 100;
/// A schema without an `$id` has this base, as in the library.
const DEFAULT_BASE: &str = "json-schema:///";
/// The meta-schemas that the library contains begin like this.
const META_SCHEMAS: [&str; 2] =
    ["http://json-schema.org/draft-0", "https://json-schema.org/draft/20"];

/// Keywords with a subschema for the value itself.
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with several subschemas for the value itself.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with a subschema for the value itself under each name.
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords with a subschema for parts of the value.
const PARTS: [&str; 8] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords with several subschemas for parts of the value.
const PART_LISTS: [&str; 2] = ["items", "prefixItems"];
/// Keywords with a subschema under each name, for parts of the value or to be referred to.
const PART_MAPS: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];
/// Keywords that name a subschema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords that references are resolved with, and that a resolved schema needs no more.
const NAMES: [&str; 5] = ["$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"];

/// One subschema.
pub(super) struct Position<'a> {
    pub(super) schema: &'a Value,
    /// The JSON pointer from the root.
    pub(super) pointer: String,
    /// The subschemas that are applied to the same value.
    pub(super) in_place: Vec<usize>,
    /// Whether it says what of the value is left unevaluated by its other subschemas.
    pub(super) is_unevaluated: bool,
    pub(super) has_reference: bool,
    base: Url,
    /// The pointer of the schema with the nearest `$id`.
    resource: String,
}

impl Position<'_> {
    /// The pointer, for errors.
    pub(super) fn display_path(&self) -> String {
        cut(&format!("#{}", self.pointer), MAX_SHOWN_BYTES)
    }
}

/// All subschemas, with their references resolved.
pub(super) struct SchemaMap<'a> {
    pub(super) positions: Vec<Position<'a>>,
    /// For each reference, its subschema, its keyword, and the `$ref` that replaces it.
    resolved: Vec<(usize, &'static str, String)>,
}

impl<'a> SchemaMap<'a> {
    /// Finds the subschemas of the root and of all that references lead to.
    pub(super) fn read(
        root: &'a Value,
        max_subschemas: usize,
        max_pointer_bytes: usize,
    ) -> Result<Self, String> {
        let base = Url::parse(DEFAULT_BASE).map_err(|error| error.to_string())?;
        let mut reader = Reader {
            root,
            positions: Vec::new(),
            by_pointer: HashMap::new(),
            resources: HashMap::new(),
            anchors: HashMap::new(),
            waiting: VecDeque::new(),
            references: Vec::new(),
            resolved: Vec::new(),
            max_subschemas,
            max_pointer_bytes,
        };
        reader.resources.insert(base.to_string(), String::new());
        reader.enter(String::new(), root, &base, "")?;
        reader.read_all()?;
        Ok(Self { positions: reader.positions, resolved: reader.resolved })
    }

    /// The schema with each reference as a path from the root, and without names.
    pub(super) fn into_canonical(self, root: &Value) -> Value {
        let mut canonical = root.clone();
        for position in self.positions.iter().filter(|position| position.schema.is_object()) {
            let Some(Value::Object(schema)) = canonical.pointer_mut(&position.pointer) else {
                continue;
            };
            let is_nested = !position.pointer.is_empty();
            schema.retain(|key, value| {
                let is_name = NAMES.contains(&key.as_str()) || (is_nested && key == "$schema");
                !(is_name && (value.is_string() || value.is_boolean()))
            });
        }
        for (at, keyword, target) in self.resolved {
            let pointer = &self.positions[at].pointer;
            if let Some(Value::Object(schema)) = canonical.pointer_mut(pointer) {
                schema.shift_remove(keyword);
                schema.insert("$ref".to_owned(), target.into());
            }
        }
        canonical
    }
}

/// A subschema that is still to be read.
struct Waiting<'a> {
    at: usize,
    schema: &'a Map<String, Value>,
}

/// A reference that is still to be resolved.
struct Reference<'a> {
    at: usize,
    keyword: &'static str,
    text: &'a str,
}

struct Reader<'a> {
    root: &'a Value,
    positions: Vec<Position<'a>>,
    by_pointer: HashMap<String, usize>,
    /// The pointer of the schema with each `$id`.
    resources: HashMap<String, String>,
    /// The pointer of each anchor, by its resource and name.
    anchors: HashMap<(String, String), String>,
    waiting: VecDeque<Waiting<'a>>,
    references: Vec<Reference<'a>>,
    resolved: Vec<(usize, &'static str, String)>,
    max_subschemas: usize,
    max_pointer_bytes: usize,
}

/// Where a reference leads.
enum Target {
    Pointer(String),
    /// The address of a meta-schema that the library contains.
    MetaSchema(String),
    Unknown,
}

impl<'a> Reader<'a> {
    fn read_all(&mut self) -> Result<(), String> {
        loop {
            while let Some(Waiting { at, schema }) = self.waiting.pop_front() {
                self.read(at, schema)?;
            }
            // A reference may lead to where no subschema was looked for, with names of its own.
            for reference in std::mem::take(&mut self.references) {
                if !self.resolve(&reference)? {
                    self.references.push(reference);
                }
            }
            if self.waiting.is_empty() {
                break;
            }
        }
        match self.references.first() {
            None => Ok(()),
            Some(Reference { at, keyword, text }) => Err(format!(
                "{}: {keyword} {} leads to no schema in the document",
                self.positions[*at].display_path(),
                cut(text, MAX_SHOWN_BYTES)
            )),
        }
    }

    /// Adds a subschema, unless it is known, and returns its number.
    fn enter(
        &mut self,
        pointer: String,
        schema: &'a Value,
        base: &Url,
        resource: &str,
    ) -> Result<usize, String> {
        if let Some(at) = self.by_pointer.get(&pointer) {
            return Ok(*at);
        }
        if self.positions.len() == self.max_subschemas {
            return Err(format!("must have at most {} subschemas", self.max_subschemas));
        }
        if pointer.len() > self.max_pointer_bytes {
            let most = self.max_pointer_bytes;
            return Err(format!("the path to each subschema must be at most {most} bytes"));
        }
        let at = self.positions.len();
        self.by_pointer.insert(pointer.clone(), at);
        if let Value::Object(schema) = schema {
            self.waiting.push_back(Waiting { at, schema });
        }
        let (base, resource) = (base.clone(), resource.to_owned());
        self.positions.push(Position {
            schema,
            pointer,
            in_place: Vec::new(),
            is_unevaluated: false,
            has_reference: false,
            base,
            resource,
        });
        Ok(at)
    }

    fn read(&mut self, at: usize, schema: &'a Map<String, Value>) -> Result<(), String> {
        self.read_names(at, schema)?;
        for keyword in REFERENCES {
            if let Some(text) = schema.get(keyword).and_then(Value::as_str) {
                if self.positions[at].has_reference {
                    let path = self.positions[at].display_path();
                    return Err(format!("{path}: must have one reference only"));
                }
                self.positions[at].has_reference = true;
                self.references.push(Reference { at, keyword, text });
            }
        }
        self.positions[at].is_unevaluated =
            schema.contains_key("unevaluatedProperties") || schema.contains_key("unevaluatedItems");
        for (keyword, value) in schema {
            let (keyword, path) = (keyword.as_str(), format!("/{}", escape(keyword)));
            match value {
                Value::Object(_) | Value::Bool(_) if IN_PLACE.contains(&keyword) => {
                    self.child(at, path, value, true)?;
                }
                Value::Object(_) | Value::Bool(_) if PARTS.contains(&keyword) => {
                    self.child(at, path, value, false)?;
                }
                Value::Object(map)
                    if IN_PLACE_MAPS.contains(&keyword) || PART_MAPS.contains(&keyword) =>
                {
                    let is_in_place = IN_PLACE_MAPS.contains(&keyword);
                    for (name, value) in map.iter().filter(|(_, it)| !it.is_array()) {
                        self.child(at, format!("{path}/{}", escape(name)), value, is_in_place)?;
                    }
                }
                Value::Array(list)
                    if IN_PLACE_LISTS.contains(&keyword) || PART_LISTS.contains(&keyword) =>
                {
                    let is_in_place = IN_PLACE_LISTS.contains(&keyword);
                    for (index, value) in list.iter().enumerate() {
                        self.child(at, format!("{path}/{index}"), value, is_in_place)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn child(
        &mut self,
        at: usize,
        path: String,
        schema: &'a Value,
        is_in_place: bool,
    ) -> Result<(), String> {
        let parent = &self.positions[at];
        let pointer = format!("{}{path}", parent.pointer);
        let (base, resource) = (parent.base.clone(), parent.resource.clone());
        let child = self.enter(pointer, schema, &base, &resource)?;
        if is_in_place {
            self.positions[at].in_place.push(child);
        }
        Ok(())
    }

    /// Reads the names that references may use for this subschema.
    fn read_names(&mut self, at: usize, schema: &'a Map<String, Value>) -> Result<(), String> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let pointer = self.positions[at].pointer.clone();
        let id = text("$id").or_else(|| if self.is_draft_4() { text("id") } else { None });
        let old_anchor = id.and_then(|id| id.strip_prefix('#'));
        if let Some(id) = id.filter(|_| old_anchor.is_none()) {
            let joined = self.positions[at].base.join(id);
            let mut base = joined
                .map_err(|_| format!("{}: $id is invalid", self.positions[at].display_path()))?;
            base.set_fragment(None);
            let name = base.to_string();
            let former = self.resources.insert(name, pointer.clone());
            if former.is_some_and(|former| former != pointer) {
                return Err(format!("{}: $id is given twice", self.positions[at].display_path()));
            }
            (self.positions[at].base, self.positions[at].resource) = (base, pointer.clone());
        }
        let resource = self.positions[at].resource.clone();
        let anchors = [old_anchor, text("$anchor"), text("$dynamicAnchor")];
        for anchor in anchors.into_iter().flatten().filter(|anchor| !anchor.is_empty()) {
            let key = (resource.clone(), anchor.to_owned());
            let former = self.anchors.insert(key, pointer.clone());
            if former.is_some_and(|former| former != pointer) {
                return Err(format!(
                    "{}: an anchor is given twice",
                    self.positions[at].display_path()
                ));
            }
        }
        Ok(())
    }

    fn is_draft_4(&self) -> bool {
        let declared = self.root.get("$schema").and_then(Value::as_str);
        declared.is_some_and(|declared| declared.contains("draft-04"))
    }

    /// Resolves a reference; false if its target is not known yet.
    fn resolve(&mut self, reference: &Reference<'a>) -> Result<bool, String> {
        let at = reference.at;
        let pointer = match self.target(reference) {
            Target::Pointer(pointer) => pointer,
            Target::MetaSchema(url) => {
                self.resolved.push((at, reference.keyword, url));
                return Ok(true);
            }
            Target::Unknown => return Ok(false),
        };
        let Some(schema) =
            self.root.pointer(&pointer).filter(|it| it.is_object() || it.is_boolean())
        else {
            return Ok(false);
        };
        let (base, resource) =
            (self.positions[at].base.clone(), self.positions[at].resource.clone());
        let target = self.enter(pointer.clone(), schema, &base, &resource)?;
        self.positions[at].in_place.push(target);
        self.resolved.push((at, reference.keyword, format!("#{}", percent_encode(&pointer))));
        Ok(true)
    }

    fn target(&self, reference: &Reference<'_>) -> Target {
        let position = &self.positions[reference.at];
        let (resource, fragment) = match reference.text.strip_prefix('#') {
            Some(fragment) => (position.resource.clone(), fragment.to_owned()),
            None => {
                let Ok(mut url) = position.base.join(reference.text) else {
                    return Target::Unknown;
                };
                let fragment = url.fragment().unwrap_or_default().to_owned();
                url.set_fragment(None);
                match self.resources.get(url.as_str()) {
                    Some(resource) => (resource.clone(), fragment),
                    None if META_SCHEMAS.iter().any(|known| url.as_str().starts_with(known)) => {
                        return Target::MetaSchema(format!("{url}#{fragment}"));
                    }
                    None => return Target::Unknown,
                }
            }
        };
        let fragment = percent_decode(&fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return Target::Pointer(canonical(&format!("{resource}{fragment}")));
        }
        match self.anchors.get(&(resource, fragment)) {
            Some(pointer) => Target::Pointer(pointer.clone()),
            None => Target::Unknown,
        }
    }
}

/// Escapes a name for a JSON pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The pointer with its names escaped in one way, so that a place has one pointer.
fn canonical(pointer: &str) -> String {
    let unescape = |name: &str| name.replace("~1", "/").replace("~0", "~");
    let mut names = pointer.split('/');
    names.next();
    names.map(|name| format!("/{}", escape(&unescape(name)))).collect()
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let decoded = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn percent_encode(pointer: &str) -> String {
    let mut text = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
