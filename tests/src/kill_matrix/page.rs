//! The page of the book.

use std::collections::BTreeMap;

use super::gate::Side;
use super::points::{POINTS, Point};
use super::run::{BREAKS, Break, Observed};

const HEAD: &str = include_str!("page_head.md");
/// What a cell says when nothing differs.
const NO_DIFFERENCE: &str = "—";

/// One row of the table.
pub(super) struct Row {
    place: String,
    answers: String,
    events: String,
    again: String,
}

impl Row {
    pub(super) fn of(
        point: &Point,
        side: Side,
        what: Break,
        whole: &Observed,
        observed: &Observed,
    ) -> Self {
        Self {
            place: place(point, side, what),
            answers: cell(differing_answers(whole, observed)),
            events: cell(more(&whole.events, &observed.events)),
            again: cell(more(&whole.requests, &observed.requests)),
        }
    }
}

/// The first three cells of a row, which identify it.
fn place(point: &Point, side: Side, what: Break) -> String {
    let side = match side {
        Side::Before => "before it is done",
        Side::After => "done, not answered",
    };
    let what = match what {
        Break::Node => "node",
        Break::Redis => "Redis",
        Break::Link => "link",
        Break::Client => "client's link",
    };
    format!("| `{}` | {side} | {what} |", point.name)
}

fn cell(differences: Vec<String>) -> String {
    if differences.is_empty() { NO_DIFFERENCE.to_owned() } else { differences.join("; ") }
}

fn differing_answers(whole: &Observed, observed: &Observed) -> Vec<String> {
    let differ = observed
        .answers
        .iter()
        .filter(|(verb, answers)| whole.answers.get(*verb) != Some(*answers));
    differ.map(|(verb, answers)| format!("{verb}: {}", answers.join(", then "))).collect()
}

/// What there is more or less of.
fn more(whole: &BTreeMap<String, u64>, observed: &BTreeMap<String, u64>) -> Vec<String> {
    let names = whole.keys().chain(observed.keys().filter(|name| !whole.contains_key(*name)));
    let count = |counts: &BTreeMap<String, u64>, name| counts.get(name).copied().unwrap_or(0);
    let differences = names.filter_map(|name| {
        let (before, now) = (count(whole, name), count(observed, name));
        (before != now).then(|| format!("{name} ×{now}, not {before}"))
    });
    differences.collect()
}

pub(super) fn page(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## The await points\n\n| point | what is awaited |\n|---|---|\n");
    for Point { name, meaning } in POINTS {
        page.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    page.push_str(
        "\n## The matrix\n\n| point | when | breaks | client is answered | journal | asked again |\n\
         |---|---|---|---|---|---|\n",
    );
    for Row { place, answers, events, again } in rows {
        page.push_str(&format!("{place} {answers} | {events} | {again} |\n"));
    }
    page
}

pub(super) fn missing_rows(page: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for point in &POINTS {
        for side in [Side::Before, Side::After] {
            let places = BREAKS.map(|what| place(point, side, what));
            let has_row = |place: &String| page.lines().any(|line| line.starts_with(place));
            missing.extend(places.into_iter().filter(|place| !has_row(place)));
        }
    }
    missing
}
