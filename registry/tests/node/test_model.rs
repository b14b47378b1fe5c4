//! The model of a test node: the scripted model, with failures that tests switch on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use abide_actors::model::scripted::ScriptedModel;
use abide_actors::model::{
    Model, ModelError, ModelRequest, Purpose, ReplyChunk, ReplyStream, Retry,
};
use async_trait::async_trait;
use futures::StreamExt;

/// The scripted model, except for three user texts: `panic` crashes it, `stumble` fails its first
/// call, and `drip` makes it stream one piece of text and then nothing.
#[derive(Default)]
pub struct TestModel {
    pub call_count: AtomicU32,
    /// While set, the text `panic` crashes nothing.
    pub panic_disabled: AtomicBool,
    /// While set, every call takes a second.
    pub slow: AtomicBool,
    /// The texts of the messages of the last prompt.
    pub last_texts: Mutex<Vec<String>>,
    /// While set, every prompt is recorded in `prompts`.
    pub record_prompts: AtomicBool,
    pub prompts: Mutex<Vec<ModelRequest>>,
    /// The most bytes of text that a prompt may have; 0 means no limit.
    pub max_prompt_bytes: AtomicUsize,
    /// While set, every call for a summary fails.
    pub fail_summaries: AtomicBool,
    scripted: ScriptedModel,
}

#[async_trait]
impl Model for TestModel {
    async fn call(&self, prompt: &ModelRequest) -> Result<ReplyStream, ModelError> {
        let earlier_calls = self.call_count.fetch_add(1, Ordering::SeqCst);
        if self.record_prompts.load(Ordering::SeqCst) {
            self.prompts.lock().unwrap().push(prompt.clone());
        }
        if prompt.purpose == Purpose::Summary {
            if self.fail_summaries.load(Ordering::SeqCst) {
                return Err(ModelError::transient("no summaries today"));
            }
            return self.scripted.call(prompt).await;
        }
        let texts: Vec<String> = prompt.messages.iter().map(|it| it.text()).collect();
        let max_bytes = self.max_prompt_bytes.load(Ordering::SeqCst);
        if max_bytes > 0 && total_bytes(&texts) > max_bytes {
            return Err(ModelError { message: "too long".to_owned(), retry: Retry::Shorter });
        }
        *self.last_texts.lock().unwrap() = texts;
        if self.slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let last = prompt.messages.iter().rev().find(|message| message.tool_call_id.is_none());
        let last_text = last.map(|message| message.text()).unwrap_or_default();
        if last_text == "panic" && !self.panic_disabled.load(Ordering::SeqCst) {
            panic!("the test asked for this panic");
        }
        if last_text == "stumble" && earlier_calls == 0 {
            return Err(ModelError::transient("it stumbled"));
        }
        if last_text == "drip" {
            let first = futures::stream::iter([Ok(ReplyChunk::Text("half a ".to_owned()))]);
            return Ok(first.chain(futures::stream::pending()).boxed());
        }
        self.scripted.call(prompt).await
    }
}

/// The bytes of all texts together.
pub fn total_bytes(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}
