//! Runs the tests of `abide.js` with the test runner of Node.js.

use std::path::Path;
use std::process::Command;

#[test]
fn the_module_for_pages_does_what_its_own_tests_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    let ended =
        Command::new("node").args(["--test", "--test-reporter=tap"]).current_dir(dir).output();
    let ended = ended.expect("node is missing: .ci/run installs it");
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{output}");
    let passed = output.lines().find_map(|line| line.strip_prefix("# pass ")?.parse::<u32>().ok());
    assert!(passed >= Some(15), "{output}");
}
