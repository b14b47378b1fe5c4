//! Chats: as lines from a pipe, and on a terminal with a keyboard.

use std::process::Stdio;

use abide_tests::deadline::within;
use abide_tests::proxy::Proxy;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdout, Command};

use crate::ABIDE;
use crate::shell::{Shell, demo, finish};

#[tokio::test]
async fn a_chat_streams_texts_shows_calls_and_asks_for_what_waits() {
    let (_site, _node, shell) = demo().await;
    let lines = "hello\nPlease send a mail\nperhaps\ny\nChoose a seat\nmiddle\nwindow\n\
        Look it up\n/show\n/quit\n";
    let chat = shell.run_with(&["chat"], lines).await;
    let stderr = chat.stderr.clone();
    let stdout = chat.expect(0);
    for text in [
        "You said: hello",
        "? approval of send_email",
        "Send an e-mail to ada@example.com?",
        "\"ok\":true",
        "? elicitation of choose_seat",
        "You chose: ",
        "\"window\"",
        "→ look_up",
        "\"percent\":100",
        "I found: ",
        "idle",
    ] {
        assert!(stdout.contains(text), "{text}: {stdout}\n{stderr}");
    }
    assert!(stdout.contains("result"), "a wrong seat is refused and asked for again: {stdout}");
    assert!(stderr.contains("To go on: abide chat conv_"), "{stderr}");
    assert!(!stdout.contains('\u{1b}'), "no colours where nobody looks");
}

#[tokio::test]
async fn a_chat_goes_on_with_what_waited_when_it_was_left() {
    let (_site, _node, shell) = demo().await;
    let chat = shell.run_with(&["chat", "c", "--agent", "demo"], "send a mail\n\n").await;
    let stdout = chat.expect(0);
    assert!(stdout.contains("abide approve c/call_1_1"), "{stdout}");
    let later = shell.run_with(&["chat", "c"], "n not today\n").await.expect(0);
    assert!(later.contains("? approval of send_email") && later.contains("not today"), "{later}");
    shell.run_with(&["chat", "nobody"], "hi\n").await.expect(3);
    shell.run_with(&["chat", "c", "-o", "json"], "hi\n").await.expect(2);
}

/// Types into the program on a pseudo-terminal: waits for a text, then sends keys, line by line.
async fn type_into(shell: &Shell, arguments: &str, steps: &[(&str, &str)]) -> (i32, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command_line/keyboard.py");
    let mut command = Command::new("python3");
    let of_program = shell.command(&[]);
    for (name, value) in of_program.as_std().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let steps = serde_json::to_string(steps).unwrap();
    command.args([script, &steps, ABIDE]).args(arguments.split(' ')).env("TERM", "xterm");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = finish(command.kill_on_drop(true).spawn().unwrap(), "the keyboard").await;
    assert_eq!(run.stderr, "", "{run:#?}");
    (run.code, run.stdout)
}

#[tokio::test]
async fn on_a_terminal_approvals_are_chosen_and_an_interrupt_cancels_the_turn() {
    let (site, _node, shell) = demo().await;
    let enter = "\r";
    let steps = [
        ("> ", "send a mail\r"),
        // The first of the choices.
        ("Approve", enter),
        ("The tool said", ""),
        ("> ", "choose a seat\r"),
        // The second of the seats.
        ("aisle", "\u{1b}[B\r"),
        ("You chose", ""),
        ("> ", "look it up\r"),
        ("percent", "\u{3}"),
        ("turn cancelled", ""),
        ("> ", "\u{3}"),
        ("again leaves", ""),
        ("> ", "\u{3}"),
        ("To go on", ""),
    ];
    let (code, screen) = type_into(&shell, "chat c --agent demo", &steps).await;
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("\u{1b}[2m"), "calls are dim: {screen}");
    let journal = site.client.journal("c").await;
    assert_eq!(journal.of("turn_ended").count(), 3);
    let chosen = shell.run(&["messages", "c"]).await.expect(0);
    assert!(chosen.contains("You chose: \"aisle\"") || chosen.contains("aisle"), "{chosen}");
}

#[tokio::test]
async fn a_form_on_a_terminal_answers_a_question_and_no_color_is_respected() {
    let (_site, _node, shell) = demo().await;
    let shell = shell.with("NO_COLOR", "1");
    shell.run(&["say", "c", "choose a seat", "--agent", "demo"]).await.expect(4);
    let steps = [("aisle", "\r"), ("accepted", "")];
    let (code, screen) = type_into(&shell, "answer c/call_1_1", &steps).await;
    assert_eq!(code, 0, "{screen}");
    let (code, screen) =
        type_into(&shell, "tail c --after 0", &[("turn completed", "\u{3}")]).await;
    assert!(code != 0 && !screen.contains("\u{1b}[2m"), "{code} {screen}");
    let messages = shell.run(&["messages", "c"]).await.expect(0);
    assert!(messages.contains("window"), "{messages}");
}

#[tokio::test]
async fn a_chat_goes_on_when_its_node_dies_in_the_middle_of_a_text() {
    let (site, node, _) = demo().await;
    let words: Vec<String> = (0..40).map(|n| format!("word{n}")).collect();
    let entry = json!({"thinking": "Let me think.", "text": words.join(" "), "delay": "20ms"});
    let definition = json!({"model": {"provider": "scripted", "script": [entry]}});
    site.client.define("slow", &definition).await;
    // Its address stays, as that of a service does.
    let service = Proxy::to(&site.client.public_address());
    let shell = Shell::new().with("ABIDE_URL", &format!("http://{}", service.address()));
    let mut command = shell.command(&["chat", "c", "--agent", "slow"]);
    let mut chat = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = chat.stdin.take().unwrap();
    stdin.write_all(b"tell me\n").await.unwrap();
    let mut stdout = BufReader::new(chat.stdout.take().unwrap());
    let mut text = read_until(&mut stdout, "word9 ").await;
    node.kill().await;
    let _node = site.start().await;
    service.aim(&site.client.public_address());
    text.push_str(&read_until(&mut stdout, "word39").await);
    drop(stdin);
    assert_eq!(finish(chat, "the chat").await.code, 0);
    let (before, after) = text.split_once("(the message is begun anew)\n").unwrap();
    assert!(before.starts_with("Let me think.\n"), "{before}");
    assert!(after.contains(&words.join(" ")), "{after}");
    let messages = shell.run(&["messages", "c", "-o", "jsonl"]).await.json_lines();
    assert_eq!(messages.len(), 2, "{messages:#?}");
}

/// Reads until a text has come.
async fn read_until(reader: &mut BufReader<ChildStdout>, end: &str) -> String {
    let mut text = Vec::new();
    let reading = async {
        while !text.ends_with(end.as_bytes()) {
            text.push(reader.read_u8().await.unwrap());
        }
    };
    within(end, reading).await;
    String::from_utf8(text).unwrap()
}
