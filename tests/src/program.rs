//! Finds or builds the release build of the program.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// The given program, or else the release build of this source tree, built into the target
/// directory of the running program.
///
/// # Errors
///
/// What could not be found or built, and why.
pub async fn release(given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(given) = given {
        return given.canonicalize().map_err(|error| format!("{}: {error}", given.display()));
    }
    let running = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let target = running.parent().and_then(Path::parent);
    let target = target.ok_or_else(|| "this program is in no target directory".to_owned())?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", "abide", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .await;
    if built.map_err(|error| format!("cargo: {error}"))?.success() {
        Ok(target.join("release").join("abide"))
    } else {
        Err("abide could not be built".to_owned())
    }
}
