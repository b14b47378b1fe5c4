//! What two processes that both have the key tell each other before anything else.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Of a hello: names are short, and who says more is not one of us.
const LONGEST: u16 = 1_024;

/// Its first three fields mean the same in every version, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) wire: u32,
    pub(super) name: String,
    pub(super) process: String,
    /// Only from one that dials: the process that it means.
    #[serde(default)]
    pub(super) to: Option<String>,
    /// Only from one that dials: it wants to know who is there, and no more.
    #[serde(default)]
    pub(super) probe: bool,
}

impl Hello {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u16::try_from(json.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or(io::Error::new(io::ErrorKind::InvalidInput, "a long name"))?;
        Ok([&length.to_be_bytes(), json.as_slice()].concat())
    }

    pub(super) async fn send(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.encode()?).await?;
        stream.flush().await
    }

    pub(super) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let length = stream.read_u16().await?;
        if length > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a hello that is too long"));
        }
        let mut json = vec![0; length.into()];
        stream.read_exact(&mut json).await?;
        Ok(serde_json::from_slice(&json)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hello_that_was_ever_said_is_understood() {
        let (to, probe) = (Some("p2".to_owned()), true);
        for (said, to, probe) in [
            (r#"{"wire":1,"name":"node-1","process":"p1"}"#, None, false),
            (r#"{"wire":1,"name":"node-1","process":"p1","to":"p2","probe":true}"#, to, probe),
        ] {
            let length = u16::try_from(said.len()).unwrap().to_be_bytes();
            let bytes = [&length, said.as_bytes()].concat();
            let (name, process) = ("node-1".to_owned(), "p1".to_owned());
            let hello = Hello { wire: 1, name, process, to, probe };
            assert_eq!(Hello::receive(&mut bytes.as_slice()).await.unwrap(), hello);
        }
    }
}
