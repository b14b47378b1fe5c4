//! Conversations move: one is written as lines, and read from lines that another place wrote.

mod lines;

use std::time::Duration;

use abide_actors::agent::Parsed;
use abide_actors::blobs::{Blob, BlobHold};
use abide_conversation::{ConversationId, Scoped};
use abide_registry::transfer::{self, Import, ImportError, NeededDefinition, Taken};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

use self::lines::Lines;
use super::Api;
use super::agents;
use super::blobs::{BlobPermit, Raw};
use super::creation;
use super::extract::{Idempotency, Path, Query, fingerprint};
use super::openapi::{ConversationPath, IdempotencyKeyHeader};
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::{Export, ImportConversations};
use crate::operations::Act;

/// How long a client may take to read an export: it holds the permit of a blob.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(900);
/// The media type of an export.
pub(super) const MEDIA_TYPE: &str = "application/x-ndjson";

/// Writes a conversation as lines of JSON: its definitions, its journal as it is now, and the blobs
/// that the journal names.
///
/// The last line says that it is whole. What happens to the conversation meanwhile is not in it.
#[utoipa::path(get, path = "/v1/conversations/{id}/export", tag = "conversations",
    operation_id = "export_conversation", params(ConversationPath),
    responses((status = 200, description = "The lines.",
        content_type = "application/x-ndjson", body = Raw)))]
pub(super) async fn export(
    allowed: Allowed<Export>,
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = allowed.conversation(&id)?;
    api.conversations.summary(&allowed, &*api.store, &id).await?;
    let permit = BlobPermit::acquire(&api.blobs_in_flight, allowed.bodies()).await?;
    let (lines, written) = mpsc::channel(1);
    let store = api.store.clone();
    let export = tokio::spawn(async move {
        let _permit = permit;
        let written = transfer::export(&*store, &id, false, &lines);
        // Who reads too slowly gets no end.
        let written = tokio::time::timeout(EXPORT_TIMEOUT, written).await;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    });
    // An error ends the body so that the client sees that it is cut off.
    let end = stream::once(export).filter_map(|ended| async {
        match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(std::io::Error::other(error))),
            Err(error) => Some(Err(std::io::Error::other(error))),
        }
    });
    let body = ReceiverStream::new(written).map(|line| Ok(Bytes::from(line))).chain(end);
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Ok(response)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportQuery {
    /// Whether the conversation keeps its id and its open work; else it is a copy with another id, in
    /// which all open work is cancelled.
    #[serde(default)]
    #[param(default = false)]
    keep_id: bool,
}

/// A conversation that was imported.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Imported {
    id: ConversationId,
}

/// Reads a conversation that an export wrote.
///
/// Every event is checked as if it happened here: a journal that cannot have happened is refused,
/// with the number of its first wrong line, and leaves nothing. Nobody sees the conversation before it is
/// whole. A repeat with the same `Idempotency-Key` is answered as the first request was, whatever its
/// body. The body may have 1 GiB.
#[utoipa::path(post, path = "/v1/conversations/import", tag = "conversations",
    operation_id = "import_conversation", params(ImportQuery, IdempotencyKeyHeader),
    request_body(content = Raw, content_type = "application/x-ndjson", description = "The lines."),
    responses((status = 201, description = "The conversation is there, as a whole.",
        body = Imported)))]
pub(super) async fn import(
    allowed: Allowed<ImportConversations>,
    State(api): State<Api>,
    Query(query): Query<ImportQuery>,
    idempotency: Idempotency,
    request: Request,
) -> Result<(StatusCode, Json<Imported>), Problem> {
    let permit = BlobPermit::acquire(&api.blobs_in_flight, allowed.bodies()).await?;
    let lines = Lines::of(request)?;
    let kind = if query.keep_id { "keep_id" } else { "copy" };
    // The body is too long to be compared: a key stands for one new conversation.
    let keys = idempotency.keys(&allowed, fingerprint(&["import", kind]));
    let id = if query.keep_id {
        None
    } else {
        let made = allowed.scoped(&ConversationId::new(api.clock.id("conv")));
        Some(creation::reserved(&api, made, &keys).await?)
    };
    let cluster = api.conversations.unscoped().cluster().clone();
    let me = cluster.lease().me();
    let import = Import::new(api.store.clone(), me, id, &allowed.tenant(), api.clock.now());
    let response = agents::stored_response(&api, keys, Value::Null);
    let import = import.with_cluster(cluster).with_response(response);
    // A client that leaves must not leave what was read aside.
    let read = tokio::spawn(async move {
        let _permit = permit;
        Reading { api, allowed, import, is_admitted: false }.read_all(lines).await
    });
    let id = read.await.map_err(|error| Problem::new(Kind::Internal, error.to_string()))??;
    Ok((StatusCode::CREATED, Json(Imported { id: id.local() })))
}

