//! The parts of a user's message: its content, and the tools and the context of its turn.

use abide_actors::agent;
use abide_actors::blobs::{BlobHold, TenantBlobs, extract_media, extractable_bytes};
use abide_actors::request::MAX_MAP_BYTES;
use abide_conversation::message::blocks::check_from_user;
use abide_conversation::message::text_block;
use abide_conversation::{ConversationId, Scoped};
use serde_json::Value;

use super::problem::Problem;
use super::{Api, blobs, extract};

/// The largest `tools` of a message: those of a hundred queued messages stay in memory.
const MAX_TOOLS_BYTES: usize = 128 << 10;
/// The most blocks of `context`: each may become a reference to a blob, which has its own size.
const MAX_CONTEXT_BLOCKS: usize = 100;

/// The blocks that come with a message.
pub(super) struct Blocks {
    /// The message.
    pub(super) content: Vec<Value>,
    /// What stands at the end of the prompts of the message's turn.
    pub(super) context: Vec<Value>,
}

impl Blocks {
    /// Checks the blocks of a message that has either text or content, and those of its context.
    pub(super) fn new(
        text: Option<String>,
        content: Option<Vec<Value>>,
        context: Vec<Value>,
    ) -> Result<Self, Problem> {
        let content = match (text, content) {
            (Some(text), None) if !text.is_empty() => vec![text_block(text)],
            (Some(_), None) => return Err(Problem::field("text", "is empty")),
            (None, Some(blocks)) if blocks.is_empty() => {
                return Err(Problem::field("content", "is empty"));
            }
            (None, Some(blocks)) => {
                check_blocks("content", &blocks)?;
                blocks
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(Problem::field("text", "give either text or content"));
            }
        };
        check_context(&context)?;
        Ok(Self { content, context })
    }

    /// About how many bytes of media [`Self::store_media`] stores.
    pub(super) fn media_bytes(&self) -> u64 {
        self.content.iter().chain(&self.context).map(extractable_bytes).sum()
    }

    /// Stores the media of the blocks, which then refer to them. The hold keeps them until whoever
    /// names them is stored.
    pub(super) async fn store_media(
        &mut self,
        api: &Api,
        id: &Scoped<ConversationId>,
        hold: &BlobHold,
    ) -> Result<(), Problem> {
        let store = &*api.store;
        blobs::resolve_blobs(store, id, hold, ("content", &mut self.content)).await?;
        blobs::resolve_blobs(store, id, hold, ("context", &mut self.context)).await?;
        let blobs = TenantBlobs::new(store, id).holding(hold);
        for block in self.content.iter_mut().chain(&mut self.context) {
            extract_media(blobs, block).await?;
        }
        Ok(())
    }
}

/// Checks the tools that a client declares for one turn. Only the conversation knows whether the
/// agent has tools of the same names.
pub(super) async fn turn_tools(tools: Vec<Value>) -> Result<Vec<Value>, Problem> {
    if tools.is_empty() {
        return Ok(tools);
    }
    if encoded_bytes(&tools) > MAX_TOOLS_BYTES {
        return Err(Problem::field("tools", format!("is larger than {MAX_TOOLS_BYTES} bytes")));
    }
    let compile = move || agent::client_tools(&tools).map(|_| tools);
    let compiled = extract::compiled(compile).await?;
    compiled.map_err(|errors| Problem::field("tools", agent::join_errors(&errors)))
}

fn check_context(context: &[Value]) -> Result<(), Problem> {
    if context.len() > MAX_CONTEXT_BLOCKS {
        let rule = format!("must be at most {MAX_CONTEXT_BLOCKS} blocks");
        return Err(Problem::field("context", rule));
    }
    check_blocks("context", context)?;
    // Media become blobs, and do not count.
    let media: u64 = context.iter().map(extractable_bytes).sum();
    let media_base64 = usize::try_from(media / 3 * 4).unwrap_or(usize::MAX);
    if encoded_bytes(context).saturating_sub(media_base64) > MAX_MAP_BYTES {
        return Err(Problem::field("context", format!("is larger than {MAX_MAP_BYTES} bytes")));
    }
    Ok(())
}

fn check_blocks(field: &str, blocks: &[Value]) -> Result<(), Problem> {
    for (index, block) in blocks.iter().enumerate() {
        check_from_user(block).map_err(|error| {
            Problem::field(&format!("{field}[{index}]{}", error.path), error.problem)
        })?;
    }
    Ok(())
}

fn encoded_bytes(values: &[Value]) -> usize {
    serde_json::to_string(values).map_or(usize::MAX, |text| text.len())
}
