//! Several answers to one conversation. Each stands by itself, and those that may commit do so in one
//! commit.

use abide_conversation::Transition;

use super::not_done::{HookQuestions, NotDone};
use super::{HookVerdict, LiveConversation};
use crate::access::Access;
use crate::request::{AnswerOutcome, Reply, Request, RequestContext, RequestError, ResolveRequest};

/// What the answers result in, before the commit.
struct Folded {
    transition: Transition,
    outcomes: Vec<AnswerOutcome>,
}

impl LiveConversation {
    /// Resolves the calls in the order of the answers, and commits what they result in.
    pub(super) async fn resolve_all(
        &mut self,
        answers: Vec<ResolveRequest>,
        hook_verdicts: Vec<HookVerdict>,
        context: &RequestContext,
    ) -> Result<Reply, NotDone> {
        let before = self.state.clone();
        let folded = self.fold_answers(answers, hook_verdicts, &context.access).await;
        self.state = before;
        let Folded { transition, outcomes } = folded?;
        let reply = Reply::ResolvedAll { outcomes };
        let responses = self.responses(&context.idempotency_keys, &reply);
        self.commit(transition, responses).await.map_err(NotDone::Unknown)?;
        Ok(reply)
    }

    /// Decides each answer on the state that those before it result in. Until the caller sets it
    /// back, `self.state` is ahead of the journal.
    async fn fold_answers(
        &mut self,
        answers: Vec<ResolveRequest>,
        verdicts: Vec<HookVerdict>,
        access: &Access,
    ) -> Result<Folded, NotDone> {
        // All events of a commit have one time: whoever reads the journal knows by it what was one commit.
        let at = self.services.clock.now();
        let mut events = Vec::new();
        let mut outcomes = Vec::with_capacity(answers.len());
        let mut questions = Vec::new();
        for answer in &answers {
            let verdict = HookVerdict::on_call(&verdicts, &answer.call);
            let proposed = self.resolve(answer.clone(), verdict, access).await;
            let decided = proposed.and_then(|proposal| {
                let transition = self.decide_at(at, proposal.action)?;
                Ok((transition, proposal.reply))
            });
            outcomes.push(match decided {
                Ok((transition, reply)) => {
                    let outcome = outcome(reply(&transition.events));
                    events.extend(transition.events);
                    self.state = transition.state;
                    outcome
                }
                Err(NotDone::AsksHooks(asked)) => {
                    questions.extend(asked.questions);
                    continue;
                }
                Err(NotDone::Failed(error)) if is_about_the_answer(&error) => {
                    AnswerOutcome::Refused(error)
                }
                Err(error) => return Err(error),
            });
        }
        if !questions.is_empty() {
            let request = Box::new(Request::ResolveAll(answers));
            return Err(NotDone::AsksHooks(Box::new(HookQuestions {
                request,
                questions,
                verdicts,
            })));
        }
        Ok(Folded { transition: Transition { events, state: self.state.clone() }, outcomes })
    }
}

fn outcome(reply: Reply) -> AnswerOutcome {
    match reply {
        Reply::Recorded { votes, needed, seq } => AnswerOutcome::Recorded { votes, needed, seq },
        Reply::Resolved { seq } => AnswerOutcome::Resolved { seq },
        // A resolution has no other reply.
        other => AnswerOutcome::Refused(RequestError::Unavailable(format!("{other:?}"))),
    }
}

/// Whether the answer itself is refused, and would be again; else nothing is known of it yet, and
/// the whole request may be repeated.
fn is_about_the_answer(error: &RequestError) -> bool {
    match error {
        RequestError::Rejected(_)
        | RequestError::AgentMissing(_)
        | RequestError::Invalid { .. }
        | RequestError::ToolNotFound(_)
        | RequestError::ApprovalRequired(_)
        | RequestError::KeyReused(_)
        | RequestError::Forbidden { .. } => true,
        RequestError::Store(_)
        | RequestError::Lost
        | RequestError::Quarantined(_)
        | RequestError::Overloaded
        | RequestError::ChildrenRemain
        | RequestError::Unavailable(_) => false,
    }
}
