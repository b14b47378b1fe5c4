//! What blocks are as text, for a model that knows no better form of them.

use std::borrow::Cow;

use serde_json::Value;

use super::{Kind, Media, Source, base64};

/// How much of a block of an unknown kind is told.
const RAW_BYTES: usize = 16 << 10;
/// How long a type, a name or a place may be that stands in brackets.
const NAME_BYTES: usize = 2 << 10;
/// As deep as values from outside are.
const DEEPEST: usize = 128;

/// The blocks that have a text, each as its own.
pub fn texts(blocks: &[Value]) -> Vec<Cow<'_, str>> {
    blocks.iter().filter_map(as_text).collect()
}

/// A block as text; `None` for reasoning, which is never sent back.
///
/// Never has the bytes of media in it: they are told as `[image/png, 12 kB]`. A document of text
/// is its text. What is data stands in a fence, events are one line, a block of an unknown kind or
/// a broken one is its JSON, cut.
pub fn as_text(block: &Value) -> Option<Cow<'_, str>> {
    match (Kind::of(block), block["text"].as_str()) {
        (Some(Kind::Reasoning), _) => None,
        (Some(Kind::Text), Some(text)) => Some(Cow::Borrowed(text)),
        (Some(kind), _) if kind.is_media() => Some(media(kind, block).into()),
        (Some(Kind::ToolResult), _) => Some(result(block).unwrap_or_else(|| raw(block)).into()),
        (Some(kind), _) => {
            let block = without_bytes(block);
            Some(told(kind, &block).unwrap_or_else(|| raw(&block)).into())
        }
        (None, _) => Some(raw(block).into()),
    }
}

