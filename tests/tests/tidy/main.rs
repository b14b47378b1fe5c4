//! The tree keeps the shape that its map promises.
#![allow(clippy::unwrap_used)]

mod book;
mod comments;
mod floors;
mod idiom;
mod names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package, and which others of ours it may depend on.
const DIRECTIONS: [(&str, &[&str]); 6] = [
    ("actors/conversation", &[]),
    ("actors", &["abide-conversation"]),
    ("registry", &["abide-conversation", "abide-actors"]),
    ("nodes/cli", &[]),
    ("nodes", &["abide-conversation", "abide-actors", "abide-registry", "abide-cli"]),
    ("tests", &["abide-conversation", "abide-actors", "abide-registry", "abide"]),
];
const ROOT: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "actors",
    "deploy",
    "nodes",
    "registry",
    "tests",
];
/// What the pure core must not know of.
const IMPURE: [&str; 7] =
    ["tokio", "ractor", "redis::", "SystemTime", "Instant::now", "Timestamp::now", "Uuid"];
const FILE_LINES: usize = 500;
const README_LINES: usize = 120;
const README_COLUMNS: usize = 160;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files that git knows or would add, below the root.
fn files() -> Vec<String> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(list).current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().filter(|path| root().join(path).exists()).map(str::to_owned).collect()
}

fn sources() -> Vec<(String, String)> {
    let rust = files().into_iter().filter(|path| path.ends_with(".rs"));
    rust.map(|path| (path.clone(), fs::read_to_string(root().join(path)).unwrap())).collect()
}

#[test]
fn dependencies_point_one_way() {
    for (package, allowed) in DIRECTIONS {
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
        let ours = manifest.lines().map(name).filter(|name| name.starts_with("abide"));
        for dependency in ours {
            assert!(allowed.contains(&dependency.as_str()), "{package} depends on {dependency}");
        }
    }
}

#[test]
fn the_visible_root_is_the_map() {
    let mut visible: Vec<String> = files()
        .iter()
        .map(|path| path.split('/').next().unwrap().to_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    visible.sort();
    visible.dedup();
    assert_eq!(visible, ROOT);
}

#[test]
fn every_file_says_what_it_is_and_fits_the_wall() {
    for (path, source) in sources() {
        assert!(source.starts_with("//! "), "{path} does not begin with its sentence");
        let lines = source.lines().count();
        assert!(lines <= FILE_LINES, "{path} has {lines} lines");
    }
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
    for line in readme.lines() {
        assert!(line.chars().count() <= README_COLUMNS, "a line of README.md is too long: {line}");
    }
}

#[test]
fn names_say_what_things_are() {
    for path in files() {
        let vague = ["manager", "util", "helper", "common"];
        let name = path.rsplit('/').next().unwrap();
        assert!(!vague.iter().any(|word| name.starts_with(word)), "{path}");
    }
}

#[test]
fn the_core_is_pure() {
    for (path, source) in sources() {
        if !path.starts_with("actors/conversation/src") {
            continue;
        }
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let word = IMPURE.iter().find(|word| line.contains(*word));
            assert!(word.is_none(), "{path} knows of {}: {line}", word.unwrap());
        }
    }
}

/// The pages of features and of protocols name tests; a test that is gone or renamed would make them lie.
#[test]
fn every_test_that_the_page_of_features_names_exists() {
    let rust: String = sources().into_iter().map(|(_, text)| text).collect();
    for page in ["project/features.md", "reference/protocols.md"] {
        let text = fs::read_to_string(root().join("deploy/docs/src").join(page)).unwrap();
        let names: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let tests = names.into_iter().filter(|name| is_test(name));
        let missing: Vec<_> =
            tests.clone().filter(|name| !rust.contains(&format!("fn {name}("))).collect();
        assert!(tests.count() > 50, "{page}");
        assert!(missing.is_empty(), "{page} names tests that are not there: {missing:?}");
    }
}

/// Names of tests are sentences; no other name has as many words.
fn is_test(name: &str) -> bool {
    name.split('_').count() >= 4 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn the_tests_that_the_fast_ring_leaves_out_exist() {
    let config = fs::read_to_string(root().join(".config/nextest.toml")).unwrap();
    let sources = sources();
    let patterns = config.split("test(/").skip(1).filter_map(|rest| rest.split("/)").next());
    let names =
        patterns.flat_map(|pattern| pattern.split(|c: char| !c.is_alphanumeric() && c != '_'));
    for name in names.filter(|name| name.len() > 4) {
        let exists = sources.iter().any(|(path, text)| path.contains(name) || text.contains(name));
        assert!(exists, ".config/nextest.toml: no test is called {name}");
    }
}

/// Where an id meets its tenant: the core's type, the border that has the caller's credential, and
/// whatever reads its own text again. Everything else goes by siblings.
const SCOPING: [&str; 15] = [
    "actors/conversation/src/scoped.rs",
    "actors/src/blobs.rs",
    "registry/src/agent_catalog.rs",
    // An erasure's alias is of one tenant.
    "registry/src/erasure.rs",
    // They go through what a tenant has.
    "registry/src/erasures/",
    "registry/src/index_rebuilder.rs",
    // A sweep goes through the agents of a tenant.
    "registry/src/retention.rs",
    "registry/src/store/",
    // An export of a store says of which tenant each conversation is.
    "registry/src/transfer/",
    "nodes/src/access/allowed.rs",
    "nodes/src/admin/scoped_id.rs",
    // A callback's token says of which tenant it is.
    "nodes/src/http/callbacks.rs",
    "nodes/src/seed_agents.rs",
    "tests/src/",
    "actors/src/notices/webhook.rs",
];

#[test]
fn an_id_is_scoped_at_the_border_and_in_the_stores_only() {
    let product = sources().into_iter().filter(|(path, _)| path.contains("/src/"));
    for (path, source) in product.filter(|(path, _)| !path.contains("fixtures")) {
        let code = source.split("#[cfg(test)]\n").next().unwrap();
        let scopes = ["Scoped::new(", "Scoped::parse(", "Scoped::<", "ScopedKeyId::parse("]
            .iter()
            .any(|it| code.contains(it));
        let is_here = SCOPING.iter().any(|here| path.starts_with(here));
        assert!(!scopes || is_here || path.contains("tests"), "{path} scopes an id");
    }
}
