//! Contexts: named nodes with a credential, in a file that only its owner reads.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// The most bytes of the file: more is not one of ours.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The contexts of this user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// Where nodes are, and who asks them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Context {
    #[serde(default)]
    pub url: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admin_url: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_token = self.token.is_some();
        formatter
            .debug_struct("Context")
            .field("url", &self.url)
            .field("token", &has_token)
            .finish()
    }
}

impl Contexts {
    /// Reads the file; without one there are no contexts.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let wrong = |reason: String| CliError::Usage(format!("{}: {reason}", path.display()));
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(wrong("others may read it: chmod 600 it, and renew its tokens".to_owned()));
        }
        if metadata.len() > MAX_FILE_BYTES {
            return Err(wrong("is larger than 1 MB".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        // The message of the parser could repeat a token.
        let place = |error: serde_json::Error| format!("is not JSON, line {}", error.line());
        serde_json::from_str(&text).map_err(|error| wrong(place(error)))
    }

    /// Replaces the file in one step, so that no reader sees a part of it.
    pub(crate) fn write(&self, path: &Path) -> Result<(), CliError> {
        let wrong = |error: io::Error| CliError::Failed(format!("{}: {error}", path.display()));
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(wrong)?;
        let draft = path.with_extension(format!("{}.new", std::process::id()));
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| CliError::Failed(error.to_string()))?;
        text.push('\n');
        let written = write_new(&draft, &text).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            // The draft holds the tokens, too.
            let _ = fs::remove_file(&draft);
        }
        written.map_err(wrong)
    }

    /// The context of this name, or else the current one; `None` if nothing is current.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<Option<&Context>, CliError> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        let found = self.contexts.get(name);
        found.map(Some).ok_or_else(|| CliError::NotFound(format!("there is no context {name:?}")))
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Where the file is: `$XDG_CONFIG_HOME/abide/contexts.json`, or below `~/.config`.
pub(crate) fn path() -> Result<PathBuf, CliError> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let config = config.ok_or_else(|| {
        CliError::Usage("neither XDG_CONFIG_HOME nor HOME is an absolute path".to_owned())
    })?;
    Ok(config.join("abide").join("contexts.json"))
}

/// Checks the name of a context.
pub(crate) fn check_name(name: &str) -> Result<(), CliError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(legal) {
        Ok(())
    } else {
        Err(CliError::Usage(
            "the name of a context must be 1 to 64 of A-Z a-z 0-9 _ . -".to_owned(),
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn one() -> Contexts {
        let context = Context {
            url: vec!["http://127.0.0.1:1".to_owned()],
            admin_url: Vec::new(),
            token: Some("secret".to_owned()),
        };
        let contexts = BTreeMap::from([("home".to_owned(), context)]);
        Contexts { current: Some("home".to_owned()), contexts }
    }

    #[test]
    fn only_the_owner_reads_the_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("abide").join("contexts.json");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        one().write(&path).unwrap();
        one().write(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(Contexts::read(&path).unwrap(), one());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Contexts::read(&path).unwrap_err().to_string();
        assert!(error.contains("others may read it"), "{error}");
    }

    #[test]
    fn no_error_and_no_debug_text_repeats_a_token() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("contexts.json");
        write_new(&path, "{\"contexts\": {\"a\": {\"token\": \"secret\"}} secret").unwrap();
        let error = Contexts::read(&path).unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("is not JSON"), "{error}");
        assert!(!format!("{:?}", one()).contains("secret"));
    }

    #[test]
    fn a_context_is_chosen_by_name_or_is_the_current_one() {
        let contexts = one();
        assert!(contexts.choose(None).unwrap().is_some());
        assert!(contexts.choose(Some("home")).unwrap().is_some());
        assert!(contexts.choose(Some("work")).is_err());
        assert_eq!(Contexts::default().choose(None).unwrap(), None);
        assert!(
            check_name("a-b.c_1").is_ok() && check_name("").is_err() && check_name("a b").is_err()
        );
    }
}