/// The same value, and in place of each string that is base64 only how much it is.
pub fn without_bytes(value: &Value) -> Value {
    fn stripped(value: &Value, deep: usize) -> Value {
        match value {
            Value::String(text) if base64::is_likely(text) => {
                let data = text.rsplit(',').next().unwrap_or_default();
                format!("[{} of base64]", spoken(base64::size(data))).into()
            }
            Value::Array(_) | Value::Object(_) if deep == 0 => "[...]".into(),
            Value::Array(list) => list.iter().map(|value| stripped(value, deep - 1)).collect(),
            Value::Object(fields) => {
                let field = |(key, value): (&String, _)| (key.clone(), stripped(value, deep - 1));
                Value::Object(fields.iter().map(field).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
    stripped(value, DEEPEST)
}

/// `None` if the block lacks what its kind must have, or is told elsewhere.
fn told(kind: Kind, block: &Value) -> Option<String> {
    let field = |name: &str| block[name].as_str();
    match kind {
        Kind::Text
        | Kind::Reasoning
        | Kind::Image
        | Kind::Document
        | Kind::Audio
        | Kind::Video
        | Kind::GeneratedImage
        | Kind::ToolResult => None,
        Kind::Json => match block.get("data") {
            Some(data) => Some(data.to_string()),
            None => field("text").map(str::to_owned),
        },
        Kind::Xml => Some(fenced("xml", field("text")?)),
        Kind::Html => Some(fenced("html", field("text")?)),
        Kind::Code => Some(fenced(field("language").unwrap_or_default(), field("text")?)),
        Kind::Csv => {
            let table = fenced("csv", field("text")?);
            let headers = block["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let headers: Vec<&str> = headers.iter().filter_map(Value::as_str).collect();
            match headers.is_empty() {
                true => Some(table),
                false => Some(format!("{}\n{table}", line("columns", &headers.join(", ")))),
            }
        }
        Kind::ExecutableCode => Some(fenced(field("language").unwrap_or_default(), field("code")?)),
        Kind::CodeExecutionResult => {
            let failed = block["isError"] == true;
            let head = if failed { "[the code failed]" } else { "[the code's output]" };
            Some(format!("{head}\n{}", fenced("", field("output")?)))
        }
        Kind::GeneratedFile => {
            let named = field("displayName").map(|name| format!("{name} ")).unwrap_or_default();
            Some(line(field("mimeType")?, &format!("{named}{}", field("uri")?)))
        }
        Kind::UserAction | Kind::SystemEvent | Kind::StateChange => event(kind, block),
        Kind::ToolUse => Some(line("call", &format!("{} {}", field("name")?, block["input"]))),
        Kind::Custom => custom(block),
    }
}

fn media(kind: Kind, block: &Value) -> String {
    let Ok(media) = Media::of(block) else {
        return format!("[{} that cannot be shown]", word(kind));
    };
    let what = match media.source {
        Source::Base64 { media_type, data } => {
            if let Some(text) = media.written() {
                let title = media.name.map(|name| format!("{}\n", line("document", name)));
                return format!("{}{}", title.unwrap_or_default(), fenced("", &text));
            }
            format!("{media_type}, {}", spoken(base64::size(data)))
        }
        Source::Url(url) => format!("{} at {url}", word(kind)),
        Source::File(id) => format!("{} in file {id}", word(kind)),
        Source::Stored { scheme, bucket, name } => {
            format!("{} at {scheme}://{bucket}/{name}", word(kind))
        }
    };
    let told = match media.name {
        Some(name) => line(&what, name),
        None => format!("[{}]", short(&what)),
    };
    match media.transcript {
        Some(transcript) => format!("{told}\n{}", fenced("transcript", transcript)),
        None => told,
    }
}

fn event(kind: Kind, block: &Value) -> Option<String> {
    let field = |name: &str| block[name].as_str().filter(|text| !text.is_empty());
    if let Some(text) = field("text") {
        return Some(on_one_line(text));
    }
    let after = |word: &str, name: &str| field(name).map(|text| format!(" {word} {text}"));
    let after = |word: &str, name: &str| after(word, name).unwrap_or_default();
    let more = |name: &str| match &block[name] {
        Value::Null => String::new(),
        value => format!(": {value}"),
    };
    let told = match kind {
        Kind::UserAction => {
            let (on, by) = (after("on", "target"), after("by", "actor"));
            format!("user action: {}{on}{by}{}", field("action")?, more("details"))
        }
        Kind::SystemEvent => {
            let from = after("from", "source");
            format!("system event: {}{from}{}", field("event")?, more("data"))
        }
        _ => {
            let of = field("field").map(|name| format!(".{name}")).unwrap_or_default();
            let (from, to) = (&block["from"], &block["to"]);
            let by = after("by", "trigger");
            format!("state change: {}{of} from {from} to {to}{by}", field("entity")?)
        }
    };
    Some(format!("[{}]", on_one_line(&told)))
}

/// Results within it are only named, however deep they stand.
fn result(block: &Value) -> Option<String> {
    let what = if block["isError"] == true { "error of" } else { "result of" };
    let mut told = vec![Cow::Owned(line(what, block["name"].as_str()?))];
    for inner in block["content"].as_array()? {
        told.extend(match Kind::of(inner) {
            Some(Kind::ToolResult) => Some(Cow::Borrowed("[result]")),
            _ => as_text(inner),
        });
    }
    Some(told.join("\n"))
}

/// As the model wrote it: a tag around its content.
fn custom(block: &Value) -> Option<String> {
    let tag = block["tag"].as_str()?;
    let attr = |(name, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default().replace('"', "&quot;");
        format!(" {name}=\"{value}\"")
    };
    let attrs: String = block["attrs"].as_object().into_iter().flatten().map(attr).collect();
    match block["content"].as_str()? {
        "" if block["selfClosing"] == true => Some(format!("<{tag}{attrs}/>")),
        content => Some(format!("<{tag}{attrs}>{content}</{tag}>")),
    }
}

/// A fence longer than any in the text, so that the text cannot close it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.saturating_add(1).max(3));
    let plain = |c: &char| c.is_ascii_alphanumeric() || "+-#._".contains(*c);
    let language: String = language.chars().filter(plain).take(32).collect();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

fn raw(block: &Value) -> String {
    cut(without_bytes(block).to_string(), RAW_BYTES)
}

/// `[what: of whom]` on one line.
fn line(what: &str, of: &str) -> String {
    format!("[{}: {}]", short(&on_one_line(what)), short(&on_one_line(of)))
}

fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn short(text: &str) -> String {
    cut(text.to_owned(), NAME_BYTES)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Image | Kind::GeneratedImage => "image",
        Kind::Document => "document",
        Kind::Audio => "audio",
        Kind::Video => "video",
        _ => "content",
    }
}

fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push_str("[...truncated...]");
    }
    text
}

/// `12 B`, `12 kB`, `1.2 MB`.
fn spoken(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}
