//! Exports of all conversations where some cannot be read.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::shell::{Shell, demo};

/// The lines of an export of a conversation without messages.
fn lines(id: &str) -> String {
    let created = json!({"seq": 1, "at": "2026-11-22T10:00:01.500Z", "type": "created",
        "data": {"agent": "demo"}});
    let head =
        format!(r#"{{"abide":"conversation","format":1,"id":"{id}","agent":"demo","last_seq":1}}"#);
    format!("{head}\n{created}\n{{\"abide\":\"end\",\"last_seq\":1}}\n")
}

/// A node whose conversations `b` and `c` cannot be read: the one ends within a line, the other before
/// the first.
async fn export(Path(id): Path<String>) -> Response {
    match id.as_str() {
        "b" => {
            let cut = lines("b").into_bytes();
            let cut = Bytes::from(cut[..cut.len() / 2].to_vec());
            let failed = Err(std::io::Error::other("unreadable"));
            Body::from_stream(futures::stream::iter([Ok(cut), failed])).into_response()
        }
        "c" => {
            let problem = json!({"type": "/problems/unavailable", "detail": "unreadable"});
            (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response()
        }
        id => lines(id).into_response(),
    }
}

async fn damaged_node() -> Shell {
    let rows = ["a", "b", "c", "d"].map(|id| json!({"id": id}));
    let rows = json!({"conversations": rows});
    let node = Router::new()
        .route("/v1/agents", get(async || Json(json!({"agents": []}))))
        .route("/v1/conversations", get(async move || Ok::<_, Infallible>(Json(rows))))
        .route("/v1/conversations/{id}/export", get(export));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, node).await });
    Shell::new().with("ABIDE_URL", &url)
}

#[tokio::test]
async fn conversations_that_cannot_be_read_keep_no_others_from_being_exported() {
    let shell = damaged_node().await;
    let run = shell.run(&["export", "--all"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    for told in ["b is missing: ", "c is missing: ", "2 conversations exported; 2 could not"] {
        assert!(run.stderr.contains(told), "{told}: {run:?}");
    }
    let parsed = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let end = run.stdout.lines().next_back().map(parsed).unwrap();
    let expected = json!({"abide": "store_end", "conversations": 2, "missing": 2,
        "missing_ids": ["b", "c"]});
    assert_eq!(end, expected);

    // Whoever imports the file learns of it, too.
    let (_site, _node, there) = demo().await;
    for arguments in [vec!["import", "--keep-id"], vec!["import", "--store", "embedded:new"]] {
        let imported = there.run_with(&arguments, &run.stdout).await;
        for told in ["missing: 2 conversations could not be read", ": b, c", "2 conversations imp"]
        {
            assert!(imported.stderr.contains(told), "{told}: {imported:?}");
        }
        imported.expect(1);
    }
    for (id, code) in [("a", 0), ("b", 3), ("d", 0)] {
        there.run(&["show", id]).await.expect(code);
    }
}
