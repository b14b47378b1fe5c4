//! The commands that the store and its scripts use. Any other panics: the model has to learn it first.

use ::redis::Value;

use super::keyspace::{Data, Keyspace, WRONG_TYPE};
use super::ranges::{by_member, by_score, float, indexes, integer};
use super::sorted_set::{Added, SortedSet, score_text};
use super::{Answer, Words, text};

/// What a server checks before it carries a command out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub writes: bool,
    /// Whether a full server refuses it.
    pub needs_memory: bool,
}

/// The kind of a command; `None` for one that the model does not know.
pub fn kind(name: &str) -> Option<Kind> {
    let (writes, needs_memory) = match name {
        "GET" | "TIME" | "HGET" | "HMGET" | "HEXISTS" | "HKEYS" | "HVALS" | "HGETALL" | "HLEN"
        | "LLEN" | "LINDEX" | "LRANGE" | "SMEMBERS" | "ZCARD" | "ZSCORE" | "ZRANGE"
        | "ZLEXCOUNT" => (false, false),
        "DEL" | "UNLINK" | "HDEL" | "LPOP" | "SREM" | "ZREM" | "ZREMRANGEBYRANK" | "EXPIRE"
        | "PEXPIREAT" | "PERSIST" | "RENAME" => (true, false),
        "SET" | "INCR" | "HSET" | "HSETNX" | "HINCRBY" | "RPUSH" | "LPUSH" | "LSET" | "SADD"
        | "ZADD" | "ZINCRBY" => (true, true),
        _ => return None,
    };
    Some(Kind { writes, needs_memory })
}

fn bulk(bytes: &[u8]) -> Value {
    Value::BulkString(bytes.to_vec())
}

fn count(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap())
}

fn optional(found: Option<&Vec<u8>>) -> Value {
    found.map_or(Value::Nil, |it| bulk(it))
}

impl Keyspace {
    /// Carries a command out.
    pub fn execute(&mut self, words: &[Vec<u8>]) -> Answer {
        let name = text(&words[0]).to_ascii_uppercase();
        match name.as_str() {
            "TIME" => Ok(self.time()),
            "GET" | "SET" => self.texts(&name, words),
            "INCR" => self.increase_text(words),
            "DEL" | "UNLINK" => Ok(self.unlink(words)),
            "RENAME" => self.rename(words),
            "EXPIRE" | "PEXPIREAT" | "PERSIST" => self.expire(&name, words),
            "RPUSH" | "LLEN" | "LRANGE" => self.lists(&name, words),
            "LINDEX" | "LPOP" | "LPUSH" => self.list_heads(&name, words),
            "LSET" => self.set_element(words),
            "HSET" | "HSETNX" | "HDEL" => self.change_hash(&name, words),
            "HINCRBY" => self.increase_field(words),
            "HGET" | "HMGET" | "HEXISTS" | "HKEYS" | "HVALS" | "HGETALL" | "HLEN" => {
                self.read_hash(&name, words)
            }
            "SADD" | "SREM" => self.change_unsorted(&name, words),
            "SMEMBERS" => self.read_unsorted(words),
            "ZINCRBY" => self.increase_score(words),
            "ZADD" | "ZREM" | "ZREMRANGEBYRANK" => self.change_set(&name, words),
            "ZCARD" | "ZSCORE" | "ZRANGE" | "ZLEXCOUNT" => self.read_set(&name, words),
            _ => panic!("the model of Redis does not know the command {name}"),
        }
    }

    fn time(&self) -> Value {
        let micros = self.now_ms * 1_000;
        let part = |number: i64| bulk(number.to_string().as_bytes());
        Value::Array(vec![part(micros / 1_000_000), part(micros % 1_000_000)])
    }

    fn texts(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        if name == "GET" {
            return match self.get(&words[1]) {
                None => Ok(Value::Nil),
                Some(Data::Text(found)) => Ok(bulk(found)),
                Some(_) => Err(WRONG_TYPE.to_owned()),
            };
        }
        let expires_at = match words.get(3).map(|option| text(option)) {
            None => None,
            Some("EX") => Some(self.now_ms + 1_000 * integer(&words[4])?),
            Some("PXAT") => Some(integer(&words[4])?),
            Some(option) => panic!("the model of Redis does not know SET {option}"),
        };
        self.set(&words[1], Data::Text(words[2].clone()), expires_at);
        let mut effect = words[..3].to_vec();
        effect.extend(
            expires_at.iter().flat_map(|at| [b"PXAT".to_vec(), at.to_string().into_bytes()]),
        );
        self.changed(&effect);
        Ok(Value::Okay)
    }

