//! Values that are given as text, as `@FILE`, or on standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::error::CliError;

/// The most bytes of a value; a node refuses larger requests.
const MAX_VALUE_BYTES: u64 = 1 << 20;

/// The text itself, that of `@FILE`, or that of standard input for `-`.
pub(crate) fn text(given: &str, what: &str) -> Result<String, CliError> {
    match given.strip_prefix('@') {
        _ if given == "-" => read(io::stdin().lock(), what),
        Some(path) => file(Path::new(path), what),
        None => Ok(given.to_owned()),
    }
}

/// The text of a file.
pub(crate) fn file(path: &Path, what: &str) -> Result<String, CliError> {
    let place = format!("{what}: {}", path.display());
    let opened = File::open(path).map_err(|error| CliError::Usage(format!("{place}: {error}")))?;
    read(opened, &place)
}

/// A value that must be JSON.
pub(crate) fn json(given: &str, what: &str) -> Result<Value, CliError> {
    parse(&text(given, what)?, what)
}

pub(crate) fn parse(text: &str, what: &str) -> Result<Value, CliError> {
    serde_json::from_str(text)
        .map_err(|error| CliError::Usage(format!("{what}: must be JSON: {error}")))
}

fn read(reader: impl Read, place: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = reader.take(MAX_VALUE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| CliError::Usage(format!("{place}: {error}")))?;
    if text.len() as u64 > MAX_VALUE_BYTES {
        return Err(CliError::Usage(format!("{place}: must be at most 1 MiB")));
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_text_or_that_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value.json");
        std::fs::write(&path, "{\"a\": 1}").unwrap();
        let at = format!("@{}", path.display());
        assert_eq!(json(&at, "--args").unwrap(), serde_json::json!({"a": 1}));
        assert_eq!(text("plain", "TEXT").unwrap(), "plain");
        for (wrong, expected) in
            [("{", "--args: must be JSON"), ("@/no/such", "--args: /no/such: ")]
        {
            let error = json(wrong, "--args").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        std::fs::write(&path, "x".repeat(MAX_VALUE_BYTES as usize + 1)).unwrap();
        let error = text(&at, "TEXT").unwrap_err().to_string();
        assert!(error.contains("at most 1 MiB"), "{error}");
    }
}
