//! Media bytes of tools and people stay out of the journal, and still reach the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_actors::tools::native::{Context, NativeTool};
use abide_actors::tools::{Extensions, ToolReturn};
use abide_conversation::Scoped;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::store::memory::Memory;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::audit::entries;
use crate::flaky_store::FlakyStore;
use crate::test_node::{TestNode, results};

pub const PHOTO_AGENT: &str = r#"
name: a
audit: {ttl: 1h}
model: {provider: scripted, script: [{calls: [{id: c, name: photo, args: {}}]}, {text: "Nice."}]}
tools: [{name: photo, run: {native: photo}, run_timeout: 1h}]
"#;
const APPROVAL_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: pick, args: {}}]}, {text: "Nice."}]}
tools: [{name: pick, description: d, parameters: {type: object}, executor: human}]
"#;

fn photo() -> Value {
    let data = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd".repeat(100);
    json!({"type": "image", "source": {"type": "base64", "mimeType": "image/png", "data": data}})
}

/// Takes a photo when it has a permit.
#[derive(Clone)]
pub struct Photo {
    runs: Arc<AtomicU32>,
    release: Arc<Semaphore>,
}

impl Photo {
    pub fn new(permits: usize) -> Self {
        Self { runs: Arc::default(), release: Arc::new(Semaphore::new(permits)) }
    }
}

#[async_trait]
impl NativeTool for Photo {
    fn description(&self) -> String {
        "Takes a photo.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, _context: Context<'_>) -> ToolReturn {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.release.acquire().await.unwrap().forget();
        ToolReturn::ok(json!([photo()]))
    }
}

/// The result of a call. Panics if the journal contains the bytes.
async fn result_without_bytes(node: &TestNode, call: &str) -> Value {
    let journal = node.journal("x").await;
    assert!(!json!(journal).to_string().contains("AAECAwQF"), "{journal:?}");
    results(&journal, call)[0].clone()
}

async fn bytes(node: &TestNode, source: &Value) -> Vec<u8> {
    let id = Scoped::parse(source["blobId"].as_str().unwrap()).unwrap();
    node.store.blob(&id).await.unwrap().unwrap().bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_tools_image_is_journalled_as_a_blob_and_the_model_reads_its_bytes() {
    let extensions = Extensions::new().with_tool("photo", Photo::new(1));
    let node =
        TestNode::with_extensions(extensions, Arc::new(Memory::default()), PHOTO_AGENT).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let result = result_without_bytes(&node, "c").await;
    let source = &result["result"][0]["source"];
    assert_eq!((&source["type"], &source["size"]), (&json!("blob"), &json!(3_000)));
    assert_eq!(bytes(&node, source).await, (0..30).collect::<Vec<u8>>().repeat(100));
    let read = entries(&node, "x", 2).await.remove(0).sent.value.to_string();
    assert!(read.contains("\"data\":\"[3 kB of base64]\""), "{read}");
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_image_is_journalled_as_a_blob() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    node.resolve("x", "c", ResolutionAnswer::Result(json!({"mine": photo()}))).await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let result = result_without_bytes(&node, "c").await;
    let source = &result["result"]["mine"]["source"];
    assert_eq!(bytes(&node, source).await, (0..30).collect::<Vec<u8>>().repeat(100));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_take_the_bytes_makes_the_tool_run_again() {
    let tool = Photo::new(0);
    let extensions = Extensions::new().with_tool("photo", tool.clone());
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_extensions(extensions, store.clone(), PHOTO_AGENT).await;
    node.send("x", "go").await.unwrap();
    let run = async {
        while tool.runs.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
    store.full.store(true, Ordering::SeqCst);
    tool.release.add_permits(1);
    let died = async {
        while tool.runs.load(Ordering::SeqCst) == 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), died).await.unwrap();
    store.full.store(false, Ordering::SeqCst);
    tool.release.add_permits(1);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(result_without_bytes(&node, "c").await["result"][0]["source"]["type"], "blob");
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_blob_is_named_to_the_model_and_stops_no_turn() {
    let extensions = Extensions::new().with_tool("photo", Photo::new(2));
    let node =
        TestNode::with_extensions(extensions, Arc::new(Memory::default()), PHOTO_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let source = result_without_bytes(&node, "c").await["result"][0]["source"].clone();
    let id = Scoped::parse(source["blobId"].as_str().unwrap()).unwrap();
    assert_eq!(node.store.delete_blob(&id).await, Ok(true));
    node.send("x", "and now?").await.unwrap();
    assert_eq!(node.turn_end("x", 2).await, (TurnOutcome::Completed, None));
    let sent = entries(&node, "x", 4).await.into_iter().map(|entry| entry.sent.value.to_string());
    assert!(sent.into_iter().any(|sent| sent.contains("[image: no longer stored]")));
}