    fn increase_text(&mut self, words: &[Vec<u8>]) -> Answer {
        let zero = || Data::Text(b"0".to_vec());
        let was_there = self.exists(&words[1]);
        let Data::Text(stored) = self.get_or_create(&words[1], zero) else {
            return Err(WRONG_TYPE.to_owned());
        };
        let Ok(former) = integer(stored) else {
            assert!(was_there, "the text of a new key is a number");
            return Err("ERR value is not an integer or out of range".to_owned());
        };
        *stored = (former + 1).to_string().into_bytes();
        self.changed(words);
        Ok(Value::Int(former + 1))
    }

    fn unlink(&mut self, words: &[Vec<u8>]) -> Value {
        let removed = words[1..].iter().filter(|key| self.remove(key)).count();
        if removed > 0 {
            self.changed(words);
        }
        count(removed)
    }

    fn rename(&mut self, words: &[Vec<u8>]) -> Answer {
        let Some(data) = self.get(&words[1]).cloned() else {
            return Err("ERR no such key".to_owned());
        };
        let expires_at = self.expiry(&words[1]).copied().flatten();
        self.remove(&words[1]);
        self.set(&words[2], data, expires_at);
        self.changed(words);
        Ok(Value::Okay)
    }

    fn expire(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let key = &words[1];
        let at = match name {
            "EXPIRE" => Some(self.now_ms + 1_000 * integer(&words[2])?),
            "PEXPIREAT" => Some(integer(&words[2])?),
            _ => None,
        };
        let now_ms = self.now_ms;
        let Some(expiry) = self.expiry(key) else { return Ok(Value::Int(0)) };
        let Some(at) = at else {
            let had_one = expiry.take().is_some();
            if had_one {
                self.changed(words);
            }
            return Ok(Value::Int(i64::from(had_one)));
        };
        *expiry = Some(at);
        if at <= now_ms {
            self.remove(key);
            self.changed(&[b"DEL".to_vec(), key.clone()]);
        } else {
            self.changed(&[b"PEXPIREAT".to_vec(), key.clone(), at.to_string().into_bytes()]);
        }
        Ok(Value::Int(1))
    }

