//! Runs the tests of `abide.js` with the test runner of Node.js.

use std::path::Path;
use std::process::Command;

#[test]
fn the_module_for_pages_does_what_its_own_tests_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    let output =
        Command::new("node").args(["--test", "--test-reporter=tap"]).current_dir(dir).output();
    let output = output.expect("node is missing: .ci/run installs it");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}");
    let passed = report.lines().find_map(|line| line.strip_prefix("# pass ")?.parse::<u32>().ok());
    assert!(passed >= Some(15), "{report}");
}