/// An import in progress.
struct Reading {
    api: Api,
    allowed: Allowed<ImportConversations>,
    import: Import,
    /// Whether the tenant has room for it.
    is_admitted: bool,
}

impl Reading {
    /// Reads all lines, or removes what was written.
    async fn read_all(mut self, mut lines: Lines) -> Result<Scoped<ConversationId>, Problem> {
        let Err(problem) = self.read_lines(&mut lines).await else {
            return Ok(self.import.id().clone());
        };
        if let Err(error) = self.import.undo().await {
            tracing::warn!(conversation = %self.import.id(), %error, "failed import not removed");
        }
        Err(problem)
    }

    async fn read_lines(&mut self, lines: &mut Lines) -> Result<(), Problem> {
        while let Some(line) = lines.next().await? {
            let taken = self.import.take(&line).await;
            if matches!(taken, Err(ImportError::Repeated)) {
                return Ok(());
            }
            match taken.map_err(|error| problem(lines.number(), error))? {
                Taken::Nothing => {}
                Taken::Blob(blob) => self.store_blob(&blob).await?,
                Taken::End => self.store_definitions(lines.number()).await?,
            }
            if !self.is_admitted {
                self.api.access.admit_conversation(self.import.id()).await?;
                self.is_admitted = true;
            }
        }
        self.import.require_whole().map_err(|error| problem(lines.number(), error))?;
        let act =
            Act::of_caller(&self.allowed, "conversation.import", self.import.id().local().as_str());
        self.api.operations.record(act).await?;
        self.import.finish().await.map_err(|error| problem(lines.number(), error))
    }

    async fn store_blob(&self, blob: &Blob) -> Result<(), Problem> {
        let (tenant, store) = (self.allowed.tenant(), &self.api.store);
        let id = self.allowed.scoped(&blob.id());
        if let Err(refusal) = self.api.access.admit_blob(&tenant, blob.bytes().len() as u64).await {
            // One that is stored already takes no room.
            store.blob_info(&id).await?.ok_or(refusal)?;
        }
        let hold = BlobHold::of_conversation(self.import.id(), self.api.clock.now());
        store.store_blob(&id, blob, Some(&hold)).await?;
        Ok(())
    }

    /// Stores the definitions that are needed here, if the tenant may have them.
    async fn store_definitions(&self, last_line: usize) -> Result<(), Problem> {
        let tenant = self.allowed.tenant();
        let needed = self.import.needed_definitions().await;
        let needed = needed.map_err(|error| problem(last_line, error))?;
        for NeededDefinition { definition, is_newest } in needed {
            let name = self.allowed.scoped(&definition.name);
            let policy = agents::writable(&self.api, &self.allowed)?;
            let Parsed { definition: parsed, .. } =
                agents::checked(&self.api, &self.allowed, policy, &name, definition.definition)
                    .await?;
            if parsed.revision != definition.revision {
                return Err(Problem::field("revision", "is not that of the definition"));
            }
            if is_newest {
                self.api.catalog.put_if(&tenant, parsed, None, None).await?;
            } else {
                self.api.catalog.add_revision(&tenant, parsed).await?;
            }
        }
        Ok(())
    }
}

/// The problem of a line.
fn problem(line: usize, error: ImportError) -> Problem {
    match error {
        ImportError::Exists | ImportError::Repeated => {
            Problem::new(Kind::ConversationExists, error.to_string())
        }
        ImportError::TooLong(_) => {
            Problem::new(Kind::PayloadTooLarge, format!("line {line}: {error}"))
        }
        ImportError::TakenUp => Problem::new(Kind::Unavailable, error.to_string()),
        ImportError::Store(error) => Problem::from(error),
        ImportError::NotALine(_)
        | ImportError::OtherFormat(_)
        | ImportError::Misplaced(_)
        | ImportError::StoreEndMissing
        | ImportError::Missing { .. }
        | ImportError::UnknownMember(_)
        | ImportError::UnknownEvent(_)
        | ImportError::Illegal(_)
        | ImportError::OverLimit(_)
        | ImportError::Rejected(_)
        | ImportError::OtherHash
        | ImportError::MissingRevision(_) => {
            Problem::field(&format!("line {line}"), error.to_string())
        }
    }
}
