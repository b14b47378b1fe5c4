//! The arguments of calls while a model writes them: live, lossy, and never the truth.
//!
//! They do not travel among the chunks of a reply, so that they neither end the retries of a call nor
//! pass as a part of the message.

use std::fmt;
use std::sync::Arc;

/// A piece of the arguments of a call that comes whole at the end of its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPiece {
    /// The position of the call among the reply's calls, from 0.
    pub index: usize,
    /// The tool's name. Only the first piece of a call has it; what came before for the index is void.
    pub name: Option<String>,
    /// The next characters of the arguments' JSON.
    pub args_text: String,
}

type Receive = dyn Fn(CallPiece) + Send + Sync;

/// Receives the pieces of one reply. Without a receiver, they are dropped.
#[derive(Clone, Default)]
pub struct CallPieceSink(Option<Arc<Receive>>);

impl CallPieceSink {
    /// A sink that hands each piece to `receive`, which must not block.
    pub fn new(receive: impl Fn(CallPiece) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(receive)))
    }

    /// Hands a piece on.
    pub fn send(&self, piece: CallPiece) {
        if let Some(receive) = &self.0 {
            receive(piece);
        }
    }
}

impl fmt::Debug for CallPieceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallPieceSink").field(&self.0.is_some()).finish()
    }
}

/// Requests are the same whoever receives the pieces.
impl PartialEq for CallPieceSink {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
