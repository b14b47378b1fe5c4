//! Where the operators' API listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address of the operators' API: `IP:PORT`, or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    Tcp(SocketAddr),
    /// A socket in the file system, which only the node's user may connect to.
    Unix(PathBuf),
}

impl AdminAddress {
    /// The TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("must name a path after unix:".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => {
                let address = text.parse().map(Self::Tcp);
                address.map_err(|_| "must be IP:PORT or unix:PATH".to_owned())
            }
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}
