//! The book has no broken link, its contents are complete, and its tables are those of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use abide_actors::metric::METRICS;

use crate::{files, root};

const BOOK: &str = "deploy/docs/src";
/// The parts of the book that comments cite by their path below it.
const PARTS: [&str; 5] = ["guide", "reference", "architecture", "operations", "project"];
/// The files whose comments may cite the book.
const CITING: [&str; 6] = [".rs", ".lua", ".js", ".toml", ".yaml", ".sh"];
/// Documents that are not in the repository.
const ELSEWHERE: [&str; 4] = ["contract", "semantics", "tools.md", "architecture"];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages of the book, by their path below it, without its contents page.
fn pages() -> BTreeSet<String> {
    let below = |path: String| path.strip_prefix(BOOK)?.strip_prefix('/').map(str::to_owned);
    let pages = files().into_iter().filter_map(below).filter(|path| path.ends_with(".md"));
    pages.filter(|path| path != "SUMMARY.md").collect()
}

/// The lines that are prose: those outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    })
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of a page's links to other files and headings of the repository.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text).map(without_code) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.map(|(target, _)| target.to_owned()));
    }
    found.retain(|target| !target.contains("://") && !target.starts_with("mailto:"));
    found
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let legal = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let base: String = heading.chars().filter(legal).collect::<String>().replace(' ', "-");
        let times = seen.entry(base.clone()).or_default();
        anchors.insert(if *times == 0 { base } else { format!("{base}-{times}") });
        *times += 1;
    }
    anchors
}

/// What is wrong with a link to `file` and, if there is one, its heading `anchor`.
fn broken(file: &Path, anchor: Option<&str>) -> Option<String> {
    if !file.exists() {
        return Some(format!("there is no {}", file.display()));
    }
    let anchor = anchor?;
    let text = fs::read_to_string(file).unwrap_or_default();
    (!anchors(&text).contains(anchor)).then(|| format!("{} has no #{anchor}", file.display()))
}

fn split(target: &str) -> (&str, Option<&str>) {
    target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)))
}