    fn lists(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        if name == "RPUSH" {
            let Data::List(list) = self.get_or_create(&words[1], || Data::List(Default::default()))
            else {
                return Err(WRONG_TYPE.to_owned());
            };
            list.extend(words[2..].iter().cloned());
            let len = list.len();
            self.changed(words);
            return Ok(count(len));
        }
        if name == "LLEN" {
            return match self.get(&words[1]) {
                None => Ok(Value::Int(0)),
                Some(Data::List(list)) => Ok(count(list.len())),
                Some(_) => Err(WRONG_TYPE.to_owned()),
            };
        }
        let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
        match self.get(&words[1]) {
            None => Ok(Value::Array(Vec::new())),
            Some(Data::List(list)) => {
                let range = indexes(start, stop, list.len());
                Ok(Value::Array(list.range(range).map(|it| bulk(it)).collect()))
            }
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// LINDEX, LPOP and LPUSH.
    fn list_heads(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let key = &words[1];
        if name == "LPUSH" {
            let Data::List(list) = self.get_or_create(key, || Data::List(Default::default()))
            else {
                return Err(WRONG_TYPE.to_owned());
            };
            words[2..].iter().for_each(|word| list.push_front(word.clone()));
            let len = list.len();
            self.changed(words);
            return Ok(count(len));
        }
        if name == "LINDEX" {
            let index = usize::try_from(integer(&words[2])?);
            let index = index.expect("the scripts count from the beginning");
            return match self.get(key) {
                None => Ok(Value::Nil),
                Some(Data::List(list)) => Ok(optional(list.get(index))),
                Some(_) => Err(WRONG_TYPE.to_owned()),
            };
        }
        let popped = match self.get_mut(key) {
            None => None,
            Some(Data::List(list)) => list.pop_front(),
            Some(_) => return Err(WRONG_TYPE.to_owned()),
        };
        if popped.is_some() {
            self.remove_if_empty(key);
            self.changed(words);
        }
        Ok(optional(popped.as_ref()))
    }

    fn set_element(&mut self, words: &[Vec<u8>]) -> Answer {
        let list = match self.get_mut(&words[1]) {
            None => return Err("ERR no such key".to_owned()),
            Some(Data::List(list)) => list,
            Some(_) => return Err(WRONG_TYPE.to_owned()),
        };
        let index = integer(&words[2])?;
        let index = if index < 0 { index + list.len() as i64 } else { index };
        let element = usize::try_from(index).ok().and_then(|index| list.get_mut(index));
        let Some(element) = element else { return Err("ERR index out of range".to_owned()) };
        element.clone_from(&words[3]);
        self.changed(words);
        Ok(Value::Okay)
    }

    fn change_hash(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let key = &words[1];
        if name == "HDEL" {
            let removed = match self.get_mut(key) {
                None => 0,
                Some(Data::Hash(hash)) => {
                    words[2..].iter().filter(|field| hash.remove(*field).is_some()).count()
                }
                Some(_) => return Err(WRONG_TYPE.to_owned()),
            };
            if removed > 0 {
                self.remove_if_empty(key);
                self.changed(words);
            }
            return Ok(count(removed));
        }
        if !words.len().is_multiple_of(2) {
            return Err("ERR wrong number of arguments for 'hset' command".to_owned());
        }
        let Data::Hash(hash) = self.get_or_create(key, || Data::Hash(Default::default())) else {
            return Err(WRONG_TYPE.to_owned());
        };
        if name == "HSETNX" && hash.contains_key(&words[2]) {
            return Ok(Value::Int(0));
        }
        let mut new = 0;
        for pair in words[2..].chunks_exact(2) {
            new += usize::from(hash.insert(pair[0].clone(), pair[1].clone()).is_none());
        }
        self.changed(words);
        Ok(count(new))
    }

    fn increase_field(&mut self, words: &[Vec<u8>]) -> Answer {
        let by = integer(&words[3])?;
        let Data::Hash(hash) = self.get_or_create(&words[1], || Data::Hash(Default::default()))
        else {
            return Err(WRONG_TYPE.to_owned());
        };
        let former = hash.get(&words[2]).map_or(Ok(0), |it| integer(it));
        let former = former.map_err(|_| "ERR hash value is not an integer".to_owned())?;
        let number = former + by;
        hash.insert(words[2].clone(), number.to_string().into_bytes());
        self.changed(words);
        Ok(Value::Int(number))
    }

    /// SADD and SREM.
    fn change_unsorted(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let (key, members) = (&words[1], &words[2..]);
        let changed = if name == "SADD" {
            let new = || Data::Unsorted(Default::default());
            let Data::Unsorted(set) = self.get_or_create(key, new) else {
                return Err(WRONG_TYPE.to_owned());
            };
            members.iter().filter(|member| set.insert(member.to_vec())).count()
        } else {
            match self.get_mut(key) {
                None => 0,
                Some(Data::Unsorted(set)) => {
                    members.iter().filter(|member| set.remove(*member)).count()
                }
                Some(_) => return Err(WRONG_TYPE.to_owned()),
            }
        };
        if changed > 0 {
            self.remove_if_empty(key);
            self.changed(words);
        }
        Ok(count(changed))
    }

    fn read_unsorted(&mut self, words: &[Vec<u8>]) -> Answer {
        match self.get(&words[1]) {
            None => Ok(Value::Array(Vec::new())),
            Some(Data::Unsorted(set)) => {
                Ok(Value::Array(set.iter().map(|member| bulk(member)).collect()))
            }
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn increase_score(&mut self, words: &[Vec<u8>]) -> Answer {
        let by = float(&words[2])?;
        let new = || Data::Sorted(Default::default());
        let Data::Sorted(set) = self.get_or_create(&words[1], new) else {
            return Err(WRONG_TYPE.to_owned());
        };
        let score = set.score(&words[3]).unwrap_or(0.0) + by;
        if score.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".to_owned());
        }
        set.add(score, &words[3]);
        self.changed(words);
        Ok(bulk(score_text(score).as_bytes()))
    }

    fn read_hash(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let empty = Default::default();
        let hash = match self.get(&words[1]) {
            None => &empty,
            Some(Data::Hash(hash)) => hash,
            Some(_) => return Err(WRONG_TYPE.to_owned()),
        };
        Ok(match name {
            "HGET" => optional(hash.get(&words[2])),
            "HEXISTS" => Value::Int(i64::from(hash.contains_key(&words[2]))),
            "HMGET" => {
                Value::Array(words[2..].iter().map(|field| optional(hash.get(field))).collect())
            }
            "HLEN" => count(hash.len()),
            "HKEYS" => Value::Array(hash.keys().map(|it| bulk(it)).collect()),
            "HVALS" => Value::Array(hash.values().map(|it| bulk(it)).collect()),
            _ => Value::Array(hash.iter().flat_map(|(key, it)| [bulk(key), bulk(it)]).collect()),
        })
    }

    fn change_set(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let key = &words[1];
        if name == "ZADD" {
            let is_new_only = words.get(2).is_some_and(|option| text(option) == "NX");
            let mut pairs = Vec::new();
            for pair in words[2 + usize::from(is_new_only)..].chunks_exact(2) {
                pairs.push((float(&pair[0])?, &pair[1]));
            }
            let Data::Sorted(set) = self.get_or_create(key, || Data::Sorted(Default::default()))
            else {
                return Err(WRONG_TYPE.to_owned());
            };
            pairs.retain(|(_, member)| !(is_new_only && set.score(member).is_some()));
            let added: Vec<_> =
                pairs.iter().map(|(score, member)| set.add(*score, member)).collect();
            if added.iter().any(|added| *added != Added::Nothing) {
                self.changed(words);
            }
            return Ok(count(added.iter().filter(|added| **added == Added::New).count()));
        }
        let ranks = match name {
            "ZREMRANGEBYRANK" => Some((integer(&words[2])?, integer(&words[3])?)),
            _ => None,
        };
        let removed = match self.get_mut(key) {
            None => 0,
            Some(Data::Sorted(set)) => match ranks {
                Some((start, stop)) => {
                    let ranks = indexes(start, stop, set.len());
                    let removed = ranks.len();
                    set.remove_ranks(ranks);
                    removed
                }
                None => words[2..].iter().filter(|member| set.remove(member)).count(),
            },
            Some(_) => return Err(WRONG_TYPE.to_owned()),
        };
        if removed > 0 {
            self.remove_if_empty(key);
            self.changed(words);
        }
        Ok(count(removed))
    }

    fn read_set(&mut self, name: &str, words: &[Vec<u8>]) -> Answer {
        let empty = SortedSet::default();
        let set = match self.get(&words[1]) {
            None => &empty,
            Some(Data::Sorted(set)) => set,
            Some(_) => return Err(WRONG_TYPE.to_owned()),
        };
        match name {
            "ZCARD" => Ok(count(set.len())),
            "ZLEXCOUNT" => Ok(count(by_member(set, &words[2], &words[3])?.len())),
            "ZSCORE" => Ok(set
                .score(&words[2])
                .map_or(Value::Nil, |score| bulk(score_text(score).as_bytes()))),
            _ => range(set, words),
        }
    }
}

/// ZRANGE.
fn range(set: &SortedSet, words: &[Vec<u8>]) -> Answer {
    let (mut by, mut limit) = ("", None);
    let (mut with_scores, mut is_reversed) = (false, false);
    let mut options = words[4..].iter().map(|word| text(word));
    while let Some(option) = options.next() {
        match option {
            "BYSCORE" | "BYLEX" => by = option,
            "WITHSCORES" => with_scores = true,
            "REV" => is_reversed = true,
            "LIMIT" => {
                let mut number = || integer(options.next().unwrap_or_default().as_bytes());
                limit = Some((number()?, number()?));
            }
            _ => panic!("the model of Redis does not know ZRANGE {option}"),
        }
    }
    let (mut min, mut max) = (&words[2], &words[3]);
    if is_reversed {
        std::mem::swap(&mut min, &mut max);
    }
    let found = match by {
        "BYSCORE" => by_score(set, min, max)?,
        "BYLEX" => by_member(set, min, max)?,
        _ if is_reversed => panic!("the model of Redis does not know ranks from the end"),
        _ => indexes(integer(min)?, integer(max)?, set.len()),
    };
    let (skipped, most) = limit.unwrap_or((0, -1));
    let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut rows: Vec<_> = set.rows()[found].iter().collect();
    if is_reversed {
        rows.reverse();
    }
    let rows = rows.into_iter().skip(skipped).take(most);
    Ok(Value::Array(
        rows.flat_map(|(score, member)| {
            let score = with_scores.then(|| bulk(score_text(*score).as_bytes()));
            std::iter::once(bulk(member)).chain(score)
        })
        .collect(),
    ))
}

/// A command from its words.
pub fn words(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
