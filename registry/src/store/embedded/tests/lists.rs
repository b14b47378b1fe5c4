//! How much of the index a list reads.

use abide_actors::journal::{Journal, Relisting};
use abide_conversation::AgentName;
use redb::Error;

use super::super::super::conformance::*;
use super::super::super::listing::Plan;
use super::super::super::{ListQuery, Lists};
use super::super::{Embedded, listing};
use super::files::open;

/// How many conversations have what many have.
const MANY: usize = 40;

/// The members that are read for a whole list of this query.
fn read_members(store: &Embedded, query: &ListQuery) -> usize {
    let read = store.shared.read(|from| {
        let plan = Plan::new(listing::KIND, &own(), query, None, None);
        let (mut plan, members) = (plan.unwrap().unwrap(), listing::MEMBERS.open(from, &own())?);
        let suffixes = listing::suffixes(&members.unwrap(), &mut plan)?;
        Ok(suffixes.collect::<Result<Vec<_>, Error>>()?.len())
    });
    read.map_err(|failure| failure.error).unwrap()
}

#[tokio::test]
async fn what_few_of_many_have_is_listed_by_reading_the_few() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..MANY {
        let (name, mut first) = (format!("c{number:02}"), commit(1, 1));
        let [is_ann, is_rare] = [number != 0, number < 2];
        first.summary.agent = AgentName::new(if is_rare { "rare" } else { "demo" });
        first.summary.participants.owner = Some(if is_ann { "ann" } else { "bob" }.to_owned());
        first.relisting = Relisting::whole();
        let held = claim_conversation(&store, &name).await;
        store.append(&id(&name), &held, first).await.unwrap();
    }
    let query = |owner: Option<&str>, agent: Option<&str>| ListQuery {
        owner: owner.map(str::to_owned),
        agent: agent.map(AgentName::new),
        ..ListQuery::default()
    };
    for (owner, agent, expected) in [
        (Some("ann"), None, MANY - 1),
        (Some("ann"), Some("rare"), 2),
        (Some("bob"), Some("demo"), 1),
        (None, Some("rare"), 2),
        (None, None, MANY),
    ] {
        let query = query(owner, agent);
        assert_eq!(read_members(&store, &query), expected, "{query:?}");
    }
    let page = store.list(&own(), &query(Some("ann"), Some("rare")), None, 9).await.unwrap();
    let found: Vec<_> = page.items.iter().map(|listed| listed.id.as_str()).collect();
    assert_eq!(found, ["c01"]);
}
