//! Which conversations `ls` shows, and in which order.

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct FoundBy {
    /// Only conversations of this owner
    #[arg(long, value_name = "SUBJECT")]
    pub owner: Option<String>,
    /// Only the children of this conversation
    #[arg(long, value_name = "CONV")]
    pub parent: Option<String>,
    /// Children, too
    #[arg(long, conflicts_with = "parent")]
    pub children: bool,
    /// Only conversations whose metadata has this text, which the agent must index; at most four
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::key_value)]
    pub metadata: Vec<(String, String)>,
    /// Only conversations that were created after this time
    #[arg(long, value_name = "TIME")]
    pub created_after: Option<String>,
    /// Only conversations that were created before this time
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<String>,
    /// Only conversations that were active after this time
    #[arg(long, value_name = "TIME")]
    pub active_after: Option<String>,
    /// Only conversations whose last activity was before this time
    #[arg(long, value_name = "TIME")]
    pub active_before: Option<String>,
    /// What the list is sorted by
    #[arg(long, value_parser = ["created", "active"])]
    pub order: Option<String>,
    /// Whether the earliest or the latest come first
    #[arg(long, value_parser = ["asc", "desc"])]
    pub dir: Option<String>,
}
