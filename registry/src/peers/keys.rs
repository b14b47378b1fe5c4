//! What the cluster's secret becomes: one key that both ends of a connection prove to have.

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
/// Stands for the secret where there is none. Everybody knows it: such a cluster is as safe as the
/// loopback interface that it is limited to.
const NO_SECRET: &str = "abide: no secret, loopback only";
/// What comes before the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410).
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Everything that is made of the secret.
///
/// Whoever completes a handshake has seen the public key, and can try secrets against it at home:
/// only a long random secret is one.
pub(super) struct Keys {
    /// What ractor_cluster compares once more, inside a connection.
    pub(super) cookie: String,
    pub(super) acceptor: TlsAcceptor,
    pub(super) connector: TlsConnector,
    /// Fails every handshake: it has no key to show.
    pub(super) nobody: TlsAcceptor,
}

impl Keys {
    /// The same secret gives the same keys, everywhere.
    pub(super) fn derive(secret: Option<&str>) -> Result<Self, Error> {
        let secret = secret.unwrap_or(NO_SECRET).as_bytes();
        let der = [PKCS8.as_slice(), &okm(secret, b"ed25519")?].concat();
        let key = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der))?;
        let public = key.public_key().ok_or(Error::General("a key without its half".into()))?;
        let public = CertificateDer::from(public.as_ref().to_vec());
        let key = Arc::new(CertifiedKey::new(vec![public.clone()], key));
        let cookie = okm(secret, b"cookie")?.iter().map(|byte| format!("{byte:02x}")).collect();
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

/// HKDF with SHA-256, out of the TLS library, which has it for itself.
fn okm(secret: &[u8], purpose: &[u8]) -> Result<[u8; 32], Error> {
    let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13();
    let suite = suite.ok_or(Error::General("a suite of TLS 1.3 is none".into()))?;
    let mut okm = [0; 32];
    let expander = suite.hkdf_provider.extract_from_secret(Some(SALT), secret);
    let expanded = expander.expand_slice(&[purpose], &mut okm);
    expanded.map_err(|_| Error::General("32 bytes are too many for HKDF".into()))?;
    Ok(okm)
}

fn server() -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
}

/// Nothing of a handshake is kept for another one: each proves the key anew.
fn acceptor(key: Arc<CertifiedKey>, pinned: CertificateDer<'static>) -> Result<TlsAcceptor, Error> {
    let mut config = server()?
        .with_client_cert_verifier(Arc::new(Pinned::new(pinned)))
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
        .with_custom_certificate_verifier(Arc::new(Pinned::new(pinned)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Believes in one public key, and in nobody who doesn't sign with it.
#[derive(Debug)]
struct Pinned {
    key: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(key: CertificateDer<'static>) -> Self {
        Self { key, algorithms: default_provider().signature_verification_algorithms }
    }

    fn pinned(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let same = shown.as_ref() == self.key.as_ref();
        same.then_some(()).ok_or(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = shown.as_ref().into();
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.pinned(shown).map(|()| ServerCertVerified::assertion())
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
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.pinned(shown).map(|()| ClientCertVerified::assertion())
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
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
