//! The examples run to their end and print what they promise; the book shows parts of them as they are.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where cargo puts the examples that it builds with the tests.
fn program(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().with_file_name("examples").join(name)
}

/// The standard output of an example, line by line; panics if it fails.
fn output(name: &str) -> Vec<String> {
    let program = program(name);
    assert!(program.exists(), "{program:?} is missing: cargo build -p abide --examples");
    let ended = Command::new(program).current_dir(env::temp_dir()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn an_embedded_node_runs_commands_and_stores_its_conversations() {
    let expected = [
        "assistant: Let me compute that.",
        "assistant: The shell says: exit 0 42.",
        "messages in the store: 4",
        "drained: true",
    ];
    assert_eq!(output("embed"), expected);
}

#[test]
fn native_tools_get_arguments_and_dependencies() {
    assert_eq!(output("native_tool"), ["assistant: 4 words; 2 euros are 3.0 dollars."]);
}

#[test]
fn hooks_redact_the_stream_and_deny_a_call() {
    let expected = [
        "assistant: Your number is ####.",
        "assistant: The tool said: permission denied: delete is refused by hook PreToolUse_#: \
         contract.pdf is protected",
    ];
    assert_eq!(output("hooks"), expected);
}

#[test]
fn middleware_sees_and_refuses_runs() {
    let expected = [
        r#"{"amount":50} -> {"ok":true,"result":"paid 50"}"#,
        r#"{"amount":500} -> {"ok":false,"error":"more than 100 is refused","error_type":"TOOL_ERROR"}"#,
        "assistant: Done: more than 100 is refused.",
    ];
    assert_eq!(output("middleware"), expected);
}

/// The text between the two markers of an example's part, without its common indentation.
fn part(source: &str, name: &str) -> String {
    let (_, rest) = source.split_once(&format!("// ANCHOR: {name}\n")).unwrap();
    let (part, _) = rest.split_once(&format!("// ANCHOR_END: {name}\n")).unwrap();
    part.trim_end().to_owned()
}

/// GitHub cannot include a file: the page repeats each part after a comment that names it.
#[test]
fn the_page_about_embedding_shows_the_examples_as_they_are() {
    let nodes = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = nodes.join("../deploy/docs/src/guide/embedding.md");
    let page = fs::read_to_string(page).unwrap();
    let shown: Vec<&str> = page.split("<!-- example: ").skip(1).collect();
    assert!(shown.len() >= 4, "{}", shown.len());
    for shown in shown {
        let (place, rest) = shown.split_once(" -->\n```rust\n").unwrap();
        let (code, _) = rest.split_once("\n```").unwrap();
        let (file, name) = place.split_once('#').unwrap();
        let source = fs::read_to_string(nodes.join("examples").join(file)).unwrap();
        assert_eq!(code, part(&source, name), "{place}");
    }
}
