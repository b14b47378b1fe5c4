//! The response that tells a task: at once, when it rests, or as a stream.

use axum::Json;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use serde_json::{Value, json};

use super::tasks::Task;
use crate::access::permission::Read;
use crate::access::{Allowed, StreamPermit};
use crate::http::Api;
use crate::http::event_stream::write_data;
use crate::http::turn_body::{TurnBody, TurnEncoder};
use crate::http::turn_stream::{PlacedItem, TurnStream};
use crate::problem::{self, Problem};
use crate::protocols::a2a::encoder::{TaskEncoder, TellUntil};
use crate::protocols::a2a::rpc::{self, Call};
use crate::protocols::feed::Feed;

/// How a task is told.
pub(super) enum TaskForm {
    /// As it is now.
    Now,
    /// Once it is over or waits for anybody.
    AtRest,
    Stream(TellUntil, Option<StreamPermit>),
}

/// A response that tells a task.
pub(super) struct TaskResponse<'a> {
    api: &'a Api,
    allowed: &'a Allowed<Read>,
    call: &'a Call,
    task: Task,
}

impl<'a> TaskResponse<'a> {
    pub(super) fn new(
        api: &'a Api,
        allowed: &'a Allowed<Read>,
        call: &'a Call,
        task: Task,
    ) -> Self {
        Self { api, allowed, call, task }
    }

    /// The task as it is now, which is the result.
    pub(super) async fn current(self, history: Option<u32>) -> Result<Response, Problem> {
        let id = &self.call.id;
        let events = self.open(TellUntil::Rest, None).await?.catch_up().await?;
        Ok(Json(rpc::result(id, &events.encoder.task(history))).into_response())
    }

    /// The task in this form, in the result of a method that sends a message, or in its stream.
    pub(super) async fn tell(
        self,
        form: TaskForm,
        history: Option<u32>,
    ) -> Result<Response, Problem> {
        let id = &self.call.id;
        let waiting = self.api.waiting_requests.try_acquire();
        let events = match form {
            TaskForm::Stream(until, permit) => {
                return Ok(self.open(until, permit).await?.into_response());
            }
            // Where too many wait, the client is told how far the task is, and polls.
            TaskForm::AtRest if waiting.is_ok() => {
                self.open(TellUntil::Rest, None).await?.wait().await?
            }
            TaskForm::AtRest | TaskForm::Now => {
                self.open(TellUntil::Rest, None).await?.catch_up().await?
            }
        };
        let task = json!({"task": events.encoder.task(history)});
        Ok(Json(rpc::result(id, &task)).into_response())
    }

    async fn open(
        &self,
        until: TellUntil,
        permit: Option<StreamPermit>,
    ) -> Result<TurnBody<TaskEvents>, Problem> {
        let Task { id, head, after } = &self.task;
        let feed = Feed::new(head.id.turn.clone(), *after);
        let stream = TurnStream::open(self.api, self.allowed, (id, permit), feed).await?;
        let encoder = TaskEncoder::new(head.clone(), until);
        let events = TaskEvents { encoder, call: self.call.id.clone() };
        Ok(TurnBody::new(stream, events, BytesMut::new()))
    }
}

/// The events of a task, each as a response to the call.
pub(super) struct TaskEvents {
    encoder: TaskEncoder,
    call: Value,
}

impl TurnEncoder for TaskEvents {
    fn item(&mut self, placed: &PlacedItem, encoded: &mut BytesMut) {
        for event in self.encoder.item(placed.at, &placed.item) {
            write_data(&rpc::result(&self.call, &event), encoded);
        }
    }

    fn is_over(&self) -> bool {
        self.encoder.is_over()
    }

    fn finish(&mut self, broken: Option<&str>, encoded: &mut BytesMut) {
        if let Some(why) = broken {
            write_data(&rpc::error(&self.call, &problem::a2a::broken(why)), encoded);
        }
        self.encoder.finish();
    }

    fn end(&mut self, _: &mut BytesMut) {}
}
