//! The TLS keys that are derived from the cluster's secret; both ends of a connection prove to have
//! them.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::aws_lc_rs::{default_provider, sign};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCertUsingSni,
};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Separates these keys from any other use of the same secret.
const SALT: &[u8] = b"abide cluster";
/// Used in place of a secret where there is none. It is public: such a cluster is as safe as the
/// loopback interface that it is limited to.
const NO_SECRET: &str = "abide: no secret, loopback only";
/// The bytes before the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Everything that is derived from the secret.
///
/// A peer that completes a handshake has seen the public key and can test guesses of the secret
/// against it offline: only a long random secret is safe.
pub(super) struct Keys {
    /// The cookie that ractor_cluster compares once more inside a connection.
    pub(super) cookie: String,
    pub(super) acceptor: TlsAcceptor,
    pub(super) connector: TlsConnector,
    /// Fails every handshake, because it has no key to present.
    pub(super) nobody: TlsAcceptor,
}

impl Keys {
    /// Derives the keys; the same secret gives the same keys on every node.
    pub(super) fn derive(secret: Option<&str>) -> Result<Self, Error> {
        let secret = secret.unwrap_or(NO_SECRET).as_bytes();
        let der = [PKCS8_PREFIX.as_slice(), &expand(secret, b"ed25519")?].concat();
        let key = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der))?;
        let public = key.public_key().ok_or(Error::General("the key has no public half".into()))?;
        let public = CertificateDer::from(public.as_ref().to_vec());
        let key = Arc::new(CertifiedKey::new(vec![public.clone()], key));
        let cookie = expand(secret, b"cookie")?.iter().map(|byte| format!("{byte:02x}")).collect();
        let nobody = server()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        Ok(Self {
            cookie,
            acceptor: acceptor(key.clone(), public.clone())?,
            connector: connector(key, public)?,
            nobody: TlsAcceptor::from(Arc::new(nobody)),
        })
    }
}

/// HKDF with SHA-256, as the TLS library implements it for itself.
fn expand(secret: &[u8], purpose: &[u8]) -> Result<[u8; 32], Error> {
    let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13();
    let suite = suite.ok_or(Error::General("the cipher suite is not one of TLS 1.3".into()))?;
    let mut okm = [0; 32];
    let expander = suite.hkdf_provider.extract_from_secret(Some(SALT), secret);
    let expanded = expander.expand_slice(&[purpose], &mut okm);
    expanded.map_err(|_| Error::General("HKDF cannot expand to 32 bytes".into()))?;
    Ok(okm)
}

fn server() -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
}

/// Accepts without session resumption: each handshake proves the key anew.
fn acceptor(key: Arc<CertifiedKey>, pinned: CertificateDer<'static>) -> Result<TlsAcceptor, Error> {
    let mut config = server()?
        .with_client_cert_verifier(Arc::new(PinnedKey::new(pinned)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector(
    key: Arc<CertifiedKey>,
    pinned: CertificateDer<'static>,
) -> Result<TlsConnector, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedKey::new(pinned)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Trusts one public key, and only peers that sign with it.
#[derive(Debug)]
struct PinnedKey {
    key: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedKey {
    fn new(key: CertificateDer<'static>) -> Self {
        Self { key, algorithms: default_provider().signature_verification_algorithms }
    }

    fn verify_key(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        let is_same = presented.as_ref() == self.key.as_ref();
        is_same.then_some(()).ok_or(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = presented.as_ref().into();
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_key(presented).map(|()| ServerCertVerified::assertion())
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
        self.verify_signature(message, presented, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PinnedKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_key(presented).map(|()| ClientCertVerified::assertion())
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
        self.verify_signature(message, presented, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
