//! The code is written as Rust is written elsewhere: `if` for a condition, one `let` for one value.

use crate::sources;

/// The statements that a rule finds in the tree and that may stay, as `path pattern`, each with its reason.
const ALLOWED: [(&str, &str); 0] = [];

/// The most names that one `let` binds of values that are written out.
const MAX_NAMES: usize = 2;

/// The arms of a `match` on a condition, which is an `if`.
fn matches_on_conditions(path: &str, source: &str) -> Vec<String> {
    let is_arm = |line: &str| {
        ["true =>", "false =>"]
            .iter()
            .any(|arm| line.trim_start().starts_with(arm) || line.contains(&format!("{{ {arm}")))
    };
    let arms = source.lines().enumerate().filter(|(_, line)| is_arm(line));
    arms.map(|(index, line)| format!("{path}:{}: {}", index + 1, line.trim())).collect()
}

/// A `let` of a tuple: its line, its pattern and its value.
struct TupleLet<'a> {
    line: usize,
    pattern: &'a str,
    value: &'a str,
}

impl TupleLet<'_> {
    fn names(&self) -> usize {
        parts(self.pattern)
    }

    /// Values that are written out, in contrast to a call that returns a tuple.
    fn is_written_out(&self) -> bool {
        self.value.starts_with('(')
    }

    fn hides_types(&self) -> bool {
        self.value.contains("Default::default()")
    }
}

/// The length of the text up to the bracket that closes the one that was just opened.
fn bracketed(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    text.find(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// The number of parts of a list that commas separate outside of brackets.
fn parts(list: &str) -> usize {
    let mut depth = 0_usize;
    let commas = list.trim_end().trim_end_matches(',').chars().filter(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        depth == 0 && *c == ','
    });
    commas.count() + 1
}

/// The `let` statements of tuples, without `if let` and its like.
fn tuple_lets(source: &str) -> Vec<TupleLet<'_>> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("let (") {
        let before = &source[..at];
        let is_statement = before.lines().last().is_none_or(|line| line.trim().is_empty());
        let rest = &source[at + "let (".len()..];
        let (true, Some(end)) = (is_statement || before.ends_with('\n'), bracketed(rest)) else {
            continue;
        };
        let Some((_, value)) = rest[end..].split_once('=') else { continue };
        let value = value.split(';').next().unwrap_or_default().trim();
        found.push(TupleLet { line: before.lines().count().max(1), pattern: &rest[..end], value });
    }
    found
}

fn long_tuple_lets(path: &str, source: &str) -> Vec<String> {
    let lets = tuple_lets(source).into_iter();
    let wrong = lets.filter(|it| it.names() > MAX_NAMES && it.is_written_out());
    wrong.map(|it| format!("{path}:{}: let ({})", it.line, it.pattern)).collect()
}

fn tuple_lets_of_defaults(path: &str, source: &str) -> Vec<String> {
    let wrong = tuple_lets(source).into_iter().filter(TupleLet::hides_types);
    wrong.map(|it| format!("{path}:{}: let ({})", it.line, it.pattern)).collect()
}

/// Everything that a rule finds in the tree and that is not allowed to stay.
fn violations(rule: fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let mut found: Vec<_> = sources().iter().flat_map(|(path, it)| rule(path, it)).collect();
    let allowed = |line: &String| {
        let (place, text) = line.split_once(": ").unwrap_or((line, ""));
        let path = place.split(':').next().unwrap_or_default();
        ALLOWED.iter().any(|(entry, _)| *entry == format!("{path} {text}"))
    };
    found.retain(|line| !allowed(line));
    found
}

#[test]
fn no_condition_is_matched() {
    let found = violations(matches_on_conditions);
    assert!(found.is_empty(), "{} arms:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_let_binds_more_than_two_written_values() {
    let found = violations(long_tuple_lets);
    assert!(found.is_empty(), "{} statements:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_tuple_of_defaults_hides_the_types() {
    let found = violations(tuple_lets_of_defaults);
    assert!(found.is_empty(), "{} statements:\n{}", found.len(), found.join("\n"));
}

/// A file of mistakes, which is no Rust file so that the rules leave it alone.
const MISTAKES: &str = include_str!("mistakes.txt");

#[test]
fn each_rule_of_idiom_finds_the_mistake_that_breaks_it() {
    let found = matches_on_conditions("x", MISTAKES);
    let places: Vec<_> = found.iter().map(|it| it.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["x:22", "x:23", "x:25"], "{found:?}");
    let long = ["x:26: let (b, c, d)", "x:27: let (Some((e, f)), g, h)"];
    assert_eq!(long_tuple_lets("x", MISTAKES), long);
    let defaults = ["x:31: let (m, n)", "x:32: let (o, p)"];
    assert_eq!(tuple_lets_of_defaults("x", MISTAKES), defaults);
}
