//! Contexts: where they are kept, which wins, and that no token is ever printed.

use std::os::unix::fs::PermissionsExt;

use crate::shell::{Shell, demo};

const TOKEN: &str = "abide_k_PLANTED";

#[tokio::test]
async fn a_context_says_where_the_nodes_are_and_hides_its_token() {
    let (site, _node, _) = demo().await;
    let shell = Shell::new();
    let url = format!("http://{}", site.client.public_address());
    let admin = format!("http://{}", site.client.admin_address());
    let login = ["login", "here", "--url", &url, "--admin-url", &admin];
    let login = shell.run_with(&login, TOKEN).await;
    assert!(login.stdout.contains("here: "), "{login:?}");
    assert!(!format!("{login:?}").contains("PLANTED"));
    login.expect(0);
    let mode = std::fs::metadata(shell.contexts()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    shell.run(&["say", "c", "hello", "--agent", "demo"]).await.expect(0);
    shell.run(&["nodes"]).await.expect(0);
    shell.run(&["context", "set", "away", "--url", "http://127.0.0.1:1"]).await.expect(0);
    shell.run(&["show", "c", "--context", "away"]).await.expect(1);
    shell.run(&["show", "c"]).await.expect(0);
    shell.run(&["context", "use", "away"]).await.expect(0);
    shell.run(&["show", "c"]).await.expect(1);
    shell.run(&["show", "c", "--url", &url]).await.expect(0);
    for arguments in [vec!["context", "ls"], vec!["context", "ls", "-o", "json"], vec!["ls", "-v"]]
    {
        let run = shell.run(&arguments).await;
        assert!(!format!("{run:?}").contains("PLANTED"), "{arguments:?}");
    }
    let listed = shell.run(&["context", "ls"]).await.expect(0);
    assert!(listed.contains("here") && listed.contains("yes"), "{listed}");
    shell.run(&["context", "use", "nowhere"]).await.expect(3);
    shell.run(&["context", "set", "new"]).await.expect(2);
    shell.run(&["context", "set", "a b", "--url", &url]).await.expect(2);
    shell.run(&["context", "rm", "here"]).await.expect(0);
    assert!(!std::fs::read_to_string(shell.contexts()).unwrap().contains("PLANTED"));
}

#[tokio::test]
async fn a_login_that_no_node_accepts_stores_nothing() {
    let shell = Shell::new();
    let refused = shell.run_with(&["login", "--url", "http://127.0.0.1:1"], TOKEN).await;
    assert!(!format!("{refused:?}").contains("PLANTED"));
    refused.expect(1);
    assert!(!shell.contexts().exists());
}

#[tokio::test]
async fn a_file_that_others_may_read_is_not_used() {
    let shell = Shell::new();
    shell.run(&["context", "set", "a", "--url", "http://127.0.0.1:1"]).await.expect(0);
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(shell.contexts(), open).unwrap();
    let refused = shell.run(&["ls"]).await;
    assert!(refused.stderr.contains("others may read it"), "{refused:?}");
    refused.expect(2);
}
