//! The permission gate, which every call passes, whether a model made it or a user dispatched it.
//! It applies the lists, then the phase, then the tool's own approval; the first decisive rule
//! wins. See `reference/permissions.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::approval::{self, SubjectId};
use abide_conversation::permission::{Ceiling, Decision, Network, PermissionPhase, Verdict};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::{Call, RunningDispatch};
use abide_conversation::{CallArgs, State, Timestamp};
use data_encoding::HEXLOWER;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Run;
use super::call_scope::CallScope;
use crate::definition::Builtin;
use crate::definition::{Approval, Target, Tool};
use crate::definition::{Definition, Permissions};
use crate::expressions::schema::Schema;
use crate::hooks::tool_use::ApprovalDemand;

/// Decides about the calls of one conversation in its current state.
#[derive(Clone, Debug)]
pub struct Gate {
    definition: Arc<Definition>,
    ceiling: Option<Ceiling>,
    planning: Option<bool>,
    /// The approvers' decisions that have not expired.
    remembered: Vec<RememberedDecision>,
    metadata: Map<String, Value>,
    owner: Option<String>,
    /// Those who led to this conversation, if it is a child.
    inherited_requesters: BTreeSet<SubjectId>,
}

/// Permission to run one call with exactly these arguments. A grant is made only from a verdict of
/// the gate that was read back from the journal, or from a later verdict on changed arguments of a
/// call that has a grant already.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    tool: String,
    args: CallArgs,
    phase: PermissionPhase,
    /// Whether a person approved the call, now or by a remembered decision.
    approved: bool,
}

impl Gate {
    /// The gate of a conversation under this revision of its agent's definition.
    pub fn new(definition: Arc<Definition>, state: &State) -> Self {
        let ceiling = state.parent.as_ref().map(|parent| parent.ceiling.clone());
        Self {
            definition,
            ceiling,
            planning: state.planning_override,
            remembered: Vec::new(),
            metadata: state.metadata.clone(),
            owner: state.participants.owner.clone(),
            inherited_requesters: state.requesters_with(None),
        }
    }

    /// Adds the remembered decisions that are valid at `now`: the conversation's own and its
    /// agent's.
    pub fn with_remembered(
        mut self,
        state: &State,
        agent_decisions: Vec<RememberedDecision>,
        now: Timestamp,
    ) -> Self {
        let all = state.decisions.values().cloned().chain(agent_decisions);
        self.remembered = all.filter(|decision| now < decision.expires_at).collect();
        self
    }

    /// Decides about a call of a tool; the verdict names the rule that decided.
    pub fn decide(&self, tool: &Tool, args: &Value, scope: &CallScope) -> Verdict {
        let decided_early =
            self.hard_denial(tool, args).or_else(|| self.decide_by_phase(tool, args));
        let (decision, rule) = decided_early.unwrap_or_else(|| match &tool.approval {
            Approval::Auto => (Decision::Allow, "approval: auto"),
            Approval::Required => (Decision::Ask, "approval: requires_approval"),
            Approval::When(condition) => {
                if condition.is_true_or_fails(tool.condition_values(condition, args, scope)) {
                    (Decision::Ask, "approval: when")
                } else {
                    (Decision::Allow, "approval: when")
                }
            }
        });
        let verdict = self.verdict(decision, rule, tool, args);
        if decided_early.is_none() && decision == Decision::Ask && !tool.strict {
            self.apply_remembered(tool, args, scope, verdict)
        } else {
            verdict
        }
    }

    /// Decides about a call that a hook wants approved. That tightens a verdict, and never loosens
    /// one: an approver's remembered decision does not answer the hook, and a denial stays.
    pub(crate) fn decide_asking(
        &self,
        tool: &Tool,
        args: &Value,
        scope: &CallScope,
        question: Option<&ApprovalDemand>,
    ) -> Verdict {
        let verdict = self.decide(tool, args, scope);
        match (question, verdict.decision) {
            (Some(question), Decision::Allow) => {
                self.verdict(Decision::Ask, &question.rule(), tool, args)
            }
            (Some(_) | None, Decision::Allow | Decision::Ask | Decision::Deny) => verdict,
        }
    }

