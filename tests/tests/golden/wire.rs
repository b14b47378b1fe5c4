//! Messages between nodes, as older builds send them.

use abide_actors::access::{Access, CreateAccess, Reach};
use abide_actors::live::{Delta, Signal};
use abide_actors::request::{
    AnswerOutcome, DispatchRequest, ExtendRequest, ForkRequest, IdempotencyKey, Inspection,
    RegenerateRequest, RememberRequest, Reply, Request, RequestError, ResolveRequest,
    RewindRequest, ScheduleRequest, SendRequest, SpawnRequest, UnscheduleRequest, WithdrawRequest,
};
use abide_conversation::Rejection;
use abide_conversation::approval::VoteRefusal;
use abide_conversation::command::{self, ChildEnded, Create, IfBusy};
use abide_registry::actor_view::{ActorDetails, ActorSummary};
use abide_registry::membership::{Member, MemberState};
use abide_registry::protocol::{CallOutcome, CallRequest, Envelope, LiveUpdate};

use crate::golden_types::{check, golden, internally_tagged};

#[test]
fn every_message_between_nodes_that_was_ever_sent_still_parses_the_same() {
    let types = [
        golden::<Envelope>("Envelope"),
        golden::<CallRequest>("Ask"),
        golden::<CallOutcome>("Answer"),
        golden::<LiveUpdate>("Told"),
        golden::<Signal>("Signal"),
        golden::<Delta>("Delta"),
        golden::<Request>("Request"),
        golden::<SendRequest>("SendRequest"),
        golden::<ResolveRequest>("ResolveRequest"),
        golden::<RememberRequest>("RememberRequest"),
        golden::<DispatchRequest>("DispatchRequest"),
        golden::<SpawnRequest>("SpawnRequest"),
        golden::<ForkRequest>("ForkRequest"),
        golden::<Create>("Create"),
        golden::<ChildEnded>("ChildEnded"),
        golden::<IfBusy>("IfBusy"),
        golden::<command::ResolutionAnswer>("CallAnswer"),
        golden::<IdempotencyKey>("RepeatKey"),
        internally_tagged::<Reply>("Reply", "reply"),
        golden::<AnswerOutcome>("AnswerOutcome"),
        golden::<Access>("Access"),
        golden::<Reach>("Reach"),
        golden::<CreateAccess>("CreateAccess"),
        golden::<VoteRefusal>("VoteRefusal"),
        golden::<RequestError>("Failure"),
        golden::<Rejection>("Rejection"),
        golden::<Inspection>("Inspection"),
        golden::<ActorDetails>("Sight"),
        golden::<ActorSummary>("Row"),
        golden::<Member>("Member"),
        golden::<MemberState>("MemberState"),
        golden::<ScheduleRequest>("ScheduleRequest"),
        golden::<UnscheduleRequest>("UnscheduleRequest"),
        golden::<ExtendRequest>("ExtendRequest"),
        golden::<WithdrawRequest>("WithdrawRequest"),
        golden::<RewindRequest>("RewindRequest"),
        golden::<RegenerateRequest>("RegenerateRequest"),
        golden::<command::Extension>("Extension"),
    ];
    check("wire.jsonl", &types);
}
