//! A transport that takes the place of connections to real servers, so that a simulation runs the
//! whole store over a model of Redis.

use std::sync::Arc;

use futures::future::BoxFuture;
use redis::{Pipeline, RedisResult, Value};

/// Servers that can be dialled.
pub trait Dial: Send + Sync {
    /// Connects to the present primary.
    fn dial(&self) -> BoxFuture<'_, RedisResult<Arc<dyn Transport>>>;
}

/// One connection to one server.
pub trait Transport: Send + Sync {
    /// Sends commands, which are carried out in order. The error of a command that the server
    /// refused is among the values; `Err` means that there is no answer.
    fn send<'a>(&'a self, commands: &'a Pipeline) -> BoxFuture<'a, RedisResult<Vec<Value>>>;
}
