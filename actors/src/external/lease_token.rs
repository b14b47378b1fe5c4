//! The name of a lease as workers know it: opaque to them, and enough to find the call.

use abide_conversation::ids::{CallId, ConversationId, LeaseId};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The longest token: the ids in it are bounded.
const MAX_TOKEN_BYTES: usize = 1_024;

/// A lease, with the call that it is for. The lease's own id cannot be guessed, so that whoever
/// shows the token was given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseToken {
    pub conversation: ConversationId,
    pub call: CallId,
    pub lease: LeaseId,
}

impl LeaseToken {
    /// The token as text, which fits into a path.
    pub fn encode(&self) -> String {
        let Self { conversation, call, lease } = self;
        // The lease first: a prefix of the text is different for each.
        URL_SAFE_NO_PAD.encode(format!("{lease}\n{conversation}\n{call}"))
    }

    /// Reads a token; `None` if it is none.
    pub fn decode(text: &str) -> Option<Self> {
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let parts: Vec<&str> = text.split('\n').collect();
        let [lease, conversation, call] = parts[..] else { return None };
        let is_whole = !call.is_empty() && !lease.is_empty();
        let conversation = ConversationId::parse(conversation).filter(|_| is_whole)?;
        Some(Self { conversation, call: CallId::new(call), lease: LeaseId::new(lease) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_nothing_else_is_one() {
        let token = LeaseToken {
            conversation: ConversationId::new("c.1:x"),
            call: CallId::new("call_1~2"),
            lease: LeaseId::new("lease_0"),
        };
        let text = token.encode();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert_eq!(LeaseToken::decode(&text), Some(token));
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for wrong in ["", "a", "%", &encode("l\nc"), &encode("l\nc\ncall\nx"), &encode("l\nc\n")] {
            assert_eq!(LeaseToken::decode(wrong), None, "{wrong}");
        }
        assert_eq!(LeaseToken::decode(&encode("l\na/b\nc")), None);
        assert_eq!(LeaseToken::decode(&encode(&format!("l\nc\n{}", "x".repeat(2_000)))), None);
    }
}
