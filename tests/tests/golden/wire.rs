//! What nodes tell each other, as older builds say it.

use abide_actors::live::{Delta, Signal};
use abide_actors::request::{
    DispatchRequest, ForkRequest, IdempotencyKey, Inspection, RememberRequest, Reply, Request,
    RequestError, ResolveRequest, SendRequest, SpawnRequest,
};
use abide_conversation::Rejection;
use abide_conversation::command::{self, ChildEnded, Create, IfBusy};
use abide_registry::actor_view::{ActorDetails, ActorSummary};
use abide_registry::membership::{Member, MemberState};
use abide_registry::protocol::{CallOutcome, CallRequest, Envelope, LiveUpdate};

use crate::kinds::{check, kind, kind_by};

#[test]
fn every_message_between_nodes_that_was_ever_sent_still_means_the_same() {
    let kinds = [
        kind::<Envelope>("Envelope"),
        kind::<CallRequest>("Ask"),
        kind::<CallOutcome>("Answer"),
        kind::<LiveUpdate>("Told"),
        kind::<Signal>("Signal"),
        kind::<Delta>("Delta"),
        kind::<Request>("Request"),
        kind::<SendRequest>("SendRequest"),
        kind::<ResolveRequest>("ResolveRequest"),
        kind::<RememberRequest>("RememberRequest"),
        kind::<DispatchRequest>("DispatchRequest"),
        kind::<SpawnRequest>("SpawnRequest"),
        kind::<ForkRequest>("ForkRequest"),
        kind::<Create>("Create"),
        kind::<ChildEnded>("ChildEnded"),
        kind::<IfBusy>("IfBusy"),
        kind::<command::ResolutionAnswer>("CallAnswer"),
        kind::<IdempotencyKey>("RepeatKey"),
        kind_by::<Reply>("Reply", "reply"),
        kind::<RequestError>("Failure"),
        kind::<Rejection>("Rejection"),
        kind::<Inspection>("Inspection"),
        kind::<ActorDetails>("Sight"),
        kind::<ActorSummary>("Row"),
        kind::<Member>("Member"),
        kind::<MemberState>("MemberState"),
    ];
    check("wire.jsonl", &kinds);
}
