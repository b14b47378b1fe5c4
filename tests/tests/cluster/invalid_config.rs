//! Bad configuration is refused with one line that names it, exit code 2, and nothing written.

use std::path::Path;

use abide_tests::node::Site;

use crate::ABIDE;

/// Runs the program with these flags, which it must refuse in one line that contains these words.
async fn refuses(site: &Site, flags: &[&str], words: &[&str]) {
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let store = format!("embedded:{}", site.store().display());
    let mut all: Vec<&str> = flags.to_vec();
    for pair in ports.chunks(2).chain([["--store", &store].as_slice()]) {
        if !flags.iter().any(|flag| *flag == pair[0]) {
            all.extend(pair);
        }
    }
    let output = site.run(&all).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{flags:?} must be refused in one line: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{flags:?}: {word} is not named in: {stderr}");
    }
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

async fn refuses_and_writes_nothing(site: &Site, flags: &[&str], words: &[&str]) {
    let before = contents(site.dir());
    refuses(site, flags, words).await;
    assert_eq!(contents(site.dir()), before, "{flags:?} wrote something");
}

/// All files below a directory, with their contents.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.push((path.display().to_string(), Vec::new()));
            files.extend(contents(&path));
        } else {
            files.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn a_store_that_another_process_has_open_is_refused_and_left_alone() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let store = site.store().display().to_string();
    // A running node writes for itself, too: it rebuilds the indexes of a new store.
    node.stop().await;
    refuses_and_writes_nothing(&site, &[], &[&store]).await;
    node.cont();
    site.client.get("/v1/agents").await.expect(200);
}

#[tokio::test]
async fn a_store_that_was_killed_is_not_taken_for_one_that_is_open() {
    let site = Site::new(ABIDE);
    for _ in 0..3 {
        site.start().await.kill().await;
    }
}

#[tokio::test]
async fn a_directory_of_agents_that_is_missing_is_refused() {
    let site = Site::new(ABIDE);
    refuses_and_writes_nothing(&site, &["--agents", "not/there"], &["not/there"]).await;
}

#[tokio::test]
async fn a_definition_that_is_refused_is_named_with_its_tool_and_field() {
    let site = Site::new(ABIDE);
    let agents = site.dir().join("agents");
    std::fs::create_dir(&agents).unwrap();
    let good = "name: good\nmodel: {provider: scripted, script: [{text: hi}]}\n";
    std::fs::write(agents.join("good.yaml"), good).unwrap();
    let bad = "name: bad\nmodel: {provider: scripted, script: [{text: hi}]}\ntools:\n  \
               - {name: ask, description: d, executor: human, approval: requires_approval,\n     \
               parameters: {type: object}}\n";
    std::fs::write(agents.join("bad.yaml"), bad).unwrap();
    let words = ["bad.yaml", "ask", "approval"];
    refuses_and_writes_nothing(&site, &["--agents", "agents"], &words).await;
    std::fs::write(agents.join("bad.yaml"), "name: [").unwrap();
    refuses_and_writes_nothing(&site, &["--agents", "agents"], &["bad.yaml"]).await;
    std::fs::write(agents.join("bad.yaml"), "name: bad\nmodle: {}\n").unwrap();
    refuses_and_writes_nothing(&site, &["--agents", "agents"], &["bad.yaml", "modle"]).await;
}

#[tokio::test]
async fn flags_with_bad_values_are_refused_by_name() {
    let site = Site::new(ABIDE);
    let bad: [(&[&str], &str); 21] = [
        (&["--store", "postgres://x"], "--store"),
        (&["--store", "redis://"], "--store"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--listen", "0.0.0.0:0"], "--auth"),
        (&["--admin-listen", "[::]:0"], "--auth"),
        (&["--auth", "/nowhere/auth.yaml"], "--auth"),
        (&["--allow-origin", "example.com"], "--allow-origin"),
        (&["--allow-origin", "https://a.example,https://b.example/path"], "--allow-origin"),
        (&["--allow-host", "https://a.example"], "--allow-host"),
        (&["--node", ""], "--node"),
        (&["--node", "a b/c"], "--node"),
        (&["--node", ".."], "--node"),
        (&["--admin-listen", "127.0.0.1:99999"], "--admin-listen"),
        (&["--lease", "soon"], "--lease"),
        (&["--lease", "0s"], "--lease"),
        (&["--passivate-after=-1s"], "--passivate-after"),
        (&["--passivate-after", "0s"], "--passivate-after"),
        (&["--drain-timeout", "25"], "--drain-timeout"),
        (&["--durability", "replicas=2"], "--durability"),
        (&["--log-format", "xml"], "--log-format"),
        (&["--colour"], "--colour"),
    ];
    for (flags, word) in bad {
        refuses_and_writes_nothing(&site, flags, &[word]).await;
    }
}

#[tokio::test]
async fn an_address_in_use_is_refused_by_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let site = Site::new(ABIDE);
    refuses_and_writes_nothing(&site, &["--listen", &address], &[&address]).await;
    refuses_and_writes_nothing(&site, &["--admin-listen", &address], &[&address]).await;
}

#[tokio::test]
async fn a_store_that_cannot_be_made_is_refused_by_name() {
    let site = Site::new(ABIDE);
    std::fs::write(site.dir().join("file"), "not a directory").unwrap();
    let flags = ["--store", "embedded:file/store"];
    refuses_and_writes_nothing(&site, &flags, &["file/store"]).await;
}
