//! Checks the conformance table in the guide to models against the results of the cases.

use super::{CASES, DIALECTS, run_cases};

const BOOK_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/docs/src/guide/models.md");
const BEGIN: &str = "<!-- conformance -->\n";
const END: &str = "<!-- /conformance -->";

async fn table() -> String {
    let mut columns = Vec::new();
    for dialect in DIALECTS {
        columns.push((dialect.provider().name(), run_cases(dialect).await));
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut table = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for (at, case) in CASES.iter().enumerate() {
        let mark = |verdicts: &Vec<_>| if Result::is_ok(&verdicts[at]) { "yes" } else { "—" };
        let marks: Vec<&str> = columns.iter().map(|(_, verdicts)| mark(verdicts)).collect();
        table.push_str(&format!("| {} | {} |\n", case.name, marks.join(" | ")));
    }
    table
}

#[tokio::test]
async fn the_guide_to_models_lists_what_every_provider_passes() {
    let page = std::fs::read_to_string(BOOK_PAGE).unwrap();
    let (_, after) = page.split_once(BEGIN).expect("the page has the table's first marker");
    let (written, _) = after.split_once(END).expect("the page has the table's last marker");
    let table = table().await;
    assert!(written == table, "the table in {BOOK_PAGE} should be:\n{table}");
}
