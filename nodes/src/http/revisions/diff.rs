//! What differs between two definitions.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// How a place of a definition differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum ChangeKind {
    Added,
    Removed,
    Changed,
    /// The items of a list have another order; the values are their names.
    Reordered,
}

/// One place of a definition that differs.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(in crate::http) struct DefinitionChange {
    /// The way to the place: names of members, and names of the items of lists.
    #[schema(example = json!(["tools", "send_email", "approval"]))]
    path: Vec<String>,
    change: ChangeKind,
    /// The value before; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Value>,
    /// The value after; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Value>,
}

/// The places in which `after` differs from `before`, in the order of their paths.
pub(super) fn diff(before: &Value, after: &Value) -> Vec<DefinitionChange> {
    let mut changes = Vec::new();
    compare(&mut Vec::new(), before, after, &mut changes);
    changes
}

fn compare(
    path: &mut Vec<String>,
    before: &Value,
    after: &Value,
    changes: &mut Vec<DefinitionChange>,
) {
    if before == after {
        return;
    }
    let members = match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let all = |object: &'_ serde_json::Map<String, Value>| {
                object.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            Some((all(before), all(after)))
        }
        (Value::Array(one), Value::Array(other)) => by_name(one).zip(by_name(other)),
        _ => None,
    };
    let Some((olds, news)) = members else {
        let (from, to) = (Some(before.clone()), Some(after.clone()));
        let path = path.clone();
        return changes.push(DefinitionChange { path, change: ChangeKind::Changed, from, to });
    };
    compare_members(path, &olds, &news, changes);
    if let (Value::Array(one), Value::Array(other)) = (before, after) {
        let [old_order, new_order] =
            [order(one, &olds, &news), order(other, &olds, &news)].map(Value::from);
        if old_order != new_order {
            let (from, to) = (Some(old_order), Some(new_order));
            let path = path.clone();
            changes.push(DefinitionChange { path, change: ChangeKind::Reordered, from, to });
        }
    }
}

type Members = BTreeMap<String, Value>;

fn compare_members(
    path: &mut Vec<String>,
    olds: &Members,
    news: &Members,
    changes: &mut Vec<DefinitionChange>,
) {
    let keys: BTreeSet<&String> = olds.keys().chain(news.keys()).collect();
    for key in keys {
        path.push(key.clone());
        match (olds.get(key), news.get(key)) {
            (Some(old), Some(new)) => compare(path, old, new, changes),
            (old, new) => changes.push(DefinitionChange {
                path: path.clone(),
                change: if old.is_none() { ChangeKind::Added } else { ChangeKind::Removed },
                from: old.cloned(),
                to: new.cloned(),
            }),
        }
        path.pop();
    }
}

/// The items of a list by their names; `None` unless each has one of its own.
fn by_name(items: &[Value]) -> Option<Members> {
    let named =
        items.iter().map(|item| Some((item.get("name")?.as_str()?.to_owned(), item.clone())));
    let named: Members = named.collect::<Option<_>>()?;
    (named.len() == items.len()).then_some(named)
}

/// The names of the items that both lists have, in the order of this one.
fn order(items: &[Value], olds: &Members, news: &Members) -> Vec<String> {
    let names = items.iter().filter_map(|item| item.get("name")?.as_str());
    let common = names.filter(|name| olds.contains_key(*name) && news.contains_key(*name));
    common.map(str::to_owned).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(before: Value, after: Value) -> Value {
        json!(diff(&before, &after))
    }

    #[test]
    fn equal_definitions_do_not_differ() {
        let definition = json!({"tools": [{"name": "a", "x": [1, {"y": null}]}]});
        assert_eq!(differences(definition.clone(), definition), json!([]));
    }

    #[test]
    fn members_are_compared_one_by_one() {
        let before = json!({"a": 1, "b": {"c": 1, "d": null}, "e": [1]});
        let after = json!({"b": {"c": 2}, "e": [1, 2], "f": null});
        let expected = json!([
            {"path": ["a"], "change": "removed", "from": 1},
            {"path": ["b", "c"], "change": "changed", "from": 1, "to": 2},
            {"path": ["b", "d"], "change": "removed", "from": null},
            {"path": ["e"], "change": "changed", "from": [1], "to": [1, 2]},
            {"path": ["f"], "change": "added", "to": null},
        ]);
        assert_eq!(differences(before, after), expected);
    }

    #[test]
    fn tools_are_compared_by_name_and_their_order_once() {
        let before = json!({"tools": [{"name": "a", "x": 1}, {"name": "b"}, {"name": "c"}]});
        let after = json!({"tools": [{"name": "c"}, {"name": "d"}, {"name": "a", "x": 2}]});
        let expected = json!([
            {"path": ["tools", "a", "x"], "change": "changed", "from": 1, "to": 2},
            {"path": ["tools", "b"], "change": "removed", "from": {"name": "b"}},
            {"path": ["tools", "d"], "change": "added", "to": {"name": "d"}},
            {"path": ["tools"], "change": "reordered", "from": ["a", "c"], "to": ["c", "a"]},
        ]);
        assert_eq!(differences(before, after), expected);
    }

    #[test]
    fn items_that_share_a_name_are_compared_as_a_list() {
        let before = json!({"hooks": [{"name": "a"}, {"name": "a"}]});
        let after = json!({"hooks": [{"name": "a"}]});
        let changes = differences(before, after);
        assert_eq!(changes[0]["path"], json!(["hooks"]));
        assert_eq!(changes[0]["change"], "changed");
    }
}
