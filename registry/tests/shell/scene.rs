//! The model of a rig.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use abide_actors::model::scripted::ScriptedModel;
use abide_actors::model::{
    Model, ModelError, ModelRequest, Purpose, ReplyChunk, ReplyStream, Retry,
};
use async_trait::async_trait;
use futures::StreamExt;

/// The scripted model, but for some words: `panic` crashes, `stumble` fails the first time, `drip`
/// says a word and then nothing.
#[derive(Default)]
pub struct Scene {
    pub asked: AtomicU32,
    /// While set, "panic" panics.
    pub calm: AtomicBool,
    /// While set, it thinks for a second.
    pub slow: AtomicBool,
    /// The texts of what it read last.
    pub read: Mutex<Vec<String>>,
    /// While set, all that it reads is kept in `prompts`.
    pub records: AtomicBool,
    pub prompts: Mutex<Vec<ModelRequest>>,
    /// Longer prompts, in bytes of text, are too long for it, unless it is 0.
    pub longest: AtomicUsize,
    /// While set, it writes no summaries.
    pub mute: AtomicBool,
    scripted: ScriptedModel,
}

#[async_trait]
impl Model for Scene {
    async fn call(&self, prompt: &ModelRequest) -> Result<ReplyStream, ModelError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        if self.records.load(Ordering::SeqCst) {
            self.prompts.lock().unwrap().push(prompt.clone());
        }
        if prompt.purpose == Purpose::Summary {
            return match self.mute.load(Ordering::SeqCst) {
                true => Err(ModelError::transient("no summaries today")),
                false => self.scripted.call(prompt).await,
            };
        }
        let texts: Vec<String> = prompt.messages.iter().map(|it| it.text()).collect();
        let (length, longest) = (length(&texts), self.longest.load(Ordering::SeqCst));
        if longest > 0 && length > longest {
            return Err(ModelError { message: "too long".to_owned(), retry: Retry::Shorter });
        }
        *self.read.lock().unwrap() = texts;
        if self.slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let said = prompt.messages.iter().rev().find(|message| message.tool_call_id.is_none());
        let said = said.map(|message| message.text()).unwrap_or_default();
        if said == "panic" && !self.calm.load(Ordering::SeqCst) {
            panic!("as the test wants it");
        }
        if said == "stumble" && asked == 0 {
            return Err(ModelError::transient("it stumbled"));
        }
        if said == "drip" {
            let first = futures::stream::iter([Ok(ReplyChunk::Text("half a ".to_owned()))]);
            return Ok(first.chain(futures::stream::pending()).boxed());
        }
        self.scripted.call(prompt).await
    }
}

/// How many bytes they have.
pub fn length(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}
