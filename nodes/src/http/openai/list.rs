//! Lists of items, page by page.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::http::extract;
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ItemQuery {
    /// The size of the page.
    #[param(default = 20, minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// `asc` for the oldest first, `desc` for the newest first.
    #[param(default = "desc", pattern = "^(asc|desc)$")]
    order: Option<String>,
    /// The id of the last item of the page before.
    after: Option<String>,
}

/// A page of items, which are taken oldest first.
#[derive(Debug)]
pub(super) struct List {
    limit: usize,
    is_ascending: bool,
    after: Option<String>,
    /// Whether the item `after` was taken; true without one, for a page that begins with the oldest.
    has_passed: bool,
    items: VecDeque<Value>,
}

impl List {
    pub(super) fn new(query: &ItemQuery) -> Result<Self, Problem> {
        let is_ascending = match query.order.as_deref() {
            Some("asc") => true,
            None | Some("desc") => false,
            Some(_) => return Err(Problem::field("order", "must be asc or desc")),
        };
        let limit = extract::limit(query.limit, 20, 100)?;
        let after = query.after.clone();
        let has_passed = after.is_none();
        Ok(Self { limit, is_ascending, after, has_passed, items: VecDeque::new() })
    }

    /// Takes the next item. One more than the page has tells whether there is another page.
    pub(super) fn take(&mut self, item: Value) {
        let is_cursor = self.after.as_deref().is_some_and(|after| item["id"] == after);
        if self.is_ascending {
            if self.has_passed && self.items.len() <= self.limit {
                self.items.push_back(item);
            }
            self.has_passed |= is_cursor;
            return;
        }
        self.has_passed |= is_cursor;
        if self.after.is_some() && self.has_passed {
            return;
        }
        self.items.push_back(item);
        if self.items.len() > self.limit + 1 {
            self.items.pop_front();
        }
    }

    /// The page. A cursor that no item has is the end of an ascending list.
    pub(super) fn into_page(self) -> Value {
        let mut items: Vec<Value> = self.items.into();
        if !self.is_ascending {
            items.reverse();
        }
        let has_more = items.len() > self.limit;
        items.truncate(self.limit);
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        let (first, last) = (id(items.first()), id(items.last()));
        json!({"object": "list", "data": items, "first_id": first, "last_id": last,
            "has_more": has_more})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn page(order: &str, limit: usize, after: Option<&str>) -> (Vec<String>, bool) {
        let (order, after) = (Some(order.to_owned()), after.map(str::to_owned));
        let mut list = List::new(&ItemQuery { limit: Some(limit), order, after }).unwrap();
        for id in ["a", "b", "c", "d", "e"] {
            list.take(json!({"id": id}));
        }
        let page = list.into_page();
        let ids = page["data"].as_array().unwrap().iter();
        let ids = ids.map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        (ids, page["has_more"].as_bool().unwrap())
    }

    #[test]
    fn pages_of_any_size_have_every_item_once_and_in_order() {
        for (order, all) in [("asc", "abcde"), ("desc", "edcba")] {
            for limit in 1..=6 {
                let (mut found, mut after) = (String::new(), None);
                loop {
                    let (ids, has_more) = page(order, limit, after.as_deref());
                    found.extend(ids.iter().map(String::as_str));
                    after = ids.last().cloned();
                    if !has_more {
                        break;
                    }
                }
                assert_eq!(found, all, "{order}, {limit} on a page");
            }
        }
    }

    #[test]
    fn an_order_or_a_limit_that_is_wrong_is_refused() {
        for (limit, order) in [(Some(0), None), (Some(101), None), (None, Some("up".to_owned()))] {
            assert!(List::new(&ItemQuery { limit, order, after: None }).is_err());
        }
    }
}
