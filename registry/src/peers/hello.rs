//! The first message of each side in a connection, sent once both have proved that they have the
//! key.

use std::io;

use abide_actors::identity::NodeName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::member::ProcessId;

/// The largest hello: names are short, and a longer one does not come from a node.
const MAX_HELLO_BYTES: u16 = 1_024;

/// What a process says of itself. The first three fields mean the same in every version, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    #[serde(rename = "wire")]
    pub(super) protocol_version: u32,
    pub(super) name: NodeName,
    pub(super) process: ProcessId,
    /// Set by the dialling side: the process that it wants to reach.
    #[serde(default)]
    pub(super) to: Option<ProcessId>,
    /// Set by the dialling side if it only wants to know who is there.
    #[serde(default)]
    pub(super) probe: bool,
}

impl Hello {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u16::try_from(json.len()).ok().filter(|length| *length <= MAX_HELLO_BYTES);
        let length =
            length.ok_or(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"))?;
        Ok([&length.to_be_bytes(), json.as_slice()].concat())
    }

    pub(super) async fn send(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.encode()?).await?;
        stream.flush().await
    }

    pub(super) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let length = stream.read_u16().await?;
        if length > MAX_HELLO_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the hello is too long"));
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
    async fn a_hello_that_was_ever_sent_is_understood() {
        let (to, probe) = (Some(ProcessId::new("p2")), true);
        for (json, to, probe) in [
            (r#"{"wire":1,"name":"node-1","process":"p1"}"#, None, false),
            (r#"{"wire":1,"name":"node-1","process":"p1","to":"p2","probe":true}"#, to, probe),
        ] {
            let length = u16::try_from(json.len()).unwrap().to_be_bytes();
            let bytes = [&length, json.as_bytes()].concat();
            let (name, process) = (NodeName::new("node-1"), ProcessId::new("p1"));
            let hello = Hello { protocol_version: 1, name, process, to, probe };
            assert_eq!(Hello::receive(&mut bytes.as_slice()).await.unwrap(), hello);
        }
    }
}