#[test]
fn every_link_of_the_book_and_the_readme_leads_somewhere() {
    let book = pages().into_iter().chain(["SUMMARY.md".to_owned()]);
    let all = book.map(|page| format!("{BOOK}/{page}")).chain(["README.md".to_owned()]);
    let mut wrong = Vec::new();
    for page in all {
        let path = root().join(&page);
        for target in links(&read(&page)) {
            let (file, anchor) = split(&target);
            let file = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            wrong.extend(broken(&file, anchor).map(|why| format!("{page}: ({target}): {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_contents_list_every_page_and_no_other() {
    let listed = links(&read(&format!("{BOOK}/SUMMARY.md")));
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "a page is listed twice");
    let pages = pages();
    let missing: Vec<_> = pages.difference(&unique).collect();
    let gone: Vec<_> = unique.difference(&pages).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not listed: {missing:?}; gone: {gone:?}");
}

/// The files whose comments may cite the book, with their text.
fn citing() -> Vec<(String, String)> {
    let cites = |path: &String| CITING.iter().any(|ending| path.ends_with(ending));
    files().into_iter().filter(cites).map(|path| (path.clone(), read(&path))).collect()
}

/// The pages of the book that a text cites, such as a part's name, a slash and a page's name.
fn citations(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let mut found = Vec::new();
    for part in PARTS {
        for (at, _) in text.match_indices(&format!("{part}/")) {
            // A longer word is another folder.
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                continue;
            }
            let rest = &text[at..];
            let path = &rest[..rest.find(|c| !is_path(c)).unwrap_or(rest.len())];
            let Some(end) = path.find(".md") else { continue };
            let (path, rest) = rest.split_at(end + ".md".len());
            let is_anchor = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            let anchor = rest.strip_prefix('#').map(|rest| {
                let end = rest.find(|c| !is_anchor(c)).unwrap_or(rest.len());
                format!("#{}", &rest[..end])
            });
            found.push(format!("{path}{}", anchor.unwrap_or_default()));
        }
    }
    found
}

#[test]
fn every_page_that_a_comment_cites_exists() {
    let mut wrong = Vec::new();
    for (path, text) in citing() {
        for citation in citations(&text) {
            let (page, anchor) = split(&citation);
            let page: PathBuf = root().join(BOOK).join(page);
            wrong.extend(broken(&page, anchor).map(|why| format!("{path}: {citation}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_source_cites_a_document_that_is_elsewhere() {
    let elsewhere = ELSEWHERE.map(|name| format!("{name} \u{a7}"));
    let cites = |(path, text): &(String, String)| {
        let found: Vec<_> = elsewhere.iter().filter(|cited| text.contains(*cited)).collect();
        (!found.is_empty()).then(|| format!("{path}: {found:?}"))
    };
    let wrong: Vec<String> = citing().iter().filter_map(cites).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rows of a page's tables whose first cell is code that begins so: the code, and the row.
fn rows(page: &str, begins: &str) -> BTreeMap<String, String> {
    let text = read(&format!("{BOOK}/{page}"));
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once('`')?;
        name.starts_with(begins).then(|| (name.to_owned(), rest.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

fn same_names<'a>(
    page: &str,
    rows: &BTreeMap<String, String>,
    names: impl Iterator<Item = &'a str>,
) {
    let documented: BTreeSet<&str> = rows.keys().map(String::as_str).collect();
    let names: BTreeSet<&str> = names.collect();
    let missing: Vec<_> = names.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&names).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{page}: missing {missing:?}, gone {gone:?}");
}

/// The value of `name = "…"` in an attribute.
fn quoted<'a>(attribute: &'a str, name: &str) -> Option<&'a str> {
    attribute.split_once(&format!("{name} = \""))?.1.split('"').next()
}

/// The flags, each with its attribute, as the configuration declares them.
fn flags(source: &str) -> BTreeMap<String, &str> {
    let declared = source.split("#[arg(long").skip(1).filter_map(|rest| {
        let (attribute, field) = rest.split_once("pub ")?;
        let field = field.split(':').next()?;
        Some((format!("--{}", field.trim().replace('_', "-")), attribute))
    });
    declared.collect()
}

#[test]
fn every_flag_is_in_the_page_of_flags_with_its_variable_and_default() {
    let source = read("nodes/src/config.rs");
    let (flags, rows) = (flags(&source), rows("reference/flags.md", "--"));
    assert!(flags.len() >= 18, "{flags:?}");
    same_names("flags.md", &rows, flags.keys().map(String::as_str));
    for (flag, attribute) in &flags {
        let documented = [quoted(attribute, "env"), quoted(attribute, "default_value")];
        for value in documented.into_iter().flatten() {
            assert!(
                rows[flag].contains(&format!("`{value}`")),
                "{flag}: {value} is not documented"
            );
        }
    }
}

#[test]
fn every_metric_is_in_the_page_of_metrics_with_its_type_and_labels() {
    let rows = rows("reference/metrics.md", "abide_");
    same_names("metrics.md", &rows, METRICS.iter().map(|metric| metric.name));
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "—".to_owned() } else { labels.join(", ") };
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let documented = format!(" | {kind} | {labels} | ");
        assert!(
            rows[metric.name].starts_with(&documented),
            "{} is not documented as{documented}",
            metric.name
        );
    }
}

/// The texts of the match arms of a function of the source.
fn arms<'a>(source: &'a str, function: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(&format!("fn {function}(self)")).unwrap();
    let body = body.split("\n    }\n").next().unwrap();
    body.split('"').skip(1).step_by(2).collect()
}

#[test]
fn every_type_of_problem_is_in_the_page_of_problems_with_its_title() {
    let source = read("nodes/src/problem.rs");
    let names: Vec<String> =
        arms(&source, "name").iter().map(|name| format!("/problems/{name}")).collect();
    let titles = arms(&source, "title");
    assert!(names.len() >= 12 && names.len() == titles.len(), "{names:?} {titles:?}");
    let rows = rows("reference/problems.md", "/problems/");
    same_names("problems.md", &rows, names.iter().map(String::as_str));
    for (name, title) in names.iter().zip(titles) {
        assert!(rows[name].contains(&format!(" | {title} | ")), "{name}: {title}");
    }
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# A page\n## `GET /v1/x` and *more*\n## A page\n```\n# no heading\n```\n### Operators' API, 2";
    let expected = ["a-page", "get-v1x-and-more", "a-page-1", "operators-api-2"];
    assert_eq!(anchors(text), expected.map(str::to_owned).into());
    let text =
        format!("see {}/http.md#calls, and ../{}/x.md; pre-{}/no.md", PARTS[1], PARTS[0], PARTS[1]);
    let cited = [format!("{}/x.md", PARTS[0]), format!("{}/http.md#calls", PARTS[1])];
    assert_eq!(citations(&text), cited);
}
