//! Where commands to Redis and their replies end, and which await point a command is.

use std::collections::BTreeMap;

use serde_json::Value;

/// Where the store puts its scripts together, one a line: `NAME = "lib/part" "script";`.
const SCRIPTS: &str = include_str!("../../../registry/src/store/redis/scripts.rs");
const SCRIPT_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/src/store/redis/lua");
/// The id of the fork.
pub(super) const FORK: &str = "fork";
/// A longer commit is a copied prefix, whose events may come in another order.
const MAX_NAMED_EVENTS: usize = 6;

/// The script of a hash.
pub(super) type Scripts = BTreeMap<String, String>;

/// The names of the store's scripts and their texts. A script that is missing here is an unknown point,
/// which fails the test.
pub(super) fn scripts() -> Vec<(String, String)> {
    let lines = SCRIPTS.lines().skip_while(|line| *line != "scripts! {").skip(1);
    let lines = lines.take_while(|line| *line != "}");
    let script = |line: &str| {
        let parts: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let text = |part: &&str| std::fs::read_to_string(format!("{SCRIPT_DIR}/{part}.lua"));
        let source = parts.iter().map(text).collect::<Result<String, _>>();
        ((*parts.last().unwrap()).to_owned(), source.unwrap())
    };
    lines.map(script).collect()
}

/// The length of the first command of these bytes, and its words; `None` while it is incomplete.
pub(super) fn command(bytes: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let (count, mut at) = number_line(bytes, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, head) = number_line(bytes.get(at..)?, b'$')?;
        let length = usize::try_from(length).ok()?;
        words.push(bytes.get(at + head..at + head + length)?.to_vec());
        at += head + length + 2;
    }
    (at <= bytes.len()).then_some((at, words))
}

/// The length of the first reply of these bytes; `None` while it is incomplete.
pub(super) fn reply_length(bytes: &[u8]) -> Option<usize> {
    let end = line_end(bytes)?;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).ok()?.parse::<i64>().ok();
    match bytes.first()? {
        b'$' | b'=' | b'!' => {
            let length = usize::try_from(number()?).map_or(0, |length| length + 2);
            (end + length <= bytes.len()).then_some(end + length)
        }
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let count = number()?.max(0) * if *kind == b'%' { 2 } else { 1 };
            (0..count).try_fold(end, |at, _| Some(at + reply_length(bytes.get(at..)?)?))
        }
        _ => Some(end),
    }
}

fn number_line(bytes: &[u8], kind: u8) -> Option<(i64, usize)> {
    let end = line_end(bytes)?;
    assert_eq!(bytes[0], kind, "no command: {}", String::from_utf8_lossy(bytes));
    Some((std::str::from_utf8(&bytes[1..end - 2]).ok()?.parse().ok()?, end))
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|two| two == b"\r\n").map(|at| at + 2)
}

/// What each node reads at all times.
const POLLED: [&str; 3] = ["erasures_due", "schedule_partitions", "webhooks_version"];

/// The await point of a turn that a command is; `None` for what a node does in any case, such as
/// renewing its lease and looking for due alarms.
pub(super) fn point(words: &[Vec<u8>], scripts: &Scripts) -> Option<String> {
    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let verb = words.first()?.to_uppercase();
    if verb != "EVALSHA" && verb != "EVAL" {
        let (owner, kind) =
            owner_and_kind(words.get(1)?).filter(|(_, kind)| !POLLED.contains(kind))?;
        return Some(format!("{owner}{verb} {kind}"));
    }
    let script = scripts.get(words.get(1)?.as_ref()).map_or("an unknown script", String::as_str);
    if ["enter", "renew", "declare_dead"].contains(&script) {
        return None;
    }
    let owner = match script {
        // Its keys are of no conversation.
        "rebuild" => "",
        _ => owner_and_kind(words.get(3)?)?.0,
    };
    let events: Vec<String> = words.iter().filter_map(|word| event_type(word)).collect();
    let events = match &events[..] {
        [] => String::new(),
        [first, .., last] if events.len() > MAX_NAMED_EVENTS => format!(": {first} … {last}"),
        events => format!(": {}", events.join(", ")),
    };
    Some(format!("{owner}{script}{events}"))
}

/// The owner of a key and its kind: the child's `c` of `abide:{12}:c:conv_1`. A key of the agents, or of
/// the conversation that the client talks to, has no owner. `None` for a key of neither.
fn owner_and_kind(key: &str) -> Option<(&'static str, &str)> {
    let (tag, rest) = key.strip_prefix("abide:{")?.split_once("}:")?;
    match rest.split_once(':') {
        Some((kind, name)) => {
            let owner = match name {
                FORK => "fork's ",
                // Made by the node.
                _ if name.starts_with("conv_") => "child's ",
                _ => "",
            };
            Some((owner, kind))
        }
        None if tag == "agents" => Some(("", rest)),
        None => None,
    }
}

fn event_type(word: &str) -> Option<String> {
    let event: Value = word.starts_with('{').then(|| serde_json::from_str(word).ok())??;
    event["seq"].as_u64()?;
    Some(event["type"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_end_where_redis_ends_them() {
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        assert_eq!(command(get), Some((get.len(), vec![b"GET".to_vec(), b"k".to_vec()])));
        for cut in 0..get.len() {
            assert_eq!(command(&get[..cut]), None, "{cut}");
        }
        for reply in
            ["+OK\r\n", ":1\r\n", "$-1\r\n", "$2\r\nab\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n"]
        {
            assert_eq!(reply_length(format!("{reply}+next").as_bytes()), Some(reply.len()));
            assert_eq!(reply_length(&reply.as_bytes()[..reply.len() - 1]), None);
        }
    }

    #[test]
    fn a_command_of_a_conversation_is_a_point_and_one_of_the_node_is_none() {
        let scripts = Scripts::from(
            [("1", "append"), ("2", "renew")]
                .map(|(hash, name)| (hash.to_owned(), name.to_owned())),
        );
        let name = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            point(&words, &scripts)
        };
        let event = r#"{"seq":1,"type":"user_msg","data":{}}"#;
        assert_eq!(
            name(&["EVALSHA", "1", "1", "abide:{12}:c:x", "a", event]).as_deref(),
            Some("append: user_msg")
        );
        assert_eq!(name(&["EVALSHA", "2", "1", "abide:{members}:m"]), None);
        assert_eq!(name(&["HMGET", "abide:{12}:c:x", "node"]).as_deref(), Some("HMGET c"));
        assert_eq!(name(&["ZRANGE", "abide:{12}:alarms"]), None);
        assert_eq!(name(&["GET", "abide:{agents}:webhooks_version"]), None);
        assert_eq!(name(&["ZRANGE", "abide:{agents}:erasures_due"]), None);
        assert_eq!(name(&["HGET", "abide:{agents}:newest", "a"]).as_deref(), Some("HGET newest"));
        assert_eq!(
            name(&["HMGET", "abide:{1}:c:conv_1", "node"]).as_deref(),
            Some("child's HMGET c")
        );
        assert!(
            super::scripts().iter().any(|(name, text)| name == "append" && text.contains("RPUSH"))
        );
        let unknown = name(&["EVALSHA", "3", "1", "abide:{12}:c:x"]);
        assert_eq!(unknown.as_deref(), Some("an unknown script"));
    }
}
