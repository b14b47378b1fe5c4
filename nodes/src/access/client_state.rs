//! What a client keeps for the cluster between two requests: signed, so that any node believes it.

use abide_registry::peers::ClusterSecrets;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::control::AccessControl;
use super::jwt;
use crate::problem::{Kind, Problem};

/// Separates these keys from any other use of the cluster's secret.
const PURPOSE: &[u8] = b"client state";

/// Signs what clients keep, and reads it again.
///
/// By the key that signs conversation tokens, if the file of `--auth` has one, and else by a key
/// that is derived from the cluster's secret. Without either it is as safe as the loopback interface
/// that such a node is limited to: nothing may depend on it that the caller's credential does not
/// permit.
#[derive(Clone)]
pub(crate) struct ClientState {
    access: AccessControl,
    secrets: ClusterSecrets,
    derived: OnceCell<Vec<[u8; 32]>>,
}

impl ClientState {
    pub(crate) fn new(access: AccessControl, secrets: ClusterSecrets) -> Self {
        Self { access, secrets, derived: OnceCell::new() }
    }

    /// The claims as text, as a JWT of this type.
    pub(crate) async fn sign<T: Serialize>(
        &self,
        kind: &str,
        claims: &T,
    ) -> Result<String, Problem> {
        let header = |algorithm| Header { typ: Some(kind.to_owned()), ..Header::new(algorithm) };
        let by_token_key = self.access.guard().and_then(|guard| {
            guard.with_token_keys(|keys| {
                let kid = Some(keys.first.kid().to_owned());
                let header = Header { kid, ..header(Algorithm::EdDSA) };
                jsonwebtoken::encode(&header, claims, keys.first.private())
            })
        });
        let signed = match by_token_key {
            Some(signed) => signed,
            None => {
                let derived = self.derived().await?;
                let key = derived.first().map(|key| EncodingKey::from_secret(key));
                let key = key.ok_or_else(|| broken("no key was derived"))?;
                jsonwebtoken::encode(&header(Algorithm::HS256), claims, &key)
            }
        };
        signed.map_err(broken)
    }

    /// The claims of a text, if a node of the cluster has signed it as one of this type.
    pub(crate) async fn verify<T: DeserializeOwned>(
        &self,
        kind: &str,
        text: &str,
    ) -> Result<Option<T>, Problem> {
        let Ok(header) = jsonwebtoken::decode_header(text) else { return Ok(None) };
        if header.typ.as_deref() != Some(kind) || header.crit.is_some() {
            return Ok(None);
        }
        let claims = match header.alg {
            Algorithm::EdDSA => self.access.guard().and_then(|guard| {
                let verified = guard.with_token_keys(|keys| {
                    let key = keys.find(header.kid.as_deref()?)?;
                    jwt::verify(text, key.public(), Algorithm::EdDSA).ok()
                });
                verified.flatten()
            }),
            // Where there are keys for tokens, a key that everybody knows signs nothing.
            Algorithm::HS256 if self.secrets.shown.is_some() || !self.has_token_keys() => {
                let derived = self.derived().await?;
                let by_key = |key: &[u8; 32]| {
                    jwt::verify(text, &DecodingKey::from_secret(key), Algorithm::HS256).ok()
                };
                derived.iter().find_map(by_key)
            }
            _ => None,
        };
        Ok(claims.and_then(|claims| serde_json::from_value(claims).ok()))
    }

    fn has_token_keys(&self) -> bool {
        self.access.guard().is_some_and(|guard| guard.with_token_keys(|_| ()).is_some())
    }

    /// The keys of the cluster's secrets; the first signs.
    async fn derived(&self) -> Result<&Vec<[u8; 32]>, Problem> {
        let derive = async || {
            let secrets = self.secrets.clone();
            let derived = tokio::task::spawn_blocking(move || secrets.keys_for(PURPOSE)).await;
            derived.map_err(broken)?.map_err(broken)
        };
        self.derived.get_or_try_init(derive).await
    }
}

fn broken(reason: impl std::fmt::Display) -> Problem {
    Problem::new(Kind::Internal, reason.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_registry::peers::ClusterSecret;
    use serde_json::{Value, json};

    use super::*;

    fn state(shown: Option<&str>, also: Option<&str>) -> ClientState {
        let secret = |text: &str| ClusterSecret::new(text.repeat(32)).unwrap();
        let secrets = ClusterSecrets { shown: shown.map(secret), also: also.map(secret) };
        ClientState::new(AccessControl::open(), secrets)
    }

    #[tokio::test]
    async fn only_a_node_with_the_secret_has_signed_it() {
        let claims = json!({"a": 1});
        let text = state(Some("a"), None).sign("t+jwt", &claims).await.unwrap();
        let read = async |state: ClientState, kind: &str, text: &str| -> Option<Value> {
            state.verify(kind, text).await.unwrap()
        };
        assert_eq!(read(state(Some("a"), None), "t+jwt", &text).await, Some(claims.clone()));
        let changing = state(Some("b"), Some("a"));
        assert_eq!(read(changing, "t+jwt", &text).await, Some(claims.clone()));
        assert_eq!(read(state(Some("b"), None), "t+jwt", &text).await, None);
        assert_eq!(read(state(None, None), "t+jwt", &text).await, None);
        assert_eq!(read(state(Some("a"), None), "another", &text).await, None);
        let (signed, _) = text.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let forged = text.replacen('.', ".e30", 1);
        for wrong in [signed, header, "", "..", &forged, &format!("{signed}.")] {
            assert_eq!(read(state(Some("a"), None), "t+jwt", wrong).await, None, "{wrong}");
        }
        let none = jsonwebtoken::encode(
            &Header { typ: Some("t+jwt".to_owned()), ..Header::new(Algorithm::HS256) },
            &claims,
            &EncodingKey::from_secret(b""),
        );
        assert_eq!(read(state(Some("a"), None), "t+jwt", &none.unwrap()).await, None);
    }
}
