//! The commands about webhooks.

use clap::{Args, Subcommand};

use super::Limit;

#[derive(Clone, Debug, Subcommand)]
pub enum WebhooksCommand {
    /// Lists the webhooks
    Ls,
    /// Prints a webhook, with how much it is owed
    Show(WebhookName),
    /// Puts a webhook, also in place of the one before; prints the secret of a new one
    Put(PutWebhookCommand),
    /// Sends it a notice, and tells what became of it
    Test(WebhookName),
    /// Makes another secret, and prints it; for a while both sign
    Rotate(WebhookName),
    /// Lists what it is owed, or what nobody tries any more
    Deliveries(DeliveriesCommand),
    /// Sends a notice once more
    Redeliver(RedeliverCommand),
    /// Deletes it; what it is owed is dropped
    Rm(WebhookName),
}

#[derive(Clone, Debug, Args)]
pub struct WebhookName {
    /// The webhook's name
    #[arg(value_name = "WEBHOOK")]
    pub name: String,
}

#[derive(Clone, Debug, Args)]
pub struct PutWebhookCommand {
    /// The webhook's name
    #[arg(value_name = "WEBHOOK")]
    pub name: String,
    /// Where notices are posted
    #[arg(value_name = "URL")]
    pub target: String,
    /// Which notices, such as call.suspended,turn.completed; all if not given
    #[arg(long, value_name = "EVENTS", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Only of conversations of these agents
    #[arg(long, value_name = "AGENTS", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// Notices of approvals have links that answer
    #[arg(long)]
    pub links: bool,
    /// The variable of the nodes that holds the secret
    #[arg(long, value_name = "VARIABLE")]
    pub secret_env: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct DeliveriesCommand {
    /// The webhook's name
    #[arg(value_name = "WEBHOOK")]
    pub name: String,
    /// Those that nobody tries any more
    #[arg(long)]
    pub dead: bool,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct RedeliverCommand {
    /// The webhook's name
    #[arg(value_name = "WEBHOOK")]
    pub name: String,
    /// The notice, as the list of deliveries prints it
    #[arg(value_name = "NOTICE")]
    pub notice: String,
}
