//! The tests of `abide.js`, which node's own runner runs.

use std::path::Path;
use std::process::Command;

#[test]
fn the_module_for_pages_does_what_its_own_tests_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    let ran =
        Command::new("node").args(["--test", "--test-reporter=tap"]).current_dir(dir).output();
    let ran = ran.expect("node is missing: .ci/run installs it");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let passed = said.lines().find_map(|line| line.strip_prefix("# pass ")?.parse::<u32>().ok());
    assert!(passed >= Some(15), "{said}");
}
