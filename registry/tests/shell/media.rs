//! Bytes that tools and people bring stay out of the journal, and reach the model all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_actors::tools::native::{Context, NativeTool};
use abide_actors::tools::{Extensions, ToolReturn};
use abide_conversation::BlobId;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::store::memory::Memory;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::audit::entries;
use crate::flaky::Flaky;
use crate::rig::{Rig, results};

const PHOTO: &str = r#"
name: a
audit: {ttl: 1h}
model: {provider: scripted, script: [{calls: [{id: c, name: photo, args: {}}]}, {text: "Nice."}]}
tools: [{name: photo, run: {native: photo}, run_timeout: 1h}]
"#;
const ASKS: &str = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: pick, args: {}}]}, {text: "Nice."}]}
tools: [{name: pick, description: d, parameters: {type: object}, executor: human}]
"#;

fn photo() -> Value {
    let data = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd".repeat(100);
    json!({"type": "image", "source": {"type": "base64", "mimeType": "image/png", "data": data}})
}

/// Takes a photo when it may.
#[derive(Clone)]
struct Photo {
    runs: Arc<AtomicU32>,
    go: Arc<Semaphore>,
}

impl Photo {
    fn new(permits: usize) -> Self {
        Self { runs: Arc::default(), go: Arc::new(Semaphore::new(permits)) }
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
        self.go.acquire().await.unwrap().forget();
        ToolReturn::ok(json!([photo()]))
    }
}

/// Panics if the journal has the bytes.
async fn named(rig: &Rig, call: &str) -> Value {
    let journal = rig.journal("x").await;
    assert!(!json!(journal).to_string().contains("AAECAwQF"), "{journal:?}");
    results(&journal, call)[0].clone()
}

async fn bytes(rig: &Rig, source: &Value) -> Vec<u8> {
    let id = BlobId::parse(source["blobId"].as_str().unwrap()).unwrap();
    rig.store.blob(&id).await.unwrap().unwrap().bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_tools_image_is_journalled_as_a_blob_and_the_model_reads_its_bytes() {
    let natives = Extensions::new().with_tool("photo", Photo::new(1));
    let rig = Rig::with(natives, Arc::new(Memory::default()), PHOTO).await;
    rig.send("x", "go").await.unwrap();
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let result = named(&rig, "c").await;
    let source = &result["result"][0]["source"];
    assert_eq!((&source["type"], &source["size"]), (&json!("blob"), &json!(3_000)));
    assert_eq!(bytes(&rig, source).await, (0..30).collect::<Vec<u8>>().repeat(100));
    let read = entries(&rig, "x", 2).await.remove(0).sent.value.to_string();
    assert!(read.contains("\"data\":\"[3 kB of base64]\""), "{read}");
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_image_is_journalled_as_a_blob() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    rig.until("x", |data| matches!(data, EventData::Suspension(_))).await;
    rig.resolve("x", "c", ResolutionAnswer::Result(json!({"mine": photo()}))).await.unwrap();
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let result = named(&rig, "c").await;
    let source = &result["result"]["mine"]["source"];
    assert_eq!(bytes(&rig, source).await, (0..30).collect::<Vec<u8>>().repeat(100));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_take_the_bytes_makes_the_tool_run_again() {
    let tool = Photo::new(0);
    let natives = Extensions::new().with_tool("photo", tool.clone());
    let store = Arc::new(Flaky::default());
    let rig = Rig::with(natives, store.clone(), PHOTO).await;
    rig.send("x", "go").await.unwrap();
    let run = async {
        while tool.runs.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
    store.full.store(true, Ordering::SeqCst);
    tool.go.add_permits(1);
    let died = async {
        while tool.runs.load(Ordering::SeqCst) == 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), died).await.unwrap();
    store.full.store(false, Ordering::SeqCst);
    tool.go.add_permits(1);
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(named(&rig, "c").await["result"][0]["source"]["type"], "blob");
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_blob_that_is_gone_is_told_and_stops_no_turn() {
    let natives = Extensions::new().with_tool("photo", Photo::new(2));
    let rig = Rig::with(natives, Arc::new(Memory::default()), PHOTO).await;
    rig.send("x", "go").await.unwrap();
    rig.ended("x", 1).await;
    let source = named(&rig, "c").await["result"][0]["source"].clone();
    let id = BlobId::parse(source["blobId"].as_str().unwrap()).unwrap();
    assert_eq!(rig.store.delete_blob(&id).await, Ok(true));
    rig.send("x", "and now?").await.unwrap();
    assert_eq!(rig.ended("x", 2).await, (TurnOutcome::Completed, None));
    let sent = entries(&rig, "x", 4).await.into_iter().map(|entry| entry.sent.value.to_string());
    assert!(sent.into_iter().any(|sent| sent.contains("[image: no longer stored]")));
}
