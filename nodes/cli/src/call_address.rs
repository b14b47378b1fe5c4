//! A call as people copy it: `CONVERSATION/CALL`.

use std::str::FromStr;

use serde_json::Value;

/// Names a call that waits, and perhaps which of its suspensions is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAddress {
    pub conversation: String,
    pub call: String,
    pub suspension: Option<u64>,
}

impl CallAddress {
    /// The address of a pending call of an answer; its own conversation wins over the given one.
    pub(crate) fn of(pending: &Value, conversation: &str) -> Self {
        let own = pending["conversation_id"].as_str().unwrap_or(conversation);
        let call = pending["call_id"].as_str().unwrap_or_default().to_owned();
        Self { conversation: own.to_owned(), call, suspension: pending["suspension"].as_u64() }
    }

    /// The address without the suspension, which is enough where one is open.
    pub(crate) fn short(&self) -> String {
        format!("{}/{}", self.conversation, self.call)
    }
}

impl FromStr for CallAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RULE: &str = "must be CONVERSATION/CALL, as the inbox prints it";
        let (conversation, rest) = text.split_once('/').ok_or(RULE)?;
        let suspension = rest.split_once('/').map(|(_, number)| number.parse::<u64>());
        let suspension = suspension.transpose().map_err(|_| RULE)?;
        let call = rest.split('/').next().unwrap_or_default();
        let is_name = |name: &str| !name.is_empty() && name != "." && name != "..";
        if !is_name(conversation) || !is_name(call) || suspension == Some(0) {
            return Err(RULE);
        }
        Ok(Self { conversation: conversation.to_owned(), call: call.to_owned(), suspension })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_its_conversation_and_its_id() {
        let address: CallAddress = "walk/call_1_1~2".parse().unwrap();
        assert_eq!((address.conversation.as_str(), address.call.as_str()), ("walk", "call_1_1~2"));
        assert_eq!((address.short().as_str(), address.suspension), ("walk/call_1_1~2", None));
        let second: CallAddress = "walk/call_1_1/2".parse().unwrap();
        assert_eq!((second.suspension, second.call.as_str()), (Some(2), "call_1_1"));
        for wrong in ["", "walk", "/call", "walk/", "a/b/c", "a/b/0", "a/b/1/2", "../a", "a/.."] {
            assert!(wrong.parse::<CallAddress>().is_err(), "{wrong}");
        }
    }
}
