//! The one message that reaches the host from other nodes: a call, whose bytes `protocol` defines.

use ractor::message::{BoxedDowncastErr, SerializedMessage};
use ractor::{Message, RpcReplyPort};

use super::HostMsg;

/// A call of another node. Dropping it leaves the caller without an answer.
pub struct RemoteCall {
    pub call: Vec<u8>,
    pub reply: RpcReplyPort<Vec<u8>>,
}

/// The name of the only variant that travels. Nodes of other versions know it by this name, for
/// ever.
const REMOTE: &str = "Remote";

impl Message for HostMsg {
    fn serializable() -> bool {
        true
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        let Self::Remote(RemoteCall { call, reply }) = self else { return Err(BoxedDowncastErr) };
        let variant = REMOTE.to_owned();
        Ok(SerializedMessage::Call { variant, args: call, reply, metadata: None })
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        match message {
            SerializedMessage::Call { variant, args, reply, .. } if variant == REMOTE => {
                Ok(Self::Remote(RemoteCall { call: args, reply }))
            }
            _ => Err(BoxedDowncastErr),
        }
    }
}
