//! Defects of the product that are known and not mended yet. What they cause is counted in place of
//! failing; a mended one is removed here. `SIM_KNOWN=fail` makes them fail, and any other text those
//! whose complaint contains it.

use std::sync::LazyLock;

/// A piece of a complaint, and the defect that it is known for.
const KNOWN: &[(&str, &str)] =
    &[("outlives its parent", "known: a child that was spawned while its parent was deleted")];

static FAILING: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("SIM_KNOWN").ok());

/// The known defect that a complaint is about.
pub fn defect(complaint: &str) -> Option<&'static str> {
    let fails = |failing: &String| failing == "fail" || complaint.contains(failing.as_str());
    if FAILING.as_ref().is_some_and(fails) {
        return None;
    }
    KNOWN.iter().find(|(piece, _)| complaint.contains(piece)).map(|(_, defect)| *defect)
}
