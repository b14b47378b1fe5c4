//! Failures of Redis as errors of the store.

use abide_actors::journal::StoreError;
use redis::RedisError;

/// The error that a broken connection or a refusal of the server results in; counted.
pub(in crate::store::redis) fn unavailable(error: RedisError) -> StoreError {
    refused(error.to_string())
}

/// The store cannot do it; counted.
pub(in crate::store::redis) fn refused(reason: String) -> StoreError {
    metrics::counter!("abide_store_errors_total").increment(1);
    StoreError::Unavailable(reason)
}
