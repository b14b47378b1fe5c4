//! Reads the values of a document, and collects what is wrong with them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Mistake, Mistakes};

/// Collects mistakes with their paths.
#[derive(Default)]
pub(super) struct Reader {
    mistakes: Vec<Mistake>,
}

impl Reader {
    /// Notes a mistake.
    pub(super) fn mistake(&mut self, path: &str, message: impl Into<String>) {
        self.mistakes.push(Mistake { path: path.to_owned(), message: message.into() });
    }

    /// Notes each member that is not one of these.
    pub(super) fn only_known(&mut self, members: &Map<String, Value>, known: &[&str]) {
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            self.mistake(name, format!("is unknown; known are {}", known.join(", ")));
        }
    }

    /// The entries of a list, each with its path.
    pub(super) fn list<T: DeserializeOwned>(
        &mut self,
        path: &str,
        list: Option<&Value>,
    ) -> Vec<(String, T)> {
        let entries = match list {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                self.mistake(path, "must be a list");
                return Vec::new();
            }
        };
        let mut read = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let path = format!("{path}[{index}]");
            read.extend(self.value(&path, entry).map(|entry| (path, entry)));
        }
        read
    }

    /// One value; `None` if it has another form.
    pub(super) fn value<T: DeserializeOwned>(&mut self, path: &str, value: &Value) -> Option<T> {
        let read = serde_path_to_error::deserialize(value);
        let error: serde_path_to_error::Error<serde_json::Error> = match read {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let inner = error.path().to_string();
        let path = if inner == "." { path.to_owned() } else { format!("{path}.{inner}") };
        self.mistake(&path, error.inner().to_string());
        None
    }

    /// What was wrong, if anything was.
    pub(super) fn finish(self) -> Result<(), Mistakes> {
        if self.mistakes.is_empty() { Ok(()) } else { Err(Mistakes(self.mistakes)) }
    }
}
