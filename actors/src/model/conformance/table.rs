//! The table of the README, drawn from what the cases say.

use super::{CASES, DIALECTS, verdicts};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const BEGIN: &str = "<!-- conformance -->\n";
const END: &str = "<!-- /conformance -->";

async fn table() -> String {
    let mut columns = Vec::new();
    for dialect in DIALECTS {
        columns.push((dialect.provider().name(), verdicts(dialect).await));
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
async fn the_readme_tells_what_every_provider_passes() {
    let readme = std::fs::read_to_string(README).unwrap();
    let (_, after) = readme.split_once(BEGIN).expect("the README has the table's mark");
    let (told, _) = after.split_once(END).expect("the README has the table's end");
    let table = table().await;
    assert!(told == table, "the README's table should be:\n{table}");
}
