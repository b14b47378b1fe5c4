//! The overlays as `kubectl kustomize` builds them, and the Secrets that their user makes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::objects::Objects;
use crate::rules;

pub(crate) const OVERLAYS: [&str; 3] = ["single", "production", "production-redis"];
/// The version that `objects` has the types of.
const KUBERNETES: &str = "1.34";

/// A Secret's name, and what it has under which key.
pub(crate) type Secrets = BTreeMap<String, BTreeMap<String, String>>;

static SECRETS: LazyLock<Secrets> = LazyLock::new(secrets);

/// What one overlay gives to a cluster, as text, so that a test can change it.
pub(crate) struct Overlay {
    pub(crate) text: String,
}

impl Overlay {
    pub(crate) fn build(name: &str) -> Self {
        Self { text: kustomize(&deploy().join("k8s/overlays").join(name)) }
    }

    /// What does not belong together; what cannot be read, too.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        match Objects::read(&self.text) {
            Ok(objects) => rules::mistakes(&objects, &SECRETS),
            Err(why) => vec![why],
        }
    }

    /// What `kubernetes-validate --strict` says when it is content.
    pub(crate) fn validated(&self) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("built.yaml");
        std::fs::write(&file, &self.text).unwrap();
        let mut validate = Command::new(tool("kubernetes-validate"));
        run(validate.args(["--strict", "-k", KUBERNETES]).arg(file))
    }
}

/// The Secrets of `k8s/secrets`, made with every key that its first lines name.
pub(crate) fn secrets() -> Secrets {
    let source = deploy().join("k8s/secrets/kustomization.yaml");
    let text = std::fs::read_to_string(&source).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(&source, dir.path().join("kustomization.yaml")).unwrap();
    let examples = text.lines().filter_map(|line| line.strip_prefix("#   echo "));
    let script: String = examples.map(|line| format!("echo {line}\n")).collect();
    run(Command::new("sh").args(["-euc", &script]).current_dir(dir.path()));
    kustomize(dir.path()).split("\n---\n").map(decoded).collect()
}

fn decoded(document: &str) -> (String, BTreeMap<String, String>) {
    let mut value: Value = serde_saphyr::from_str(document).unwrap();
    for encoded in value["data"].as_object_mut().unwrap().values_mut() {
        // Long ones are written in lines, which Kubernetes' own type here does not read.
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

/// What the program says, if it ends well.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{complaint}");
    // One of the two tools tells its good news as complaints.
    if said.is_empty() { complaint.into_owned() } else { said }
}
