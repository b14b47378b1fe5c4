//! The page of the command line has what the program itself says, and nothing else.

use std::fs;
use std::path::Path;

use abide::config::Cli;
use clap::{Arg, Command, CommandFactory};

const PAGE_PATH: &str = "../deploy/docs/src/reference/command-line.md";
const BEGIN: &str = "<!-- commands -->\n";
const END: &str = "<!-- /commands -->\n";
/// The commands that another page describes.
const ELSEWHERE: [&str; 4] = ["serve", "openapi", "keys", "help"];

/// The commands below one, as Markdown.
fn describe(command: &Command, path: &str, page: &mut String) {
    for below in command.get_subcommands() {
        let name = below.get_name();
        if ELSEWHERE.contains(&name) {
            continue;
        }
        let path = format!("{path} {name}");
        if below.has_subcommands() {
            describe(below, &path, page);
            continue;
        }
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        page.push_str(&format!("\n### {path}\n\n{about}.\n"));
        let own: Vec<&Arg> = below.get_arguments().filter(|arg| is_own(arg)).collect();
        if own.is_empty() {
            continue;
        }
        page.push_str("\n| argument | meaning |\n|---|---|\n");
        own.iter().for_each(|arg| page.push_str(&row(arg)));
    }
}

/// The options that every command has stand in a table of their own.
fn is_own(arg: &Arg) -> bool {
    !arg.is_global_set() && arg.get_id() != "help"
}

fn row(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let mut notes = Vec::new();
    if arg.get_action().takes_values() && !values.is_empty() {
        notes.push(values.join(", "));
    }
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        notes.push(format!("default `{}`", defaults.join(",")));
    }
    if let Some(variable) = arg.get_env() {
        notes.push(format!("`{}`", variable.to_string_lossy()));
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("| `{}` | {}{notes} |\n", signature(arg), help.replace('|', "\\|"))
}

fn signature(arg: &Arg) -> String {
    let value = arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    if arg.is_positional() {
        return if arg.is_required_set() { value } else { format!("[{value}]") };
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let value = if arg.get_action().takes_values() { format!(" {value}") } else { String::new() };
    format!("{}{value}", names.join(", "))
}

fn generated() -> String {
    let mut command = Cli::command();
    command.build();
    let mut page = String::from("## Global options\n\n| option | meaning |\n|---|---|\n");
    let any = command.get_subcommands().find(|it| it.get_name() == "ls").unwrap();
    let globals = any.get_arguments().filter(|arg| arg.is_global_set());
    globals.for_each(|arg| page.push_str(&row(arg)));
    page.push_str("\n## Commands\n");
    describe(&command, "abide", &mut page);
    page
}

#[test]
fn the_page_of_the_command_line_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE_PATH);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (text, after) = rest.split_once(END).unwrap();
    let expected = format!("\n{}\n", generated());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert!(
        text == expected,
        "the command line has changed: UPDATE_REFERENCE=1 cargo test -p abide-tests \
         --test command_line the_page_of_the_command_line"
    );
}
