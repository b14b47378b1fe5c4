//! The file of `--auth`: who may authenticate, and how. The contract is `reference/access.md`.

mod issuer;
mod key;
mod reader;
mod sign_in;
mod tenant;
mod token_keys;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use abide_actors::agent::{self, Format};
use abide_conversation::identity::Tenant;
use serde_json::{Map, Value};

pub(super) use issuer::is_safe;
pub use issuer::{Algorithm, ClaimSource, ClaimSources, IssuerRules, JwksSource};
pub use key::StaticKey;
pub(crate) use key::{QUEUE_RULE, check_worker};
use reader::Reader;
pub use sign_in::{SignIn, SignInToken};
pub use tenant::{AgentsOverHttp, Quotas, TenantSettings};
pub use token_keys::{MAX_TTL, TokenKeys};

/// What a node knows about who may use it; a valid file of `--auth`.
#[derive(Debug)]
pub struct AuthDocument {
    /// The keys of the file, by id.
    pub keys: BTreeMap<String, StaticKey>,
    /// The issuers of JWTs, by `iss`.
    pub issuers: BTreeMap<String, IssuerRules>,
    /// The keys that sign conversation tokens; `None`: none are minted, and none are accepted.
    pub tokens: Option<TokenKeys>,
    pub tenants: BTreeMap<Tenant, TenantSettings>,
}

/// Everything that is wrong with a file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

/// One thing that is wrong with a file, such as `keys[0].sha256: must be 64 hex digits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub path: String,
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mistakes: Vec<String> = self.0.iter().map(Mistake::to_string).collect();
        f.write_str(&mistakes.join("; "))
    }
}

/// Reads a file that the document names.
pub type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<Vec<u8>> + 'a;

impl AuthDocument {
    /// Parses a document, and the files that it names. All mistakes are told at once.
    pub fn parse(text: &str, read_file: &mut ReadFile<'_>) -> Result<Self, Mistakes> {
        let whole = |message: String| Mistakes(vec![Mistake { path: String::new(), message }]);
        let value = agent::from_text(text, Format::Yaml)
            .map_err(|error| whole(format!("is not valid YAML: {}", error.message)))?;
        let sections = match value {
            Value::Object(sections) => sections,
            Value::Null => Map::new(),
            _ => return Err(whole("must be an object".to_owned())),
        };
        let mut reader = Reader::default();
        reader.only_known(&sections, &["keys", "issuers", "tokens", "tenants"]);
        let tenants = tenant::read(sections.get("tenants"), &mut reader);
        let known: BTreeSet<&Tenant> = tenants.keys().collect();
        let keys = key::read(sections.get("keys"), &known, &mut reader);
        let issuers = issuer::read(sections.get("issuers"), &known, &mut reader, read_file);
        let tokens = token_keys::read(sections.get("tokens"), &mut reader, read_file);
        let is_void = |section: &str| match sections.get(section) {
            None | Some(Value::Null) => true,
            Some(section) => section.as_array().is_some_and(Vec::is_empty),
        };
        if is_void("keys") && is_void("issuers") {
            // A file that is being written looks like this for a moment.
            reader.mistake("keys", "must have a key, or issuers an issuer: nobody is known");
        }
        let document = Self { keys, issuers, tokens, tenants };
        reader.finish().map(|()| document)
    }
}

/// The path of a `file:PATH`; `None` for anything else.
fn file_path(text: &str) -> Option<PathBuf> {
    text.strip_prefix("file:").filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests;
