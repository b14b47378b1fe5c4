//! Promises about blobs.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::blobs::{Blob, BlobInfo};

use super::super::Store;
use super::fixtures::*;

pub(in super::super) async fn a_blob_is_stored_whole_and_once(store: Arc<dyn Store>) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 / 3) as u8).collect();
    let (png, gif) = (Blob::new("image/png", bytes.clone()), Blob::new("image/gif", bytes));
    assert_eq!(store.blob(&blob_id(&png)).await, Ok(None));
    assert_eq!(store.blob_info(&blob_id(&png)).await, Ok(None));
    assert_eq!(store.put_blob(&blob_id(&png), &png).await, Ok(true));
    assert_eq!(store.put_blob(&blob_id(&png), &png).await, Ok(false));
    assert_eq!(store.put_blob(&blob_id(&gif), &gif).await, Ok(true));
    assert!(store.blob(&blob_id(&png)).await == Ok(Some(png.clone())));
    assert!(store.blob(&blob_id(&gif)).await == Ok(Some(gif)));
    let info = BlobInfo { media_type: "image/png".to_owned(), size: 3_000_000 };
    assert_eq!(store.blob_info(&blob_id(&png)).await, Ok(Some(info)));
}

pub(in super::super) async fn a_deleted_blob_is_gone_and_can_be_stored_again(
    store: Arc<dyn Store>,
) {
    let (one, two) = (Blob::new("text/plain", "one"), Blob::new("text/plain", "two"));
    assert_eq!(store.delete_blob(&blob_id(&one)).await, Ok(false));
    for blob in [&one, &two] {
        store.put_blob(&blob_id(blob), blob).await.unwrap();
    }
    assert_eq!(store.delete_blob(&blob_id(&one)).await, Ok(true));
    assert_eq!(store.delete_blob(&blob_id(&one)).await, Ok(false));
    assert_eq!(store.blob(&blob_id(&one)).await, Ok(None));
    assert_eq!(store.blob_info(&blob_id(&one)).await, Ok(None));
    assert_eq!(store.blob(&blob_id(&two)).await, Ok(Some(two)));
    assert_eq!(store.put_blob(&blob_id(&one), &one).await, Ok(true));
    assert_eq!(store.blob(&blob_id(&one)).await, Ok(Some(one)));
}

pub(in super::super) async fn blobs_that_nobody_named_outlive_deleted_conversations(
    store: Arc<dyn Store>,
) {
    let blob = Blob::new("text/plain", "one");
    store.put_blob(&blob_id(&blob), &blob).await.unwrap();
    let held = create_conversation(&*store, "a").await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(store.blob(&blob_id(&blob)).await, Ok(Some(blob)));
}
