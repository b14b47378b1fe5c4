//! The keys of the connections between nodes, derived from the cluster's secret.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::aws_lc_rs::{default_provider, sign};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCertUsingSni,
};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::legacy_keys::LegacyKeys;
use super::secret::{ClusterSecret, ClusterSecrets};

/// Separates these keys from any other use of the same secret.
const SALT: &[u8] = b"abide cluster";
/// Used in place of a secret where there is none. It is public: such a cluster is as safe as the
/// loopback interface that it is limited to.
const NO_SECRET: &[u8] = b"abide: no secret, loopback only";
/// The bytes before the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
/// What a dialler offers that proves the secret inside of the TLS connection, and first.
pub(super) const ALPN: &[u8] = b"abide/1";

/// Everything that a node needs for its handshakes.
pub(super) struct Keys {
    /// The key of the proofs that this node shows.
    pub(super) proof_key: [u8; 32],
    /// The key of proofs that it accepts besides, and never shows first.
    pub(super) also: Option<[u8; 32]>,
    /// TLS with a key that is random: the server's says nothing about the secret.
    pub(super) acceptor: Arc<ServerConfig>,
    pub(super) connector: TlsConnector,
    pub(super) legacy: LegacyKeys,
    /// Fails every handshake, because it has no key to present.
    pub(super) nobody: TlsAcceptor,
}

impl Keys {
    /// Derives the keys; the same secret gives the same ones on every node. With a secret this takes
    /// memory and time, so it must not run on a thread of the runtime.
    pub(super) fn derive(secrets: &ClusterSecrets) -> Result<Self, Error> {
        let proof_key = match &secrets.shown {
            Some(secret) => secret.stretch()?,
            None => expand(NO_SECRET, &[b"proof"])?,
        };
        let also = secrets.also.as_ref().map(ClusterSecret::stretch).transpose()?;
        let nobody = server()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        Ok(Self {
            proof_key,
            also,
            acceptor: acceptor()?,
            connector: connector()?,
            legacy: LegacyKeys::derive(bytes_of(secrets.shown.as_ref()))?,
            nobody: TlsAcceptor::from(Arc::new(nobody)),
        })
    }
}

/// The cookie that ractor_cluster compares once more inside a connection. Nodes of all versions derive
/// it alike, and only peers that have proved a secret get to see anything of it.
pub(super) fn derive_cookie(secret: Option<&ClusterSecret>) -> Result<String, Error> {
    let bytes = expand(bytes_of(secret), &[b"cookie"])?;
    Ok(HEXLOWER.encode(&bytes))
}

/// The key of a secret for another purpose than the connections between nodes. Whoever has something
/// that was made with it finds the secret by guessing only slowly.
pub(super) fn derive_for(
    secret: Option<&ClusterSecret>,
    purpose: &[u8],
) -> Result<[u8; 32], Error> {
    let label: &[u8] = b"for ";
    match secret {
        Some(secret) => expand(&secret.stretch()?, &[label, purpose]),
        None => expand(NO_SECRET, &[label, purpose]),
    }
}

fn bytes_of(secret: Option<&ClusterSecret>) -> &[u8] {
    secret.map_or(NO_SECRET, ClusterSecret::as_bytes)
}

/// HKDF with SHA-256, as the TLS library implements it for itself.
pub(super) fn expand(secret: &[u8], purpose: &[&[u8]]) -> Result<[u8; 32], Error> {
    let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13();
    let suite = suite.ok_or(Error::General("the cipher suite is not one of TLS 1.3".into()))?;
    let mut okm = [0; 32];
    let expander = suite.hkdf_provider.extract_from_secret(Some(SALT), secret);
    let expanded = expander.expand_slice(purpose, &mut okm);
    expanded.map_err(|_| Error::General("HKDF cannot expand to 32 bytes".into()))?;
    Ok(okm)
}

/// The Ed25519 key with these 32 secret bytes, as a raw public key.
pub(super) fn certified_key(seed: &[u8; 32]) -> Result<CertifiedKey, Error> {
    let der = [PKCS8_PREFIX.as_slice(), seed].concat();
    let key = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der))?;
    let public = key.public_key().ok_or(Error::General("the key has no public half".into()))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(CertifiedKey::new(vec![public], key))
}

pub(super) fn server() -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error>
{
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
}

/// Each handshake proves the key anew.
pub(super) fn without_resumption(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

fn acceptor() -> Result<Arc<ServerConfig>, Error> {
    let mut seed = [0; 32];
    default_provider().secure_random.fill(&mut seed)?;
    let key = Arc::new(certified_key(&seed)?);
    let mut config = server()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(without_resumption(config))
}

fn connector() -> Result<TlsConnector, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey(
            default_provider().signature_verification_algorithms,
        )))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Trusts every public key that the server signs with: who the server is, the proofs show, which are
/// bound to the connection.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &presented.as_ref().into(), signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
