//! Definitions as text: YAML or JSON, and a directory of such files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{DefinitionError, join_errors};
use super::strict_value::Document;
use super::{MAX_DEFINITION_BYTES, Parsed};
use crate::definition::Definition;
use crate::limits::{cut, one_line};
use crate::model::big_numbers::{OVER_64_BITS, find_rounded, find_rounded_in};
use crate::tools::Extensions;

/// The field of a mistake that is in no single field: the text cannot be read as a document.
pub const WHOLE_DOCUMENT: &str = "definition";

/// The most values of a YAML document with its aliases expanded. Stops a YAML bomb.
const MAX_YAML_NODES: usize = 100_000;
/// The bytes of a parser's message that a mistake repeats.
const MAX_PARSER_MESSAGE_BYTES: usize = 300;

/// How a definition is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

/// Why a directory of definitions was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the agents directory {} cannot be read: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} cannot be read: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Refused { path: PathBuf, reason: String },
    #[error("{} and {} both define the agent {name}", first.display(), second.display())]
    Twice { name: String, first: PathBuf, second: PathBuf },
}

/// Reads a document; the error says where it is wrong.
///
/// Errors are duplicate keys, keys that are not texts, documents that expand without end, and whole
/// numbers that do not fit into 64 bits.
pub fn from_text(text: &str, format: Format) -> Result<Value, DefinitionError> {
    let wrong = |message: String| DefinitionError {
        tool: None,
        field: WHOLE_DOCUMENT.to_owned(),
        message: one_line(&message, MAX_PARSER_MESSAGE_BYTES),
    };
    if text.len() > MAX_DEFINITION_BYTES {
        return Err(wrong("must be at most 1 MB".to_owned()));
    }
    let value = match format {
        Format::Json => serde_json::from_str(text)
            .map(|Document(value)| value)
            .map_err(|error| wrong(error.to_string()))?,
        Format::Yaml => from_yaml(text).map_err(wrong)?,
    };
    let rounded = match format {
        Format::Json => find_rounded(text),
        Format::Yaml => find_rounded_in(text, &value),
    };
    match rounded {
        Some(field) => Err(DefinitionError { tool: None, field, message: OVER_64_BITS.to_owned() }),
        None => Ok(value),
    }
}

/// Reads every `*.yaml`, `*.yml` and `*.json` of a directory, in the order of their names. The errors are
/// those of all files.
pub fn load_dir(directory: &Path, natives: &Extensions) -> Result<Vec<Parsed>, Vec<LoadError>> {
    let (mut loaded, mut errors) = (Vec::new(), Vec::new());
    let mut names: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (path, format) in files(directory).map_err(|error| vec![error])? {
        let parsed = match load(&path, format, natives) {
            Ok(parsed) => parsed,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let name = parsed.definition.name.to_string();
        match names.insert(name.clone(), path.clone()) {
            Some(first) => errors.push(LoadError::Twice { name, first, second: path }),
            None => loaded.push(parsed),
        }
    }
    if errors.is_empty() { Ok(loaded) } else { Err(errors) }
}

fn files(directory: &Path) -> Result<Vec<(PathBuf, Format)>, LoadError> {
    let failed = |source| LoadError::Directory { path: directory.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(format) = format_of(&path) {
            files.push((path, format));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

fn format_of(path: &Path) -> Option<Format> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml") => Some(Format::Yaml),
        Some("json") => Some(Format::Json),
        Some(_) | None => None,
    }
}

/// Reads one file; one whose name does not end in `.json` is YAML.
pub fn load_file(path: &Path, natives: &Extensions) -> Result<Parsed, LoadError> {
    load(path, format_of(path).unwrap_or(Format::Yaml), natives)
}

fn load(path: &Path, format: Format, natives: &Extensions) -> Result<Parsed, LoadError> {
    let failed = |source| LoadError::File { path: path.to_owned(), source };
    let refused = |reason| LoadError::Refused { path: path.to_owned(), reason };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > MAX_DEFINITION_BYTES as u64 {
        return Err(refused("definition: must be at most 1 MB".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let source = from_text(&text, format).map_err(|invalid| refused(invalid.to_string()))?;
    Definition::parse(source, natives).map_err(|mistakes| refused(join_errors(&mistakes)))
}

fn from_yaml(text: &str) -> Result<Value, String> {
    let budget = serde_saphyr::budget! {
        max_nodes: MAX_YAML_NODES,
        max_events: 2 * MAX_YAML_NODES,
        max_documents: 1,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        with_snippet: false,
    };
    let read = serde_saphyr::from_str_with_options(text, options);
    read.map(|Document(value)| value).map_err(|error| {
        let message = match &error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the key {} comes twice", cut(key, 64))
            }
            // The other formatter advises who writes the program.
            error => error.render_with_formatter(&serde_saphyr::UserMessageFormatter),
        };
        match error.location() {
            Some(at) if !message.contains("line ") => format!("{message} at line {}", at.line()),
            Some(_) | None => message,
        }
    })
}

#[cfg(test)]
mod tests;
