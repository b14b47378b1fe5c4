//! Tests that bytes survive the way into the journal and back.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use abide_conversation::message::{Message, MessageRole, ProviderMessage};
use abide_conversation::{MessageId, Tenant};
use serde_json::{Value, json};

use super::*;

/// A blob store in memory.
pub(crate) struct MemoryBlobs {
    pub(crate) blobs: Mutex<HashMap<Scoped<BlobId>, Blob>>,
    id: Scoped<ConversationId>,
    away: bool,
}

impl Default for MemoryBlobs {
    fn default() -> Self {
        let id = Scoped::new(&Tenant::default(), &ConversationId::new("c"));
        Self { blobs: Mutex::default(), id, away: false }
    }
}

impl MemoryBlobs {
    /// The blobs of the one tenant.
    pub(crate) fn all(&self) -> TenantBlobs<'_> {
        TenantBlobs::new(self, &self.id)
    }
}

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn store_blob(
        &self,
        id: &Scoped<BlobId>,
        blob: &Blob,
        _hold: Option<&BlobHold>,
    ) -> Result<bool, StoreError> {
        if self.away {
            Err(StoreError::Unavailable("away".to_owned()))
        } else {
            let old = self.blobs.lock().unwrap().insert(id.clone(), blob.clone());
            Ok(old.is_none())
        }
    }

    async fn hold_blob(
        &self,
        id: &Scoped<BlobId>,
        _hold: &BlobHold,
    ) -> Result<Option<BlobInfo>, StoreError> {
        self.blob_info(id).await
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        Ok(self.blob(id).await?.map(|blob| blob.info()))
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        Ok(self.blobs.lock().unwrap().get(id).cloned())
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        Ok(self.blobs.lock().unwrap().remove(id).is_some())
    }
}

fn base64(bytes: usize) -> String {
    "AAEC".repeat(bytes / 3)
}

fn image(bytes: usize) -> Value {
    let source = json!({"type": "base64", "mimeType": "image/png", "data": base64(bytes)});
    json!({"type": "image", "altText": "a cat", "source": source})
}

fn message(content: Vec<Value>) -> Message {
    Message::new(MessageId::new("m"), MessageRole::User, content)
}

async fn extract(shelf: &MemoryBlobs, mut value: Value) -> Value {
    extract_media(shelf.all(), &mut value).await.unwrap();
    value
}

#[tokio::test]
async fn bytes_are_extracted_from_nested_blocks_and_come_back_the_same() {
    let shelf = MemoryBlobs::default();
    let generated = json!({"type": "generated_image", "mimeType": "image/webp", "altText": "a",
        "data": base64(900)});
    let within = json!({"type": "tool_result", "toolUseId": "c", "name": "t",
        "content": [image(1_200)]});
    let value = json!({"photos": [image(900), generated, within], "other": "x"});
    let named = extract(&shelf, value.clone()).await;
    assert!(named.to_string().len() < 1_500, "{named}");
    assert_eq!(shelf.blobs.lock().unwrap().len(), 3);
    let source = &named["photos"][0]["source"];
    let blob = Blob::new("image/png", [0, 1, 2].repeat(300));
    assert_eq!(
        *source,
        json!({"type": "blob", "blobId": blob.id(), "mimeType": "image/png",
        "size": 900})
    );
    let photos = vec![named["photos"][0].clone(), named["photos"][1].clone()];
    let back = inline_media(shelf.all(), vec![message(photos)]).await.unwrap();
    assert_eq!(back[0].content, value["photos"].as_array().unwrap()[..2]);
}

