//! Names say what things are: no participles, no doubles, errors end in `Error`, constants are nouns.

use std::collections::BTreeMap;

use crate::{DIRECTIONS, sources};

/// Past participles say that something happened, but neither what it is nor what is to be done.
/// No function, module or type bears one of them as its whole name.
const PARTICIPLES: [&str; 9] =
    ["asked", "heard", "hooked", "judged", "kept", "said", "shown", "told", "untold"];

/// Adjectives, adverbs and nouns of feeling that name neither what a constant bounds nor its unit.
/// `MAX_…`, `…_TIMEOUT`, `…_INTERVAL`, `…_BYTES` and `…_PERCENT` do.
const VAGUE_CONSTANTS: [&str; 33] = [
    "AGAIN",
    "AGAIN_AFTER",
    "ASKED",
    "AT_ONCE",
    "AWAY",
    "BREATH",
    "BRIEFLY",
    "DEEPEST",
    "FEW",
    "HEARD",
    "JUDGED",
    "KEPT",
    "LARGEST",
    "LONGEST",
    "LOOKS",
    "LOW",
    "MOMENT",
    "MOST",
    "PAGE",
    "PATIENCE",
    "PATIENT",
    "PAUSE",
    "RESTS",
    "ROOM",
    "SAID",
    "SELDOM",
    "SHORTEST",
    "SHOWN",
    "SOON",
    "TOLD",
    "TRIES",
    "WAITING",
    "WORTH",
];

/// Items that bear a forbidden name, as `path name`, and the reason why they may.
const ALLOWED_NAMES: [(&str, &str); 0] = [];

/// Public types of one crate that share a name, as `crate name`, and the reason why they may.
const ALLOWED_DOUBLES: [(&str, &str); 4] = [
    ("actors/conversation ChildEnded", "the command and the event that it results in"),
    ("actors/conversation ChildStarted", "the command and the event that it results in"),
    ("registry Durability", "each store's own level of durability, always qualified by its module"),
    ("registry OpenError", "each store's own reasons, always qualified by its module"),
];

/// Types that derive `thiserror::Error` under another name, and the reason why they may.
const ALLOWED_ERRORS: [(&str, &str); 3] = [
    ("IllegalEvent", "the event that a checked fold refuses, named like `Rejection` of a command"),
    ("ExitReason", "why an actor ended, which ractor carries as an error whether it is one or not"),
    ("McpUnavailable", "a state of an MCP server that the model is shown, too"),
];

/// What a name of an error ends in. A `Rejection` is a refusal of the core, which is a value.
const ERROR_ENDINGS: [&str; 2] = ["Error", "Rejection"];

/// What stands between the start of an item's line and its keyword.
const QUALIFIERS: [&str; 4] = ["async ", "const ", "unsafe ", "extern \"C\" "];

/// The keywords that declare an item.
const KEYWORDS: [&str; 9] =
    ["fn", "mod", "struct", "enum", "trait", "type", "union", "const", "static"];

#[derive(Debug, PartialEq)]
struct Item<'a> {
    line: usize,
    is_public: bool,
    keyword: &'a str,
    name: &'a str,
}

impl Item<'_> {
    fn is_type(&self) -> bool {
        ["struct", "enum", "trait", "type", "union"].contains(&self.keyword)
    }

    fn is_constant(&self) -> bool {
        ["const", "static"].contains(&self.keyword)
    }
}

fn is_qualified(declaration: &str) -> bool {
    QUALIFIERS.iter().any(|word| declaration.starts_with(word))
}

/// The item that a line of formatted source declares.
fn item(number: usize, line: &str) -> Option<Item<'_>> {
    let mut rest = line.trim_start();
    let mut is_public = false;
    if let Some(after) = rest.strip_prefix("pub") {
        is_public = after.starts_with(' ');
        rest = after.strip_prefix('(').and_then(|it| it.split_once(')')).map_or(after, |it| it.1);
        rest = rest.strip_prefix(' ')?;
    }
    while let Some(after) = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(*word)) {
        // `const` qualifies a function and declares everything else.
        if rest.starts_with("const ") && !(after.starts_with("fn ") || is_qualified(after)) {
            break;
        }
        rest = after;
    }
    let (keyword, rest) = rest.split_once(' ')?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
    let is_item = KEYWORDS.contains(&keyword) && !name.is_empty();
    is_item.then_some(Item { line: number, is_public, keyword, name })
}

/// The items that a source declares, in their order.
fn items(source: &str) -> impl Iterator<Item = Item<'_>> {
    source.lines().enumerate().filter_map(|(index, line)| item(index + 1, line))
}

fn is_allowed(list: &[(&str, &str)], entry: &str) -> bool {
    list.iter().any(|(allowed, _)| *allowed == entry)
}

fn participles(path: &str, source: &str) -> Vec<String> {
    let forbidden = |item: &Item| {
        let name = item.name.to_lowercase();
        !item.is_constant()
            && PARTICIPLES.contains(&name.as_str())
            && !is_allowed(&ALLOWED_NAMES, &format!("{path} {}", item.name))
    };
    let found = items(source).filter(forbidden);
    found.map(|it| format!("{path}:{}: {} {}", it.line, it.keyword, it.name)).collect()
}

