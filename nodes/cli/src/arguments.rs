//! The commands with their options, wherever on the command line these stand.

use std::ffi::OsString;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use crate::command::Verb;
use crate::options::Options;

/// A command of [`Verb`] with the options that all of them have.
#[derive(Clone, Debug)]
pub struct Client {
    pub verb: Verb,
    pub options: Options,
}

impl Subcommand for Client {
    fn augment_subcommands(command: Command) -> Command {
        let with_options = |command: Command, name: String| {
            command.mut_subcommand(name, |command| {
                // Otherwise what the options are about would be what the command is about.
                let about = command.get_about().cloned().unwrap_or_default();
                Options::augment_args(command).about(about)
            })
        };
        names().fold(Verb::augment_subcommands(command), with_options)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Verb::has_subcommand(name)
    }
}

impl FromArgMatches for Client {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let verb = Verb::from_arg_matches(matches)?;
        let of_verb = matches.subcommand().map_or(matches, |(_, of_verb)| of_verb);
        Ok(Self { verb, options: Options::from_arg_matches(of_verb)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn names() -> impl Iterator<Item = String> {
    let command = Verb::augment_subcommands(Command::new(""));
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    names.into_iter()
}

/// The arguments with the global options after the command, where clap expects them, if they stand
/// before it: `abide -o json ls`.
pub fn rotate(arguments: Vec<OsString>) -> Vec<OsString> {
    let command = Options::augment_args(Command::new(""));
    let mut index = 1;
    while let Some(argument) = arguments.get(index) {
        let Some(text) = argument.to_str() else { return arguments };
        if !text.starts_with('-') {
            if index > 1 && names().any(|name| name == text) {
                let mut rotated = arguments;
                rotated[1..=index].rotate_right(1);
                return rotated;
            }
            return arguments;
        }
        let Some(words) = words_of(&command, text) else { return arguments };
        index += words;
    }
    arguments
}

/// How many words an option of [`Options`] takes; `None` if it is none of them.
fn words_of(command: &Command, text: &str) -> Option<usize> {
    let takes_value = |arg: &clap::Arg| arg.get_action().takes_values();
    if let Some(long) = text.strip_prefix("--") {
        let name = long.split('=').next()?;
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        return Some(if takes_value(arg) && !long.contains('=') { 2 } else { 1 });
    }
    let mut letters = text.strip_prefix('-')?.chars();
    while let Some(letter) = letters.next() {
        let arg = command.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
        if takes_value(arg) {
            return Some(if letters.as_str().is_empty() { 2 } else { 1 });
        }
    }
    Some(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::options::Output;

    fn rotated(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words: Vec<String> =
            rotate(words).into_iter().map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn global_options_may_stand_before_the_command() {
        for (given, expected) in [
            ("abide ls -o json", "abide ls -o json"),
            ("abide -o json ls --agent a", "abide ls -o json --agent a"),
            ("abide -ojson -qy --url=x ls", "abide ls -ojson -qy --url=x"),
            ("abide -vo json --url x agents ls", "abide agents -vo json --url x ls"),
            ("abide --store memory", "abide --store memory"),
            ("abide -o json serve", "abide -o json serve"),
            ("abide -o", "abide -o"),
            ("abide", "abide"),
        ] {
            assert_eq!(rotated(given), expected);
        }
    }

    fn parse(line: &str) -> Result<Client, clap::Error> {
        let command = Client::augment_subcommands(Command::new("abide"));
        let words = rotate(line.split(' ').map(OsString::from).collect());
        Client::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn options_reach_commands_of_every_depth() {
        for line in
            ["abide -o json agents ls", "abide agents -o json ls", "abide agents ls -o json"]
        {
            let client = parse(line).unwrap();
            assert_eq!(client.options.output, Output::Json, "{line}");
            assert!(matches!(client.verb, Verb::Agents(_)));
        }
        assert!(parse("abide answer c/call 1 --error x").is_err());
        assert!(parse("abide approve c").is_err());
        assert!(parse("abide deny c/x --match tool").is_err(), "nothing is remembered");
    }
}
