//! Documents and directories of them, good and bad.

#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::json;

use super::*;
use crate::tools::fixtures::extensions;

const AGENT: &str = "name: NAME\nmodel: {provider: scripted, script: []}\n";

fn yaml(text: &str) -> Result<Value, String> {
    from_text(text, Format::Yaml).map_err(|invalid| invalid.to_string())
}

#[test]
fn yaml_and_json_say_the_same() {
    let read = yaml("a: 1\nb: [x, 2.5, true, null]\nc: {d: \"yes\"}\ne: yes\n").unwrap();
    let json = r#"{"a": 1, "b": ["x", 2.5, true, null], "c": {"d": "yes"}, "e": "yes"}"#;
    assert_eq!(read, from_text(json, Format::Json).unwrap());
    let radices = yaml("a: 0xFF\nb: 0xFFFFFFFFFFFFFFFFFF\n").unwrap();
    assert_eq!(radices, json!({"a": 255, "b": "0xFFFFFFFFFFFFFFFFFF"}));
}

#[test]
fn yaml_that_has_no_one_meaning_is_refused_with_its_line() {
    for bad in [
        "a: 1\nb: 2\na: 3\n",
        "a: 1\n[x, y]: 2\n",
        "a: 1\n{x: y}: 2\n",
        "a: 1\nb: [1, 2\n",
        "a: 1\nb: *nothing\n",
        "a: 1\nb: .nan\n",
        "a: 1\nb: .inf\n",
    ] {
        let error = yaml(bad).unwrap_err();
        assert!(error.contains("line "), "{bad:?}: {error}");
    }
    let twice = from_text("{\n\"a\": 1,\n\"a\": 2}", Format::Json).unwrap_err().to_string();
    assert!(twice.contains("the key a comes twice at line 3"), "{twice}");
    let twice = yaml("a: 1\nb: 2\na: 3\n").unwrap_err();
    assert_eq!(twice, "definition: the key a comes twice at line 3");
    assert!(yaml("a: 1\n---\nb: 2\n").is_err());
}

#[test]
fn a_key_that_is_no_text_is_refused() {
    for bad in ["1: x\n", "true: x\n", "null: x\n", "a: {2: x}\n", "1.5: x\n", "~: x\n"] {
        let error = yaml(bad).unwrap_err();
        assert!(error.contains("line 1"), "{bad:?}: {error}");
    }
}

#[test]
fn a_document_that_unfolds_without_end_is_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let aliases = vec![format!("*a{}", n - 1); 9].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
    }
    assert!(yaml(&bomb).is_err());
    let list = |n: usize| yaml(&format!("[{}]", "0,".repeat(n))).is_ok();
    assert!(list(MAX_YAML_NODES / 2) && !list(MAX_YAML_NODES + 1));
    assert!(yaml(&"[".repeat(10_000)).is_err());
    assert!(yaml(&format!("a: {}", "x".repeat(1024 * 1024))).is_err());
    assert!(from_text(&"[".repeat(10_000), Format::Json).is_err());
}

#[test]
fn a_directory_is_read_in_the_order_of_its_names() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| fs::write(directory.path().join(file), text).unwrap();
    write("b.yaml", &AGENT.replace("NAME", "two"));
    write("a.yml", &AGENT.replace("NAME", "one"));
    write(
        "c.json",
        &json!({"name": "three", "model": {"provider": "scripted", "script": []}}).to_string(),
    );
    write("readme.md", "not one of them");
    let loaded = load_dir(directory.path(), &extensions()).unwrap();
    let names: Vec<&str> = loaded.iter().map(|it| it.definition.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "three"]);
}

#[test]
fn what_is_wrong_in_a_directory_is_named_by_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |file: &str| directory.path().join(file);
    let load = || errors(directory.path()).join("; ");
    fs::write(path("a.yaml"), AGENT.replace("NAME", "one")).unwrap();
    fs::write(
        path("b.json"),
        r#"{"name": "one", "model": {"provider": "scripted", "script": []}}"#,
    )
    .unwrap();
    let twice = load();
    assert!(twice.contains("a.yaml") && twice.contains("b.json") && twice.contains("one"));
    fs::write(path("b.json"), "{").unwrap();
    assert!(load().contains("b.json: definition: "), "{}", load());
    fs::write(path("b.json"), r#"{"name": "two", "x": 1}"#).unwrap();
    assert!(load().contains("x: is not a known key; model: is missing"), "{}", load());
    fs::write(path("b.json"), b"\xff\xfe").unwrap();
    assert!(load().contains("b.json"), "{}", load());
    fs::write(path("b.json"), " ".repeat(MAX_DEFINITION_BYTES + 1)).unwrap();
    assert!(load().contains("b.json: definition: must be at most 1 MB"), "{}", load());
    fs::write(path("a.yaml"), "name: [").unwrap();
    assert_eq!(errors(directory.path()).len(), 2, "each file is named: {}", load());
    let missing = errors(&path("nowhere"));
    assert!(missing[0].contains("nowhere"), "{missing:?}");
}

fn errors(directory: &Path) -> Vec<String> {
    let errors = load_dir(directory, &extensions()).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}
