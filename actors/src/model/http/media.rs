//! Media in requests: the names that all providers understand, and the fallback without media.

use abide_conversation::message::blocks::{BlockKind, as_text, essence};
use abide_conversation::message::text_block;
use serde_json::Value;

use super::HttpRefusal;
use crate::model::{ModelRequest, Retry};

/// The media type of an image as wire formats spell it; `None` for types that most of them refuse.
pub(crate) fn image_type(media_type: &str) -> Option<&'static str> {
    match essence(media_type).as_str() {
        "image/png" => Some("image/png"),
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

/// The name of a document without a title.
const DEFAULT_TITLE: &str = "document";

/// The file name of a PDF. Some providers judge the type by the extension.
pub(crate) fn pdf_name(title: Option<&str>) -> String {
    let name = title.unwrap_or(DEFAULT_TITLE);
    let is_pdf = name.to_ascii_lowercase().ends_with(".pdf");
    if is_pdf { name.to_owned() } else { format!("{name}.pdf") }
}

/// The statuses with which providers refuse a medium that they cannot fetch, find or read, or that
/// has too many pixels or pages.
const MEDIA_REFUSAL_STATUSES: [u16; 6] = [400, 403, 404, 413, 415, 422];

/// The request with all media replaced by their text form, if it may have been refused because of
/// one of them. Providers do not say which one, and it would be part of every later request of the
/// conversation.
pub(super) fn without_media(request: &ModelRequest, refusal: &HttpRefusal) -> Option<ModelRequest> {
    let status = refusal.status.filter(|status| MEDIA_REFUSAL_STATUSES.contains(&status.as_u16()));
    let has_any = request.messages.iter().flat_map(|message| &message.content).any(is_media);
    let is_lasting = matches!(refusal.error.retry, Retry::Never | Retry::Elsewhere);
    if status.is_none() || !is_lasting || !has_any {
        return None;
    }
    let mut changed = request.clone();
    for block in changed.messages.iter_mut().flat_map(|message| &mut message.content) {
        if is_media(block) {
            *block = text_block(as_text(block).unwrap_or_default());
        }
    }
    Some(changed)
}

fn is_media(block: &Value) -> bool {
    BlockKind::of(block).is_some_and(|kind| kind.is_media())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use abide_conversation::MessageId;
    use abide_conversation::message::{Message, MessageRole};
    use serde_json::json;

    use crate::model::http::{HttpModel, HttpTimeouts};
    use crate::model::test_server::{
        FixedClock, TestResponse, TestServer, collect_reply, request, settings,
    };
    use crate::model::{ModelSettings, Provider};

    /// The bodies that were sent for a message with this block to a provider that answers with an
    /// error.
    async fn sent_bodies(
        provider: Provider,
        status: u16,
        why: &str,
        block: serde_json::Value,
    ) -> Vec<String> {
        let server = TestServer::start([TestResponse::error(status, why)]).await;
        let (name, base_url) = ("some-model".to_owned(), Some(server.url.clone()));
        let settings = ModelSettings { name, base_url, ..settings(provider) };
        let message = Message::new(MessageId::new("m"), MessageRole::User, vec![block]);
        let mut request = request(settings);
        request.messages = vec![message];
        let model = HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), |_| None);
        let error = collect_reply(&model, request).await.remove(0).unwrap_err();
        assert!(error.message.contains(why), "{error}");
        server.requests().iter().map(|request| request.body.to_string()).collect()
    }

    #[test]
    fn a_pdf_has_its_extension() {
        for (title, name) in [
            (None, "document.pdf"),
            (Some("R"), "R.pdf"),
            (Some("R.PDF"), "R.PDF"),
            (Some("v1.2"), "v1.2.pdf"),
        ] {
            assert_eq!(super::pdf_name(title), name);
        }
    }

    fn image() -> serde_json::Value {
        json!({"type": "image", "source":
            {"type": "base64", "mimeType": "image/png", "data": "AAECAAEC"}})
    }

    #[tokio::test]
    async fn media_that_are_refused_are_sent_as_text_once() {
        for provider in [
            Provider::Openai,
            Provider::OpenaiResponses,
            Provider::Anthropic,
            Provider::Gemini,
            Provider::Ollama,
        ] {
            for status in [400, 403, 404, 413, 415, 422] {
                let bodies =
                    sent_bodies(provider, status, "could not process image", image()).await;
                assert_eq!(bodies.len(), 2, "{provider:?} {status}");
                assert!(bodies[0].contains("AAECAAEC"), "{}", bodies[0]);
                assert!(!bodies[1].contains("AAECAAEC"), "{}", bodies[1]);
                assert!(bodies[1].contains("[image/png, 6 B]"), "{}", bodies[1]);
            }
        }
    }

    #[tokio::test]
    async fn errors_that_media_cannot_cause_have_no_fallback() {
        for (status, why, block) in [
            (401, "no such key", image()),
            (429, "slow down", image()),
            (500, "a fault", image()),
            (400, "prompt is too long", image()),
            (400, "Request payload size exceeds the limit: 20971520 bytes.", image()),
            (400, "no such field", json!({"type": "text", "text": "hi"})),
            // This one is sent as text at the first attempt.
            (
                400,
                "no such field",
                json!({"type": "audio", "source":
                {"type": "url", "url": "https://a.example/a.wav"}}),
            ),
        ] {
            let bodies = sent_bodies(Provider::Openai, status, why, block).await;
            assert_eq!(bodies.len(), 1, "{status} {why}");
        }
    }
}