#[tokio::test]
async fn small_media_and_other_values_stay_in_place() {
    let shelf = MemoryBlobs::default();
    let bad = json!({"type": "image", "source":
        {"type": "base64", "mimeType": "image/png", "data": "?".repeat(2_000)}});
    for value in [
        image(600),
        bad,
        json!({"data": base64(3_000)}),
        json!({"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}),
        json!({"type": "html", "text": base64(3_000)}),
    ] {
        assert_eq!(extract(&shelf, value.clone()).await, value);
    }
    assert!(shelf.blobs.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_same_bytes_as_another_type_are_another_blob() {
    let one = Blob::new("image/png", "x");
    assert_eq!(one.id(), Blob::new(" image/png ", "x").id());
    assert_ne!(one.id(), Blob::new("image/gif", "x").id());
    assert_eq!(
        one.id().as_str(),
        "blob_87ed7c34a44df2d24355d486ce2e1f556e6e138672a8b1f4985b8e3dd4b4efc8"
    );
    for odd in ["", "image/\npng", &"x".repeat(256)] {
        assert_eq!(Blob::new(odd, "x").media_type(), "application/octet-stream");
    }
}

#[tokio::test]
async fn a_store_that_is_away_refuses_the_value() {
    let shelf = MemoryBlobs { away: true, ..MemoryBlobs::default() };
    assert!(extract_media(shelf.all(), &mut image(900)).await.is_err());
    assert_eq!(extract_media(shelf.all(), &mut image(30)).await, Ok(()));
}

#[tokio::test]
async fn a_missing_blob_becomes_text() {
    let shelf = MemoryBlobs::default();
    let named = extract(&shelf, image(900)).await;
    shelf.blobs.lock().unwrap().clear();
    let back = inline_media(shelf.all(), vec![message(vec![named])]).await.unwrap();
    assert_eq!(back[0].content, [json!({"type": "text", "text": "[image: no longer stored]"})]);
}

#[tokio::test]
async fn a_blob_of_another_type_than_its_block_is_not_shown() {
    let shelf = MemoryBlobs::default();
    let pdf = Blob::new("application/pdf", "x");
    shelf.all().put(&pdf).await.unwrap();
    let block = |kind: &str| json!({"type": kind, "source": {"type": "blob", "blobId": pdf.id()}});
    let blocks = vec![block("image"), block("document")];
    let back = inline_media(shelf.all(), vec![message(blocks)]).await.unwrap();
    assert_eq!(back[0].content[0]["text"], "[image: cannot be shown]");
    assert_eq!(back[0].content[1]["source"]["mimeType"], "application/pdf");
}

#[tokio::test]
async fn the_newest_blobs_are_in_a_request_and_the_older_are_left_out() {
    let shelf = MemoryBlobs::default();
    let mut messages = Vec::new();
    for fill in 0..4_u8 {
        let blob = Blob::new("image/png", vec![fill; 8 << 20]);
        shelf.all().put(&blob).await.unwrap();
        let source = json!({"type": "blob", "blobId": blob.id()});
        messages.push(message(vec![json!({"type": "image", "source": source})]));
    }
    let back = inline_media(shelf.all(), messages).await.unwrap();
    let types: Vec<_> = back.iter().map(|it| it.content[0]["type"].clone()).collect();
    assert_eq!(types, ["text", "text", "image", "image"]);
    assert!(back[0].text().contains("left out"), "{}", back[0].text());
}

/// The provider's items of one message after a restore from the journal.
async fn back(shelf: &MemoryBlobs, items: &[Value]) -> Option<Vec<Value>> {
    let verbatim =
        ProviderMessage { provider: "p".to_owned(), model: "m".to_owned(), items: items.to_vec() };
    let mut whole = BTreeMap::from([(MessageId::new("m"), verbatim)]);
    restore_base64(shelf.all(), &[message(Vec::new())], &mut whole).await.unwrap();
    whole.remove(&MessageId::new("m")).map(|verbatim| verbatim.items)
}

#[tokio::test]
async fn long_base64_is_stripped_from_provider_messages_and_restored_exactly() {
    let shelf = MemoryBlobs::default();
    let (long, address) = (base64(3_000), format!("data:image/png;base64,{}", base64(900_000)));
    let written = json!([
        {"type": "image_generation_call", "id": "ig_1", "result": long},
        {"inlineData": {"mimeType": "image/png", "data": base64(1_200)}},
        {"outputs": [{"type": "image", "url": address}]},
        {"type": "thinking", "signature": long},
        {"type": "redacted_thinking", "data": long},
        {"encrypted_content": long, "text": format!("{long}="), "short": base64(300)},
        {"odd": format!("{}AB==", "AAAA".repeat(1_000))},
    ]);
    let mut journalled = written.clone();
    strip_base64(shelf.all(), &mut journalled).await.unwrap();
    assert_eq!(shelf.blobs.lock().unwrap().len(), 3);
    assert_eq!(
        journalled[0]["result"],
        json!({"$abide_blob": Blob::new(UNKNOWN_MEDIA_TYPE,
        [0, 1, 2].repeat(1_000)).id()})
    );
    assert_eq!(journalled[2]["outputs"][0]["url"]["head"], "data:image/png;base64,");
    assert_eq!(journalled.as_array().unwrap()[3..], written.as_array().unwrap()[3..]);
    assert!(has_placeholder(&journalled) && !has_placeholder(&written));
    let items = back(&shelf, journalled.as_array().unwrap()).await.unwrap();
    assert_eq!(Value::from(items).to_string(), written.to_string());

    let id = Blob::new(UNKNOWN_MEDIA_TYPE, [0, 1, 2].repeat(1_000)).id();
    shelf.delete_blob(&shelf.id.sibling(&id)).await.unwrap();
    assert_eq!(back(&shelf, journalled.as_array().unwrap()).await, None);
    assert_eq!(back(&shelf, &[json!({"$abide_blob": 7})]).await, None);
    assert_eq!(back(&shelf, &[json!({"text": "x"})]).await, Some(vec![json!({"text": "x"})]));
}

#[tokio::test]
async fn the_newest_provider_messages_are_restored() {
    let shelf = MemoryBlobs::default();
    let (mut messages, mut verbatim) = (Vec::new(), BTreeMap::new());
    // The order of ids does not show which message is older.
    for (fill, id) in (0_u8..).zip(["c", "a", "b"]) {
        let blob = Blob::new(UNKNOWN_MEDIA_TYPE, vec![fill; 4 << 20]);
        shelf.all().put(&blob).await.unwrap();
        let (provider, model) = ("p".to_owned(), "m".to_owned());
        let items = vec![json!({"$abide_blob": blob.id()})];
        verbatim.insert(MessageId::new(id), ProviderMessage { provider, model, items });
        messages.push(Message { id: MessageId::new(id), ..message(Vec::new()) });
    }
    restore_base64(shelf.all(), &messages, &mut verbatim).await.unwrap();
    assert_eq!(verbatim.keys().map(MessageId::as_str).collect::<Vec<_>>(), ["b"]);
}
