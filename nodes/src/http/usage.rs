//! What a tenant has used: turns, tokens, cost and calls, by agent or by owner.

use abide_actors::usage_counts::{UsageCounts, day_of};
use abide_conversation::Tenant;
use abide_registry::store::{USAGE_DAYS, UsageBy, UsagePage, UsageQuery};
use axum::Json;
use axum::extract::State;
use data_encoding::HEXLOWER;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::extract;
use super::extract::Query;
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::ReadUsage;

/// How many days one answer adds up: a quarter of a year, and a day.
const MAX_DAYS: i64 = 93;
const DATE_RULE: &str = "must be a date, such as 2027-01-31";

/// What usage is added up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = UsageBy)]
pub(super) enum By {
    #[default]
    Agent,
    Owner,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageParameters {
    /// The first day, in UTC; today if absent.
    #[param(format = Date)]
    from: Option<String>,
    /// The last day, in UTC; today if absent. At most 92 days after `from`.
    #[param(format = Date)]
    to: Option<String>,
    /// What the rows stand for.
    #[serde(default)]
    by: By,
    /// The size of the page.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The cursor of the previous page.
    cursor: Option<String>,
}

/// The usage of one agent or owner.
#[derive(Debug, Serialize, ToSchema)]
struct UsageRow {
    /// With `by=agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// With `by=owner`; null for conversations without an owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    owner: Option<Option<String>>,
    #[serde(flatten)]
    counts: UsageCounts,
}

/// The usage of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageReport {
    #[schema(value_type = String, format = Date)]
    from: Date,
    #[schema(value_type = String, format = Date)]
    to: Date,
    by: By,
    /// In the order of the names.
    usage: Vec<UsageRow>,
    /// The usage of all, also of those on other pages.
    total: UsageCounts,
    /// The cursor of the next page; null at the end.
    #[schema(required)]
    cursor: Option<String>,
}

/// Reads what the tenant has used.
///
/// Usage is counted with the events of the journal, in the day of the event, and is kept for 400 days;
/// the usage of deleted conversations stays. The usage of a child counts for the child's agent.
#[utoipa::path(get, path = "/v1/usage", operation_id = "get_usage", tag = "access",
    params(UsageParameters),
    responses((status = 200, description = "The usage.", body = UsageReport)))]
pub(super) async fn get(
    allowed: Allowed<ReadUsage>,
    State(api): State<Api>,
    Query(query): Query<UsageParameters>,
) -> Result<Json<UsageReport>, Problem> {
    let UsageParameters { from, to, by, limit, cursor } = query;
    let today = day_of(api.clock.now());
    let from = date("from", from.as_deref())?.unwrap_or(today);
    let to = date("to", to.as_deref())?.unwrap_or(today);
    check_range(from, to)?;
    let limit = extract::limit(limit, 100, 1_000)?;
    let tenant = allowed.tenant();
    let after = cursor.map(|cursor| name_after(&cursor, &tenant, by)).transpose()?;
    let store_by = match by {
        By::Agent => UsageBy::Agent,
        By::Owner => UsageBy::Owner,
    };
    let query = UsageQuery { tenant, first: from, last: to, by: store_by, after, limit };
    let UsagePage { rows, total, has_more } = api.store.usage(&query).await?;
    let last = rows.last().filter(|_| has_more);
    let cursor = last.map(|(name, _)| cursor_after(name, &query.tenant, by));
    let usage = rows.into_iter().map(|(name, counts)| row(by, name, counts)).collect();
    Ok(Json(UsageReport { from, to, by, usage, total, cursor }))
}

fn row(by: By, name: String, counts: UsageCounts) -> UsageRow {
    match by {
        By::Agent => UsageRow { agent: Some(name), owner: None, counts },
        By::Owner => {
            let owner = (!name.is_empty()).then_some(name);
            UsageRow { agent: None, owner: Some(owner), counts }
        }
    }
}

fn date(field: &str, given: Option<&str>) -> Result<Option<Date>, Problem> {
    let Some(given) = given else { return Ok(None) };
    // The parser knows other forms, too.
    let parsed = given.parse::<Date>().ok().filter(|date| date.to_string() == given);
    parsed.map(Some).ok_or_else(|| Problem::field(field, DATE_RULE))
}

fn check_range(from: Date, to: Date) -> Result<(), Problem> {
    if from > to {
        return Err(Problem::field("from", "must not be after to"));
    }
    let days = i64::from((to - from).get_days()) + 1;
    if days > MAX_DAYS {
        let rule = format!("must be at most {} days after from", MAX_DAYS - 1);
        return Err(Problem::field("to", rule));
    }
    Ok(())
}

/// The cursor of the page after this name, for this tenant and kind of rows alone.
fn cursor_after(name: &str, tenant: &Tenant, by: By) -> String {
    let text = serde_json::json!([tenant, by, name]).to_string();
    HEXLOWER.encode(text.as_bytes())
}

fn name_after(cursor: &str, tenant: &Tenant, by: By) -> Result<String, Problem> {
    let bytes = HEXLOWER.decode(cursor.as_bytes()).ok();
    let key = bytes.and_then(|bytes| serde_json::from_slice::<(Tenant, By, String)>(&bytes).ok());
    let key = key.filter(|(of, kind, _)| (of, *kind) == (tenant, by));
    let name = key.map(|(_, _, name)| name);
    name.ok_or_else(|| Problem::field("cursor", "was not returned by this listing"))
}

const _: () = assert!(MAX_DAYS < USAGE_DAYS, "a page has days that are kept");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_date_has_one_form() {
        let parse = |text| date("from", Some(text)).ok().flatten().map(|date| date.to_string());
        assert_eq!(parse("2027-01-31").as_deref(), Some("2027-01-31"));
        for text in ["", "2027-1-31", "20270131", "2027-02-30", "2027-01-31T00:00:00", "x", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_has_an_order_and_a_bound() {
        let status = |from: &str, to: &str| {
            let checked = check_range(from.parse().unwrap(), to.parse().unwrap());
            checked.err().map_or(200, |problem| problem.into_response().status().as_u16())
        };
        assert_eq!(status("2027-01-01", "2027-01-01"), 200);
        assert_eq!(status("2027-01-01", "2027-04-03"), 200);
        assert_eq!(status("2027-01-01", "2027-04-04"), 422);
        assert_eq!(status("2027-01-01", "2037-01-01"), 422);
        assert_eq!(status("2027-01-02", "2027-01-01"), 422);
    }

    #[test]
    fn a_cursor_is_for_one_tenant_and_kind_of_rows() {
        let (acme, other) = (Tenant::parse("acme").unwrap(), Tenant::default());
        for name in ["", "ann", "Ünïcode \""] {
            let cursor = cursor_after(name, &acme, By::Owner);
            assert_eq!(name_after(&cursor, &acme, By::Owner).unwrap(), name);
            assert!(name_after(&cursor, &other, By::Owner).is_err());
            assert!(name_after(&cursor, &acme, By::Agent).is_err());
            assert!(name_after(&cursor[1..], &acme, By::Owner).is_err());
        }
    }
}