    /// Replaces a verdict that asks by an approver's remembered decision about such a call, if
    /// there is one. A denial wins over an approval.
    fn apply_remembered(
        &self,
        tool: &Tool,
        args: &Value,
        scope: &CallScope,
        verdict: Verdict,
    ) -> Verdict {
        if self.remembered.is_empty() {
            return verdict;
        }
        let action = tool.action_fingerprint();
        let exact = exact_fingerprint(&tool.name, args);
        let own = scope.identity.iter().flat_map(|identity| approval::requesters(identity));
        let requesters = self.inherited_requesters.iter().cloned().chain(own).collect();
        let quorum = tool.approval_policy(scope.identity.is_some()).map_or(0, |it| it.quorum);
        let applies = |decision: &&RememberedDecision| {
            decision.matches(&tool.name, &action, &exact) && decision.covers(&requesters, quorum)
        };
        let matching = self.remembered.iter().filter(applies);
        let Some(remembered) = matching.min_by_key(|decision| decision.approved) else {
            return verdict;
        };
        Verdict {
            decision: if remembered.approved { Decision::Allow } else { Decision::Deny },
            rule: format!("remembered: {}", remembered.id),
            by: Some(remembered.by.clone()),
            approvals: if remembered.approved { remembered.voters.clone() } else { Vec::new() },
            ..verdict
        }
    }

    /// Decides about arguments that an approver edited. The approval covers them, but the lists and
    /// the phase still apply.
    pub fn recheck_edited(&self, tool: &Tool, args: &Value) -> Verdict {
        self.recheck(tool, args, "approval: edited")
    }

    /// Decides about arguments that middleware changed. If no person approved the call and the new
    /// arguments would need an approval, the call is denied: a run in progress cannot wait for a
    /// person.
    pub fn recheck_changed(
        &self,
        tool: &Tool,
        args: &Value,
        grant: &Grant,
        scope: &CallScope,
    ) -> Verdict {
        let needs_approval =
            !grant.approved && self.decide(tool, args, scope).decision == Decision::Ask;
        if needs_approval {
            self.verdict(Decision::Deny, "middleware: needs an approval", tool, args)
        } else {
            self.recheck(tool, args, "middleware")
        }
    }

    fn recheck(&self, tool: &Tool, args: &Value, rule: &'static str) -> Verdict {
        let (decision, rule) = self.hard_denial(tool, args).unwrap_or((Decision::Allow, rule));
        self.verdict(decision, rule, tool, args)
    }

    /// The denial by a hook, which names this rule.
    pub(crate) fn deny(&self, tool: &Tool, args: &Value, rule: &str) -> Verdict {
        self.verdict(Decision::Deny, rule, tool, args)
    }

    fn verdict(&self, decision: Decision, rule: &str, tool: &Tool, args: &Value) -> Verdict {
        let (rule, phase) = (rule.to_owned(), self.phase());
        let fingerprint = fingerprint(&tool.name, args);
        Verdict { decision, rule, phase, fingerprint, by: None, approvals: Vec::new() }
    }

    /// The scope of a run, for deciding about its arguments again.
    pub(super) fn scope(&self, run: &Run) -> CallScope {
        CallScope {
            conversation: run.conversation.local(),
            principal: run.principal.clone(),
            identity: run.identity.clone(),
            owner: self.owner.clone(),
            assigns: run.assigns.clone(),
            metadata: self.metadata.clone(),
        }
    }

    /// The definition of the conversation's agent.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Whether the lists and the current phase let the tool run at all.
    pub fn may_run(&self, tool: &Tool) -> bool {
        self.hard_denial(tool, &Value::Null).is_none()
    }

    /// Whether the lists let the tool run at all.
    pub fn is_listed(&self, tool: &Tool) -> bool {
        self.blocking_list(tool).is_none()
    }

