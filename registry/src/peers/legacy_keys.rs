//! The TLS keys of the builds before handshake version 1: both ends show the same public key, which
//! is derived from the cluster's secret.
//!
//! Whoever connects sees that key before it has shown anything, and can test guesses of the secret
//! against it offline. So these keys are shown only while a member of the cluster needs them.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use tokio_rustls::TlsConnector;

use super::keys::{certified_key, expand, server, without_resumption};

/// The keys for peers of handshake version 0.
pub(super) struct LegacyKeys {
    pub(super) acceptor: Arc<ServerConfig>,
    pub(super) connector: TlsConnector,
}

impl LegacyKeys {
    pub(super) fn derive(secret: &[u8]) -> Result<Self, Error> {
        let key = Arc::new(certified_key(&expand(secret, &[b"ed25519"])?)?);
        let public = key.end_entity_cert()?.clone().into_owned();
        Ok(Self {
            acceptor: acceptor(key.clone(), public.clone())?,
            connector: connector(key, public)?,
        })
    }
}

fn acceptor(
    key: Arc<CertifiedKey>,
    pinned: CertificateDer<'static>,
) -> Result<Arc<ServerConfig>, Error> {
    let config = server()?
        .with_client_cert_verifier(Arc::new(PinnedKey::new(pinned)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    Ok(without_resumption(config))
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
