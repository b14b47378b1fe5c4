//! The packages of our own clients: their types, their tests on the oldest and a present version, and
//! the archives of a release.

use std::path::PathBuf;
use std::process::Stdio;

use abide_tests::deadline::DEADLINE;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clients::{clients, installed};

/// Copies the sources of a client, so that nothing is written beside them. Returns the directory.
async fn copy(language: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("cp");
    command.arg("-r").arg(clients().join(language)).arg(dir.path());
    run(&mut command, "the copy").await;
    let copied = dir.path().join(language);
    (dir, copied)
}

/// Runs a command to its end, and fails with its output unless it succeeds in time.
async fn run(command: &mut Command, what: &str) -> String {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // A process group of its own, so that what it has started ends with it, too.
    let child = command.process_group(0).spawn().unwrap();
    let group = child.id().and_then(|pid| Pid::from_raw(pid as i32));
    let Ok(output) = timeout(DEADLINE, child.wait_with_output()).await else {
        group.map(|group| kill_process_group(group, Signal::KILL));
        panic!("timed out after {DEADLINE:?} waiting for {what}");
    };
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test]
async fn our_client_for_python_is_typed_tested_and_packed() {
    let (_dir, python) = copy("python").await;
    let program = |name: &str| installed().join(name);
    let new = |name: &str| {
        let mut command = Command::new(program(name));
        command.current_dir(&python).env("PYTHONPATH", "src");
        command.env("ABIDE_OPENAPI", clients().join("../openapi.json"));
        command
    };
    let newest = "python/bin/python";
    run(new(newest).args(["tools/make_sync.py", "--check"]), "_sync to be current").await;
    run(new(newest).args(["-m", "mypy", "--strict", "src", "examples"]), "the types").await;
    for name in ["python-oldest/bin/python", newest] {
        run(new(name).args(["-m", "unittest", "discover", "tests"]), name).await;
    }
    let build = ["-m", "build", "--no-isolation", "--outdir", "dist"];
    run(new(newest).args(build), "the archives").await;
    let wheel = python.join("dist/abide_client-0.1.0-py3-none-any.whl");
    let files = run(new(newest).args(["-m", "zipfile", "-l"]).arg(wheel), "the wheel").await;
    for file in ["abide_client/py.typed", "abide_client/_sync/turn.py", "licenses/LICENSE"] {
        assert!(files.contains(file), "{file} is not in the wheel: {files}");
    }
}

#[tokio::test]
async fn our_client_for_node_is_typed_tested_and_packed() {
    let typescript = clients().join("typescript");
    for name in ["node-oldest", "node"] {
        let mut command = Command::new(installed().join(name));
        let tests = ["client", "http-tools", "transfer"]
            .map(|it| typescript.join(format!("test/{it}.test.mjs")));
        run(command.arg("--test").args(tests), name).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let modules = dir.path().join("node_modules");
    std::fs::create_dir_all(modules.join("@abide")).unwrap();
    for package in std::fs::read_dir(installed().join("node_modules")).unwrap() {
        let package = package.unwrap();
        if package.file_name() != "@abide" {
            let place = modules.join(package.file_name());
            std::os::unix::fs::symlink(package.path(), place).unwrap();
        }
    }
    let node = || Command::new(installed().join("node"));
    let mut pack = node();
    pack.arg(typescript.join("pack.mjs")).arg(dir.path().join("packed"));
    pack.env("ABIDE_PACKAGES", installed().join("node_modules"));
    run(&mut pack, "the archives").await;
    for name in ["client", "react"] {
        let place = modules.join("@abide").join(name);
        std::fs::create_dir(&place).unwrap();
        let mut unpack = Command::new("tar");
        unpack.arg("xzf").arg(dir.path().join(format!("packed/abide-{name}-0.1.0.tgz")));
        run(unpack.args(["--strip", "1", "-C"]).arg(&place), "the archive").await;
        assert!(place.join("LICENSE").exists() && place.join("README.md").exists());
    }
    std::fs::copy(typescript.join("test/use.tsx"), dir.path().join("use.tsx")).unwrap();
    let mut check = node();
    check.arg(installed().join("node_modules/typescript/bin/tsc")).current_dir(dir.path());
    check.args(["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022"]);
    check.args(["--lib", "es2023,dom,dom.iterable", "--jsx", "react-jsx", "--skipLibCheck"]);
    run(check.arg("use.tsx"), "the types").await;
    let import = "const { Abide } = await import('@abide/client'); new Abide();";
    for name in ["node-oldest", "node"] {
        let mut command = Command::new(installed().join(name));
        command.current_dir(dir.path()).args(["--input-type=module", "-e", import]);
        run(&mut command, "the package to be imported").await;
    }
}