    /// The list that forbids the tool, if one does.
    fn blocking_list(&self, tool: &Tool) -> Option<&'static str> {
        let Permissions { allowed_tools, disallowed_tools, .. } = &self.definition.permissions;
        let inherited = self.ceiling.as_ref();
        // A list that names a built-in tool also covers it under another name.
        let builtin = tool.builtin().map(Builtin::name);
        let named = |list: &BTreeSet<String>| {
            list.contains(&tool.name) || builtin.is_some_and(|name| list.contains(name))
        };
        if named(disallowed_tools) || inherited.is_some_and(|it| named(&it.disallowed_tools)) {
            return Some("disallowed_tools");
        }
        let mut lists =
            allowed_tools.iter().chain(inherited.into_iter().flat_map(|it| &it.allowed_tools));
        lists.any(|list| !named(list)).then_some("allowed_tools")
    }

    /// The denial that no approval can lift: by a list, or by the `plan` phase.
    fn hard_denial(&self, tool: &Tool, args: &Value) -> Option<(Decision, &'static str)> {
        if let Some(list) = self.blocking_list(tool) {
            return Some((Decision::Deny, list));
        }
        let planning = self.phase() == PermissionPhase::Plan;
        // A child that plans because its parent does cannot leave the plan by itself.
        let inherited_plan = exits_plan(tool, args) && self.base_phase() == PermissionPhase::Plan;
        (planning && (!tool.is_allowed_in_plan() || inherited_plan))
            .then_some((Decision::Deny, "phase: plan"))
    }

    /// What the phase decides before the tool's own approval counts.
    fn decide_by_phase(&self, tool: &Tool, args: &Value) -> Option<(Decision, &'static str)> {
        match self.phase() {
            PermissionPhase::BypassPermissions => {
                Some((Decision::Allow, "phase: bypass_permissions"))
            }
            PermissionPhase::Trusted => Some((Decision::Allow, "phase: trusted")),
            PermissionPhase::AcceptEdits if tool.is_accepted_with_edits() => {
                Some((Decision::Allow, "phase: accept_edits"))
            }
            PermissionPhase::Plan if exits_plan(tool, args) && self.starts_in_plan() => {
                Some((Decision::Ask, "phase: plan"))
            }
            PermissionPhase::Plan | PermissionPhase::Default | PermissionPhase::AcceptEdits => None,
        }
    }

    /// Updates the gate after an allowed call, for the calls after it in the same message: planning
    /// begins at once.
    pub fn advance(&mut self, tool: &Tool, args: &Value, verdict: &Verdict) {
        let enters = tool.builtin() == Some(Builtin::PlanMode) && args["action"] == "enter";
        if enters && verdict.decision == Decision::Allow {
            self.planning = Some(true);
        }
    }

    /// The phase that holds now.
    pub fn phase(&self) -> PermissionPhase {
        if self.planning.unwrap_or(self.starts_in_plan()) {
            PermissionPhase::Plan
        } else {
            self.base_phase()
        }
    }

    /// The phase that applies outside of planning.
    pub fn base_phase(&self) -> PermissionPhase {
        let own = match self.definition.permissions.phase {
            PermissionPhase::Plan => PermissionPhase::Default,
            phase => phase,
        };
        self.ceiling.as_ref().map_or(own, |ceiling| own.min(ceiling.phase))
    }

    /// Whether the definition itself puts the conversation into plan mode.
    fn starts_in_plan(&self) -> bool {
        self.definition.permissions.phase == PermissionPhase::Plan
    }

    /// The hosts that may be fetched from although their addresses are not public.
    pub fn allowed_hosts(&self) -> BTreeSet<String> {
        let own = &self.definition.permissions.allowed_hosts;
        match &self.ceiling {
            Some(ceiling) => own.intersection(&ceiling.allowed_hosts).cloned().collect(),
            None => own.clone(),
        }
    }

    /// Where commands may connect to.
    pub fn network(&self) -> Network {
        let own = &self.definition.permissions.network;
        match &self.ceiling {
            Some(ceiling) => own.and(&ceiling.network()),
            None => own.clone(),
        }
    }

    /// The most that a child may do: no more than this conversation may do now, and no more than it
    /// might when the gate decided about the call that starts the child. `tools` restricts it to
    /// these tools.
    pub fn ceiling(&self, grant: &Grant, tools: Option<BTreeSet<String>>) -> Ceiling {
        let inherited = self.ceiling.clone().unwrap_or_default();
        let Permissions { allowed_tools, disallowed_tools, .. } = &self.definition.permissions;
        let lists = inherited.allowed_tools.into_iter().chain(allowed_tools.clone()).chain(tools);
        let (network, network_ports) = self.network().into_fields();
        Ceiling {
            phase: self.phase().min(grant.phase),
            allowed_tools: lists.collect(),
            disallowed_tools: &inherited.disallowed_tools | disallowed_tools,
            allowed_hosts: self.allowed_hosts(),
            network,
            network_ports,
        }
    }
}

impl Grant {
    /// The grant of a call of the open turn that the gate or an approver allowed with its current
    /// arguments.
    pub fn of_call(call: &Call) -> Option<Self> {
        let grant = Self::new(call.permit()?, &call.tool, &call.args)?;
        Some(Self { approved: grant.approved || call.approved, ..grant })
    }

    /// The grant of a user's dispatch. A dispatch that needed an approval was started by that
    /// approval.
    pub fn of_dispatch(run: &RunningDispatch) -> Option<Self> {
        let verdict = run.verdict.as_ref().filter(|verdict| verdict.decision != Decision::Deny)?;
        Self::new(verdict, &run.tool, &run.input)
    }

    fn new(verdict: &Verdict, tool: &str, args: &CallArgs) -> Option<Self> {
        let (tool, args) = (tool.to_owned(), args.clone());
        let phase = verdict.phase;
        let approved = verdict.decision == Decision::Ask || verdict.by.is_some();
        (verdict.fingerprint == fingerprint(&tool, &args)).then_some(Self {
            tool,
            args,
            phase,
            approved,
        })
    }

