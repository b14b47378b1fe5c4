//! Opens the configured store, with the membership and the clock that come with it.

use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_registry::membership::Membership;
use abide_registry::membership::heartbeat::OnStoreTime;
use abide_registry::standalone::Standalone;
use abide_registry::store::embedded::{self, CloseWatch, Embedded, FailureWatch};
use abide_registry::store::memory::Memory;
use abide_registry::store::redis::{self, CertificateFiles, OpenError, Redis, RedisUrl};
use abide_registry::store::{Compression, KeyRing, Store};
use jiff::SignedDuration;

use crate::clock::{StoreClock, SystemClock};
use crate::config::{Config, Durability, StoreUrl};
use crate::start_error::StartError;

/// A correction of the clock by more than this is logged.
const MAX_SILENT_CORRECTION: SignedDuration = SignedDuration::from_secs(1);

/// The open store, and what depends on whether other nodes share it.
pub(super) struct Stores {
    pub(super) store: Arc<dyn Store>,
    pub(super) membership: Arc<dyn Membership>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) on_time: OnStoreTime,
    /// Whether other nodes work on the store, too.
    pub(super) is_shared: bool,
    /// Tells when the store is closed, if only one node may have it open.
    pub(super) close_watch: Option<CloseWatch>,
    /// Tells when the store has failed for good, if it can.
    pub(super) failure_watch: Option<FailureWatch>,
}

/// Opens the configured store alone, without a node.
pub(crate) async fn open_store(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    open(config).await.map(|stores| stores.store)
}

/// Opens the configured store for whoever only reads it: no server has to promise anything.
pub(crate) async fn open_store_to_read(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    match &config.store {
        StoreUrl::Redis(url) => {
            let keys = read_keys(config)?;
            let url = with_certificates(url, config)?;
            let opened = shared(&url, redis::Durability::Nothing, keys, Compression::None).await;
            opened.map(|stores| stores.store)
        }
        StoreUrl::Memory | StoreUrl::Embedded(_) => open_store(config).await,
    }
}

pub(super) async fn open(config: &Config) -> Result<Stores, StartError> {
    let keys = read_keys(config)?;
    let compression = config.store_compression.into();
    match &config.store {
        StoreUrl::Memory | StoreUrl::Embedded(_) if compression != Compression::None => {
            let reason = "--store-compression: only a Redis store compresses";
            Err(StartError::Config(reason.to_owned()))
        }
        StoreUrl::Memory if keys.is_some() => {
            let reason = "--encrypt-key-file: a store in memory writes nothing to encrypt";
            Err(StartError::Config(reason.to_owned()))
        }
        StoreUrl::Memory => Ok(standalone(Arc::new(Memory::default()))),
        StoreUrl::Embedded(dir) => {
            let durability = match config.durability {
                Durability::Fsync => embedded::Durability::Fsync,
                Durability::Os => embedded::Durability::Os,
                Durability::Replicas(_) => {
                    let reason = "--durability: replicas=N needs a Redis store";
                    return Err(StartError::Config(reason.to_owned()));
                }
            };
            let opened = Embedded::open_encrypted(dir, durability, keys);
            let store = opened.map_err(|error| StartError::Config(error.to_string()))?;
            let close_watch = Some(store.close_watch());
            let failure_watch = Some(store.failure_watch());
            Ok(Stores { close_watch, failure_watch, ..standalone(Arc::new(store)) })
        }
        StoreUrl::Redis(url) => {
            let durability = match config.durability {
                Durability::Fsync => redis::Durability::Fsync,
                Durability::Os => redis::Durability::Os,
                Durability::Replicas(count) => redis::Durability::Replicas(count),
            };
            shared(&with_certificates(url, config)?, durability, keys, compression).await
        }
    }
}

/// The keys of the key file, if there is one.
fn read_keys(config: &Config) -> Result<Option<KeyRing>, StartError> {
    let Some(path) = &config.encrypt_key_file else { return Ok(None) };
    let keys = KeyRing::read(path).map_err(|error| {
        StartError::Config(format!("--encrypt-key-file: {}: {error}", path.display()))
    });
    keys.map(Some)
}

/// The same servers, with the certificates of the flags.
fn with_certificates(url: &RedisUrl, config: &Config) -> Result<RedisUrl, StartError> {
    let files = CertificateFiles {
        authorities: config.store_ca.clone(),
        client: config.store_cert.clone().zip(config.store_key.clone()),
    };
    if files == CertificateFiles::default() {
        return Ok(url.clone());
    }
    let flag = if files.client.is_some() { "--store-cert" } else { "--store-ca" };
    let with_files = url.clone().with_certificates(files);
    with_files.map_err(|error| StartError::Config(format!("{flag}: {error}")))
}

fn standalone(store: Arc<dyn Store>) -> Stores {
    Stores {
        store,
        membership: Arc::new(Standalone::default()),
        clock: Arc::new(SystemClock),
        on_time: Box::new(|_, _| {}),
        is_shared: false,
        close_watch: None,
        failure_watch: None,
    }
}

async fn shared(
    url: &RedisUrl,
    durability: redis::Durability,
    keys: Option<KeyRing>,
    compression: Compression,
) -> Result<Stores, StartError> {
    let opened = Redis::open_encrypted(url, durability, keys).await.map_err(|error| match error {
        OpenError::Away { .. } => StartError::Broken(error.to_string()),
        _ => StartError::Config(error.to_string()),
    });
    let store = Arc::new(opened?.with_compression(compression));
    tracing::info!(store = store.description(), "store opened");
    let clock = Arc::new(StoreClock::default());
    let corrected = clock.clone();
    let on_time = Box::new(move |now, round_trip| {
        let correction = corrected.set(now, round_trip);
        if correction.abs() > MAX_SILENT_CORRECTION {
            tracing::warn!(by_ms = correction.as_millis(), "clock set to the store's time");
        }
    });
    Ok(Stores {
        store: store.clone(),
        membership: store,
        clock,
        on_time,
        is_shared: true,
        close_watch: None,
        failure_watch: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreCompression;

    #[tokio::test]
    async fn a_store_that_does_not_compress_refuses_to() {
        for store in ["memory", "embedded:/nonexistent"] {
            let mut config = Config::new(store.parse().expect("a store"));
            config.store_compression = StoreCompression::Zstd;
            let refused = open(&config).await.err().map(|error| error.to_string());
            let expected = "--store-compression: only a Redis store compresses";
            assert_eq!(refused.as_deref(), Some(expected), "{store}");
        }
    }
}
