//! Media blocks, which carry bytes or point to some: images, documents, audio, video.

use serde_json::Value;

use super::field_type::media_type;
use super::{BlockError, BlockKind, base64};
use crate::ids::BlobId;

/// The longest URL that common browsers and proxies accept.
const MAX_URL_BYTES: usize = 8 << 10;

/// A parsed media block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    pub kind: BlockKind,
    pub source: Source<'a>,
    /// The alternative text of an image, or the title of a document.
    pub name: Option<&'a str>,
    /// The transcript of audio or video.
    pub transcript: Option<&'a str>,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// In the block.
    Base64 { media_type: &'a str, data: &'a str },
    /// At an HTTP or HTTPS URL.
    Url(&'a str),
    /// Stored outside of the journal, under this blob id.
    Blob(&'a str),
    /// At the provider, under the id of an earlier upload.
    File(&'a str),
    /// In an object store. `scheme` is `s3` or `gs`, `name` is the object's key in the bucket.
    Stored { scheme: &'static str, bucket: &'a str, name: &'a str },
}

impl<'a> Media<'a> {
    /// Parses a block of a media kind, without validating the bytes. Other kinds are an error.
    pub fn of(block: &'a Value) -> Result<Self, BlockError> {
        let kind = BlockKind::of(block).filter(|kind| kind.is_media());
        let kind = kind.ok_or_else(|| BlockError::new("is no media").inside("type"))?;
        let field = |name: &str| block.get(name).and_then(Value::as_str);
        let source = match kind {
            BlockKind::GeneratedImage if block["source"]["type"] != "blob" => bytes(block, None)?,
            _ => match block.get("source") {
                Some(source) => Source::of(source, block).map_err(|it| it.inside("source"))?,
                None => return Err(BlockError::new("is missing").inside("source")),
            },
        };
        let name = field("altText").or_else(|| field("title")).filter(|name| !name.is_empty());
        let transcript = field("transcript").filter(|text| !text.is_empty());
        Ok(Self { kind, source, name, transcript })
    }

    /// Validates the encoding and the media type of bytes that are in the block.
    pub(super) fn check(&self) -> Result<(), BlockError> {
        let Source::Base64 { media_type: given, data } = self.source else { return Ok(()) };
        let within = |wrong: BlockError| match self.kind {
            BlockKind::GeneratedImage => wrong,
            _ => wrong.inside("source"),
        };
        let of = match self.kind {
            BlockKind::Image | BlockKind::GeneratedImage => "image",
            BlockKind::Audio => "audio",
            BlockKind::Video => "video",
            _ => "",
        };
        media_type(&given.into(), of).map_err(|wrong| within(wrong.inside("mimeType")))?;
        if base64::is_valid(data) {
            Ok(())
        } else {
            Err(within(BlockError::new("is not base64").inside("data")))
        }
    }

    /// The text of a document that consists of text.
    pub fn document_text(&self) -> Option<String> {
        let Source::Base64 { media_type, data } = self.source else { return None };
        let essence = essence(media_type);
        let textual = essence.starts_with("text/") || essence == "application/json";
        let bytes =
            (self.kind == BlockKind::Document && textual).then(|| base64::decode(data))??;
        String::from_utf8(bytes).ok()
    }
}

/// The media type without its parameters, in lower case.
pub fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl<'a> Source<'a> {
    fn of(source: &'a Value, block: &'a Value) -> Result<Self, BlockError> {
        if !source.is_object() {
            return Err(BlockError::new("must be an object"));
        }
        let stored = |scheme, bucket, name| {
            Ok(Source::Stored { scheme, bucket: text(source, bucket)?, name: text(source, name)? })
        };
        match text(source, "type")? {
            "base64" => bytes(source, Some(block)),
            "url" => match text(source, "url")? {
                url if is_web(url) => Ok(Source::Url(url)),
                _ => Err(BlockError::new("must be an http or https address").inside("url")),
            },
            "blob" => match text(source, "blobId")? {
                id if BlobId::parse(id).is_some() => Ok(Source::Blob(id)),
                _ => Err(BlockError::new("must be an id that a blob has").inside("blobId")),
            },
            "file_id" => Ok(Source::File(text(source, "fileId")?)),
            "s3" => stored("s3", "bucket", "key"),
            "gcs" => stored("gs", "bucket", "object"),
            _ => {
                Err(BlockError::new("must be base64, blob, url, file_id, s3 or gcs").inside("type"))
            }
        }
    }
}

/// Clients put the media type next to the data or into the block, in one of three spellings.
fn bytes<'a>(source: &'a Value, block: Option<&'a Value>) -> Result<Source<'a>, BlockError> {
    let data = text(source, "data")?;
    let places = [Some(source), block];
    let spelled = ["mimeType", "mime_type", "media_type"];
    let mut given = places.iter().flatten().flat_map(|place| spelled.map(|name| place.get(name)));
    match given.find_map(|given| given?.as_str()) {
        Some(media_type) => Ok(Source::Base64 { media_type, data }),
        None => Err(BlockError::new("is missing").inside("mimeType")),
    }
}

fn text<'a>(source: &'a Value, name: &str) -> Result<&'a str, BlockError> {
    let why = match source.get(name).map(Value::as_str) {
        Some(Some(text)) if !text.is_empty() => return Ok(text),
        Some(_) => "must be a string that is not empty",
        None => "is missing",
    };
    Err(BlockError::new(why).inside(name))
}

fn is_web(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    let host = !rest.is_empty() && !rest.starts_with(['/', '?', '#']);
    web && host && url.len() <= MAX_URL_BYTES && url.chars().all(plain)
}
