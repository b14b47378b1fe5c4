//! The overlays as `kubectl kustomize` builds them, and the Secrets that their user makes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use abide::config::Generate;
use abide_conversation::identity::Role;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::objects::Objects;
use crate::rules;

pub(crate) const OVERLAYS: [&str; 3] = ["single", "production", "production-redis"];
/// The Kubernetes version of the types in `objects`.
const KUBERNETES: &str = "1.34";

/// Secrets by name, each with its values by key.
pub(crate) type Secrets = BTreeMap<String, BTreeMap<String, String>>;

static SECRETS: LazyLock<Secrets> = LazyLock::new(secrets);

/// The objects of one overlay as text, so that a test can change it.
pub(crate) struct Overlay {
    pub(crate) text: String,
}

impl Overlay {
    pub(crate) fn build(name: &str) -> Self {
        Self { text: kustomize(&deploy().join("k8s/overlays").join(name)) }
    }

    /// The mistakes that the rules find; a parse error is one, too.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        match Objects::read(&self.text) {
            Ok(objects) => rules::mistakes(&objects, &SECRETS),
            Err(why) => vec![why],
        }
    }

    /// The output of a successful `kubernetes-validate --strict`.
    pub(crate) fn validate(&self) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("built.yaml");
        std::fs::write(&file, &self.text).unwrap();
        let mut validate = Command::new(tool("kubernetes-validate"));
        run(validate.args(["--strict", "-k", KUBERNETES]).arg(file))
    }
}

/// Builds the Secrets of `k8s/secrets` with every key that the file's first lines name.
pub(crate) fn secrets() -> Secrets {
    let source = deploy().join("k8s/secrets/kustomization.yaml");
    let text = std::fs::read_to_string(&source).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(&source, dir.path().join("kustomization.yaml")).unwrap();
    let key = Generate { roles: vec![Role::Operator], tenant: None }.run().unwrap();
    std::fs::write(dir.path().join("operator.key"), key + "\n").unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("#   "));
    let examples = lines.filter(|line| line.starts_with("echo ") || line.starts_with("{ echo "));
    let script: String = examples.map(|line| format!("{line}\n")).collect();
    run(Command::new("sh").args(["-euc", &script]).current_dir(dir.path()));
    kustomize(dir.path()).split("\n---\n").map(decode_secret).collect()
}

fn decode_secret(document: &str) -> (String, BTreeMap<String, String>) {
    let mut value: Value = serde_saphyr::from_str(document).unwrap();
    for encoded in value["data"].as_object_mut().unwrap().values_mut() {
        // Long values are split into lines, which the Rust type of a Secret does not parse.
        *encoded = encoded.as_str().unwrap().split_whitespace().collect::<String>().into();
    }
    let secret: Secret = serde_json::from_value(value).unwrap();
    let data = secret.data.unwrap_or_default().into_iter();
    let data = data.map(|(key, value)| (key, String::from_utf8(value.0).unwrap()));
    (secret.metadata.name.unwrap(), data.collect())
}

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn kustomize(dir: &Path) -> String {
    run(Command::new(tool("kubectl")).arg("kustomize").arg(dir))
}

/// A program that `.ci/kubernetes` has installed.
fn tool(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| Path::new(&std::env::var("HOME").unwrap()).join(".cache"));
    let program = cache.join("abide-tests/kubernetes/bin").join(name);
    assert!(program.exists(), "{} is missing: run .ci/kubernetes", program.display());
    program
}

/// The output of a program, which must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    // One of the tools reports success on standard error.
    if stdout.is_empty() { stderr.into_owned() } else { stdout }
}