    /// The tool that may run.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The arguments that it may run with.
    pub fn args(&self) -> &Value {
        &self.args
    }

    /// Consumes the grant and returns its arguments.
    pub(super) fn into_args(self) -> Value {
        self.args.into_value()
    }

    /// Fills in the defaults of the tool's parameters.
    pub(super) fn with_defaults(self, parameters: &Schema) -> Self {
        if !parameters.has_defaults() {
            return self;
        }
        Self { args: parameters.fill_defaults(self.args.into_value()).into(), ..self }
    }

    /// The grant for other arguments of the same call, if the gate allows them. It never widens
    /// what a child may do.
    pub(super) fn for_changed_args(&self, verdict: &Verdict, args: &CallArgs) -> Option<Self> {
        let verdict = Some(verdict).filter(|verdict| verdict.decision == Decision::Allow)?;
        let grant = Self::new(verdict, &self.tool, args)?;
        Some(Self { phase: grant.phase.min(self.phase), approved: self.approved, ..grant })
    }

    #[cfg(test)]
    pub(super) fn for_test(tool: &str, args: Value) -> Self {
        let phase = PermissionPhase::Default;
        Self { tool: tool.to_owned(), args: args.into(), phase, approved: false }
    }
}

fn exits_plan(tool: &Tool, args: &Value) -> bool {
    tool.builtin() == Some(Builtin::PlanMode) && args["action"] == "exit"
}

/// The fingerprint of a remembered decision ([`RememberedDecision::fingerprint`]); it does not
/// depend on the order of the arguments' keys.
pub(crate) fn exact_fingerprint(tool: &str, args: &Value) -> String {
    let mut digest = Sha256::new();
    digest.update(tool);
    digest.update([0]);
    let canonical = serde_json_canonicalizer::to_vec(args);
    // A number without a canonical form still has a JSON text.
    let json = canonical.or_else(|_| serde_json::to_vec(args)).unwrap_or_default();
    digest.update(json);
    hex(digest)
}

fn hex(digest: Sha256) -> String {
    HEXLOWER.encode(&digest.finalize())
}

/// See [`Verdict::fingerprint`].
fn fingerprint(tool: &str, args: &Value) -> String {
    let mut digest = Sha256::new();
    digest.update(tool);
    digest.update([0]);
    // Writing a JSON value never fails.
    digest.update(serde_json::to_vec(args).unwrap_or_default());
    HEXLOWER.encode(&digest.finalize()[..8])
}

impl Tool {
    /// The built-in tool that this entry configures, if any.
    pub fn builtin(&self) -> Option<Builtin> {
        match self.target() {
            Some(Target::Builtin(builtin)) => Some(*builtin),
            Some(
                Target::Http(_)
                | Target::Native(_)
                | Target::Agent(_)
                | Target::Mcp(_)
                | Target::Queue(_),
            )
            | None => None,
        }
    }

    /// A fingerprint of what the tool runs and of when it asks, which a remembered decision is bound
    /// to: who decided knew both.
    pub(crate) fn action_fingerprint(&self) -> String {
        let run = match self.target() {
            None => String::new(),
            Some(Target::Http(endpoint)) => format!("http {}", endpoint.url),
            Some(Target::Native(name)) => format!("native {name}"),
            Some(Target::Builtin(builtin)) => format!("builtin {}", builtin.name()),
            Some(Target::Agent(name)) => format!("agent {name}"),
            Some(Target::Mcp(pick)) => format!("mcp {} {}", pick.server.key, pick.tool),
            Some(Target::Queue(target)) => format!("queue {}", target.queue),
        };
        let approval = match &self.approval {
            Approval::Auto => "auto",
            Approval::Required => "requires_approval",
            Approval::When(condition) => condition.source(),
        };
        let action = format!("{:?} {run}", self.executor());
        let digest = Sha256::new().chain_update(action).chain_update([0]).chain_update(approval);
        hex(match &self.approvers {
            Some(approvers) => digest.chain_update([0]).chain_update(format!("{approvers:?}")),
            None => digest,
        })
    }

    /// Whether it may run in the phase `plan`.
    fn is_allowed_in_plan(&self) -> bool {
        self.read_only || self.builtin().is_some_and(Builtin::is_allowed_in_plan)
    }

    /// Whether it needs no approval in the phase `accept_edits`.
    fn is_accepted_with_edits(&self) -> bool {
        self.builtin().is_some_and(Builtin::is_accepted_with_edits)
    }
}

#[cfg(test)]
mod tests;
