//! The certificates for the connections to Redis.

use std::io;
use std::path::{Path, PathBuf};

use redis::{Client, ClientTlsConfig, TlsCertificates};

/// PEM files for connections by TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The authorities that are trusted instead of the machine's.
    pub authorities: Option<PathBuf>,
    /// The certificate that the node shows, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("needs a store whose URL begins with rediss")]
    NoTls,
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}", .0)]
    Malformed(redis::RedisError),
}

impl CertificateFiles {
    /// Refuses files from which no connection can be made.
    pub(super) fn check(&self) -> Result<(), CertificateError> {
        let nowhere = "rediss://localhost";
        let checked = Client::build_with_tls(nowhere, self.read()?);
        checked.map(drop).map_err(CertificateError::Malformed)
    }

    /// What the files contain at the moment.
    pub(super) fn read(&self) -> Result<TlsCertificates, CertificateError> {
        let client_tls = match &self.client {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        let root_cert = self.authorities.as_deref().map(read).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let content = std::fs::read(path);
    content.map_err(|error| CertificateError::Unreadable { path: path.to_owned(), error })
}
