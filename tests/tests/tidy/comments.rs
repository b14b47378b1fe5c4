//! Comments are plain English: each begins with a subject, and a number is called a number.

use std::fs;

use crate::{files, root};

/// How a comment does not begin, and what it says instead.
const FORBIDDEN_STARTS: [(&str, &str); 5] = [
    ("Of ", "a genitive has a noun: \"Client tools only.\""),
    ("Whose", "a relative clause stands for no noun: name the thing"),
    ("Whom", "a relative clause stands for no noun: name the thing"),
    ("The same,", "the same as what? Name it"),
    ("The same.", "the same as what? Name it"),
];

/// What no comment contains, and what it says instead.
const FORBIDDEN_PHRASES: [(&str, &str); 1] = [("so many", "N, or the quantity's name")];

/// Comments that may stay, as `path beginning`, each with its reason.
const ALLOWED: [(&str, &str); 0] = [];

/// The marks of comments by the ending of a file, the longest first.
const MARKS: [(&str, &[&str]); 5] = [
    (".rs", &["//!", "///", "//"]),
    (".lua", &["--"]),
    (".js", &["//"]),
    (".mjs", &["//"]),
    (".py", &["#"]),
];

/// A run of lines that are one comment, joined.
#[derive(Debug, PartialEq)]
struct Comment {
    line: usize,
    mark: &'static str,
    text: String,
}

/// The comments of a source that stand on lines of their own.
fn comments(source: &str, marks: &[&'static str]) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut last = 0;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let Some(mark) = marks.iter().find(|mark| line.starts_with(**mark)) else { continue };
        let (number, text) = (index + 1, line[mark.len()..].trim());
        match found.last_mut() {
            Some(comment) if last + 1 == number && comment.mark == *mark => {
                comment.text = format!("{} {text}", comment.text);
            }
            _ => found.push(Comment { line: number, mark, text: text.to_owned() }),
        }
        last = number;
    }
    found
}

/// Why a comment is wrong.
fn mistake(text: &str) -> Option<&'static str> {
    let starts = FORBIDDEN_STARTS.iter().find(|(start, _)| text.starts_with(start));
    let lower = text.to_lowercase();
    let contains = FORBIDDEN_PHRASES.iter().find(|(phrase, _)| lower.contains(phrase));
    starts.or(contains).map(|(_, instead)| *instead)
}

fn mistakes(path: &str, source: &str, marks: &[&'static str]) -> Vec<String> {
    let mut found = Vec::new();
    for comment in comments(source, marks) {
        let is_allowed = |(entry, _): &(&str, &str)| {
            entry
                .split_once(' ')
                .is_some_and(|(file, begins)| file == path && comment.text.starts_with(begins))
        };
        let Some(instead) = mistake(&comment.text) else { continue };
        if !ALLOWED.iter().any(is_allowed) {
            found.push(format!("{path}:{}: {:?}: {instead}", comment.line, comment.text));
        }
    }
    found
}

#[test]
fn every_comment_begins_with_a_subject_and_names_its_numbers() {
    let mut found = Vec::new();
    for path in files() {
        let Some((_, marks)) = MARKS.iter().find(|(end, _)| path.ends_with(end)) else { continue };
        found.extend(mistakes(&path, &fs::read_to_string(root().join(&path)).unwrap(), marks));
    }
    assert!(found.is_empty(), "{} comments:\n{}", found.len(), found.join("\n"));
}

/// A file of mistakes, which is no Rust file so that the rules leave it alone.
const MISTAKES: &str = include_str!("mistakes.txt");

#[test]
fn the_rule_of_comments_finds_each_mistake_that_breaks_it() {
    let found = mistakes("x", MISTAKES, MARKS[0].1);
    let lines: Vec<_> = found.iter().map(|it| it.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["x:1", "x:5", "x:10", "x:37"], "{found:?}");
}