fn vague_constants(path: &str, source: &str) -> Vec<String> {
    let forbidden = |item: &Item| {
        item.is_constant()
            && VAGUE_CONSTANTS.contains(&item.name)
            && !is_allowed(&ALLOWED_NAMES, &format!("{path} {}", item.name))
    };
    let found = items(source).filter(forbidden);
    found.map(|it| format!("{path}:{}: {}", it.line, it.name)).collect()
}

/// The types that derive `thiserror::Error` and whose names do not say that they are errors.
fn misnamed_errors(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for derive in source.split("#[derive(").skip(1) {
        let Some((traits, rest)) = derive.split_once(")]") else { continue };
        if !traits.split(',').any(|it| ["thiserror::Error", "Error"].contains(&it.trim())) {
            continue;
        }
        let Some(item) = items(rest).find(Item::is_type) else { continue };
        let is_error = ERROR_ENDINGS.iter().any(|ending| item.name.ends_with(ending));
        if !is_error && !is_allowed(&ALLOWED_ERRORS, item.name) {
            found.push(format!("{path}: {}", item.name));
        }
    }
    found
}

/// The public types of the crates' sources that are there twice: where they are by crate and name.
fn doubles(sources: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, source) in sources {
        let Some((folder, _)) = path.split_once("/src/") else { continue };
        if !DIRECTIONS.iter().any(|(package, _)| *package == folder) {
            continue;
        }
        for item in items(source).filter(|item| item.is_public && item.is_type()) {
            let place = format!("{path}:{}", item.line);
            types.entry(format!("{folder} {}", item.name)).or_default().push(place);
        }
    }
    types.retain(|entry, places| places.len() > 1 && !is_allowed(&ALLOWED_DOUBLES, entry));
    types
}

fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "{} names:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_item_is_named_by_a_participle() {
    let all = sources();
    let found: Vec<_> = all.iter().flat_map(|(path, source)| participles(path, source)).collect();
    assert_none(&found);
}

#[test]
fn every_constant_names_a_thing() {
    let all = sources();
    let found: Vec<_> = all.iter().flat_map(|(path, it)| vague_constants(path, it)).collect();
    assert_none(&found);
}

#[test]
fn every_error_is_named_so() {
    let all = sources();
    let found: Vec<_> = all.iter().flat_map(|(path, it)| misnamed_errors(path, it)).collect();
    assert_none(&found);
}

#[test]
fn no_public_type_has_the_name_of_another_in_its_crate() {
    let found = doubles(&sources());
    let lines: Vec<_> = found.iter().map(|(name, places)| format!("{name}: {places:?}")).collect();
    assert_none(&lines);
}

/// A file of mistakes, which is no Rust file so that the rules leave it alone.
const MISTAKES: &str = include_str!("mistakes.txt");

#[test]
fn each_rule_of_names_finds_the_mistake_that_breaks_it() {
    let named = ["7: fn said", "12: enum Told", "14: mod kept"].map(|it| format!("x:{it}"));
    assert_eq!(participles("x", MISTAKES), named);
    assert_eq!(vague_constants("x", MISTAKES), ["x:16: MOST", "x:17: PATIENCE"]);
    assert_eq!(misnamed_errors("x", MISTAKES), ["x: Broken", "x: Misfortune"]);
    let twice = ["registry/src/a.rs", "registry/src/b.rs", "elsewhere/src/c.rs"];
    let found = doubles(&twice.map(|path| (path.to_owned(), "pub struct Page;".to_owned())));
    let places = ["registry/src/a.rs:1", "registry/src/b.rs:1"].map(str::to_owned).to_vec();
    assert_eq!(found, BTreeMap::from([("registry Page".to_owned(), places)]));
}

#[test]
fn no_list_of_exceptions_has_an_entry_that_nothing_needs() {
    let all = sources();
    let declares = |path: &str, name: &str| {
        let source = all.iter().find(|(it, _)| it == path);
        source.is_some_and(|(_, source)| items(source).any(|item| item.name == name))
    };
    for (entry, _) in ALLOWED_NAMES {
        let (path, name) = entry.split_once(' ').unwrap();
        assert!(declares(path, name), "{entry}");
    }
    for (entry, _) in ALLOWED_DOUBLES {
        let (folder, name) = entry.split_once(' ').unwrap();
        let inside = all.iter().filter(|(path, _)| path.starts_with(&format!("{folder}/src/")));
        let types = inside.flat_map(|(_, source)| items(source).filter(|it| it.is_public));
        assert!(types.filter(|item| item.is_type() && item.name == name).count() > 1, "{entry}");
    }
    for (name, _) in ALLOWED_ERRORS {
        assert!(all.iter().any(|(_, it)| items(it).any(|item| item.name == name)), "{name}");
    }
}
