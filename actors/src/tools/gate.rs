//! The gate that every call passes, model-called or dispatched: the lists, then the phase, then the
//! tool's own approval. The first decisive answer wins.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::permission::{Ceiling, Decision, PermissionPhase, Verdict};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::{Call, RunningDispatch};
use abide_conversation::{State, Timestamp};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::builtin::Builtin;
use super::call_scope::CallScope;
use super::runner::Run;
use super::schema::Schema;
use super::tool::{Approval, Target, Tool};
use crate::agent::{Definition, Permissions};

/// Judges the calls of one conversation, as it is now.
#[derive(Clone, Debug)]
pub struct Gate {
    definition: Arc<Definition>,
    ceiling: Option<Ceiling>,
    planning: Option<bool>,
    /// Approvers' decisions that hold now.
    remembered: Vec<RememberedDecision>,
    metadata: Map<String, Value>,
}

/// Leave to run one call, with these arguments and no others. Only a verdict of the gate, read back
/// from the journal, becomes one; or one about other arguments of a call that has leave already.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    tool: String,
    args: Value,
    phase: PermissionPhase,
    /// Whether a person said yes to the call, now or before.
    approved: bool,
}

impl Gate {
    /// The gate of a conversation under this revision of its agent.
    pub fn new(definition: Arc<Definition>, state: &State) -> Self {
        let ceiling = state.parent.as_ref().map(|parent| parent.ceiling.clone());
        Self {
            definition,
            ceiling,
            planning: state.planning_override,
            remembered: Vec::new(),
            metadata: state.metadata.clone(),
        }
    }

    /// The same, with the decisions that hold at `now`: the conversation's and its agent's.
    pub fn recalling(
        mut self,
        state: &State,
        agents: Vec<RememberedDecision>,
        now: Timestamp,
    ) -> Self {
        let all = state.decisions.values().cloned().chain(agents);
        self.remembered = all.filter(|decision| now < decision.expires_at).collect();
        self
    }

    /// Decides about a call of a tool, and names the rule that decided.
    pub fn judge(&self, tool: &Tool, args: &Value, scope: &CallScope) -> Verdict {
        let before = self.refusal(tool, args).or_else(|| self.by_phase(tool, args));
        let (decision, rule) = before.unwrap_or_else(|| match &tool.approval {
            Approval::Auto => (Decision::Allow, "approval: auto"),
            Approval::Required => (Decision::Ask, "approval: requires_approval"),
            Approval::When(condition) => match condition.asks(tool.values(args, scope)) {
                true => (Decision::Ask, "approval: when"),
                false => (Decision::Allow, "approval: when"),
            },
        });
        let verdict = self.verdict(decision, rule, tool, args);
        match before.is_none() && decision == Decision::Ask && !tool.strict {
            true => self.recalled(tool, args, verdict),
            false => verdict,
        }
    }

    /// What an approver decided before about such a call; a denial wins.
    fn recalled(&self, tool: &Tool, args: &Value, asks: Verdict) -> Verdict {
        if self.remembered.is_empty() {
            return asks;
        }
        let (does, exactly) = (tool.does(), exact_fingerprint(&tool.name, args));
        let decides =
            |decision: &&RememberedDecision| decision.matches(&tool.name, &does, &exactly);
        let found = self.remembered.iter().filter(decides);
        let Some(decided) = found.min_by_key(|decision| decision.approved) else { return asks };
        Verdict {
            decision: if decided.approved { Decision::Allow } else { Decision::Deny },
            rule: format!("remembered: {}", decided.id),
            by: Some(decided.by.clone()),
            ..asks
        }
    }

    /// The same for arguments that an approver edited: his approval covers them, the lists and the
    /// phase still hold.
    pub fn judge_edited(&self, tool: &Tool, args: &Value) -> Verdict {
        self.judge_again(tool, args, "approval: edited")
    }

    /// The same for arguments that middleware changed. Where no person approved the call, one that
    /// would need it now is refused: there is nobody to ask in the middle of a run.
    pub fn judge_changed(
        &self,
        tool: &Tool,
        args: &Value,
        grant: &Grant,
        scope: &CallScope,
    ) -> Verdict {
        let asks = !grant.approved && self.judge(tool, args, scope).decision == Decision::Ask;
        match asks {
            true => self.verdict(Decision::Deny, "middleware: needs an approval", tool, args),
            false => self.judge_again(tool, args, "middleware"),
        }
    }

    fn judge_again(&self, tool: &Tool, args: &Value, rule: &'static str) -> Verdict {
        let (decision, rule) = self.refusal(tool, args).unwrap_or((Decision::Allow, rule));
        self.verdict(decision, rule, tool, args)
    }

    /// The refusal of a hook, which it decides by this rule.
    pub(crate) fn deny(&self, tool: &Tool, args: &Value, rule: &str) -> Verdict {
        self.verdict(Decision::Deny, rule, tool, args)
    }

    fn verdict(&self, decision: Decision, rule: &str, tool: &Tool, args: &Value) -> Verdict {
        let (rule, phase) = (rule.to_owned(), self.phase());
        Verdict { decision, rule, phase, fingerprint: fingerprint(&tool.name, args), by: None }
    }

    /// Where a run happens, for what judges its arguments anew.
    pub(super) fn scope(&self, run: &Run) -> CallScope {
        CallScope {
            conversation: run.conversation.clone(),
            principal: run.principal.clone(),
            assigns: run.assigns.clone(),
            metadata: self.metadata.clone(),
        }
    }

    /// The definition whose calls it judges.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Whether the lists and the phase let the tool run at all.
    pub fn offers(&self, tool: &Tool) -> bool {
        self.refusal(tool, &Value::Null).is_none()
    }

    /// Whether the lists let the tool run at all.
    pub fn lists(&self, tool: &Tool) -> bool {
        self.unlisted(tool).is_none()
    }

    /// The list that keeps the tool from running, if one does.
    fn unlisted(&self, tool: &Tool) -> Option<&'static str> {
        let Permissions { allowed_tools, disallowed_tools, .. } = &self.definition.permissions;
        let above = self.ceiling.as_ref();
        // A built-in tool under another name is the same tool.
        let builtin = tool.builtin().map(Builtin::name);
        let named = |list: &BTreeSet<String>| {
            list.contains(&tool.name) || builtin.is_some_and(|name| list.contains(name))
        };
        if named(disallowed_tools) || above.is_some_and(|it| named(&it.disallowed_tools)) {
            return Some("disallowed_tools");
        }
        let mut lists =
            allowed_tools.iter().chain(above.into_iter().flat_map(|it| &it.allowed_tools));
        lists.any(|list| !named(list)).then_some("allowed_tools")
    }

    /// What no approval changes: the lists, and a phase in which nothing is changed.
    fn refusal(&self, tool: &Tool, args: &Value) -> Option<(Decision, &'static str)> {
        if let Some(list) = self.unlisted(tool) {
            return Some((Decision::Deny, list));
        }
        let planning = self.phase() == PermissionPhase::Plan;
        // What began in a child's plan because its parent plans ends with the parent's.
        let stuck = leaves_plan(tool, args) && self.granted() == PermissionPhase::Plan;
        (planning && (!tool.changes_nothing() || stuck)).then_some((Decision::Deny, "phase: plan"))
    }

    /// What the phase decides without looking at the tool's own approval.
    fn by_phase(&self, tool: &Tool, args: &Value) -> Option<(Decision, &'static str)> {
        match self.phase() {
            PermissionPhase::BypassPermissions => {
                Some((Decision::Allow, "phase: bypass_permissions"))
            }
            PermissionPhase::Trusted => Some((Decision::Allow, "phase: trusted")),
            PermissionPhase::AcceptEdits if tool.is_accepted_with_edits() => {
                Some((Decision::Allow, "phase: accept_edits"))
            }
            PermissionPhase::Plan if leaves_plan(tool, args) && self.began_in_plan() => {
                Some((Decision::Ask, "phase: plan"))
            }
            PermissionPhase::Plan | PermissionPhase::Default | PermissionPhase::AcceptEdits => None,
        }
    }

    /// What follows a call that was let through, for the calls after it in the same message:
    /// planning begins at once.
    pub fn follow(&mut self, tool: &Tool, args: &Value, verdict: &Verdict) {
        let enters = tool.builtin() == Some(Builtin::PlanMode) && args["action"] == "enter";
        if enters && verdict.decision == Decision::Allow {
            self.planning = Some(true);
        }
    }

    /// The phase that holds now.
    pub fn phase(&self) -> PermissionPhase {
        match self.planning.unwrap_or(self.began_in_plan()) {
            true => PermissionPhase::Plan,
            false => self.granted(),
        }
    }

    /// The phase that holds outside of planning.
    pub fn granted(&self) -> PermissionPhase {
        let own = match self.definition.permissions.phase {
            PermissionPhase::Plan => PermissionPhase::Default,
            phase => phase,
        };
        self.ceiling.as_ref().map_or(own, |ceiling| own.min(ceiling.phase))
    }

    /// Whether plan mode was there before the conversation could choose it.
    fn began_in_plan(&self) -> bool {
        self.definition.permissions.phase == PermissionPhase::Plan
    }

    /// The hosts, else refused, that may be fetched from.
    pub fn hosts(&self) -> BTreeSet<String> {
        let own = &self.definition.permissions.allowed_hosts;
        match &self.ceiling {
            Some(ceiling) => own.intersection(&ceiling.allowed_hosts).cloned().collect(),
            None => own.clone(),
        }
    }

    /// Whether commands may use the network.
    pub fn network(&self) -> bool {
        let above = self.ceiling.as_ref().is_none_or(|ceiling| ceiling.network);
        self.definition.permissions.network && above
    }

    /// What a child may do at most: what may be done here, and might when the call that asks it was
    /// judged; of these tools if they are named.
    pub fn ceiling(&self, grant: &Grant, tools: Option<BTreeSet<String>>) -> Ceiling {
        let above = self.ceiling.clone().unwrap_or_default();
        let Permissions { allowed_tools, disallowed_tools, .. } = &self.definition.permissions;
        let lists = above.allowed_tools.into_iter().chain(allowed_tools.clone()).chain(tools);
        Ceiling {
            phase: self.phase().min(grant.phase),
            allowed_tools: lists.collect(),
            disallowed_tools: &above.disallowed_tools | disallowed_tools,
            allowed_hosts: self.hosts(),
            network: self.network(),
        }
    }
}

impl Grant {
    /// Of a call of the open turn that the gate, or an approver, let through with the arguments that
    /// it has now.
    pub fn of_call(call: &Call) -> Option<Self> {
        let grant = Self::new(call.permit()?, &call.tool, &call.args)?;
        Some(Self { approved: grant.approved || call.approved, ..grant })
    }

    /// Of a user's own call. One that had to be approved started with the approval.
    pub fn of_dispatch(run: &RunningDispatch) -> Option<Self> {
        let verdict = run.gate.as_ref().filter(|verdict| verdict.decision != Decision::Deny)?;
        Self::new(verdict, &run.tool, &run.input)
    }

    fn new(verdict: &Verdict, tool: &str, args: &Value) -> Option<Self> {
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

    /// What it may run with.
    pub fn args(&self) -> &Value {
        &self.args
    }

    /// What it may run with, and no leave any more.
    pub(super) fn into_args(self) -> Value {
        self.args
    }

    /// The same, with what the arguments leave to the tool's defaults.
    pub(super) fn filled(self, parameters: &Schema) -> Self {
        Self { args: parameters.fill(self.args), ..self }
    }

    /// Leave for other arguments of the same call, if the gate lets them through. What a child may
    /// do never grows by it.
    pub(super) fn changed(&self, verdict: &Verdict, args: &Value) -> Option<Self> {
        let verdict = Some(verdict).filter(|verdict| verdict.decision == Decision::Allow)?;
        let grant = Self::new(verdict, &self.tool, args)?;
        Some(Self { phase: grant.phase.min(self.phase), approved: self.approved, ..grant })
    }

    #[cfg(test)]
    pub(super) fn of(tool: &str, args: Value) -> Self {
        let phase = PermissionPhase::Default;
        Self { tool: tool.to_owned(), args, phase, approved: false }
    }
}

fn leaves_plan(tool: &Tool, args: &Value) -> bool {
    tool.builtin() == Some(Builtin::PlanMode) && args["action"] == "exit"
}

/// See [`Remembered::fingerprint`]: the same arguments have the same, in whatever order.
pub(crate) fn exact_fingerprint(tool: &str, args: &Value) -> String {
    let mut digest = Sha256::new();
    digest.update(tool);
    digest.update([0]);
    let canonical = serde_json_canonicalizer::to_vec(args);
    // A number that has no canonical form has a text, as all JSON does.
    let json = canonical.or_else(|_| serde_json::to_vec(args)).unwrap_or_default();
    digest.update(json);
    hex(digest)
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// See [`Verdict::fingerprint`].
fn fingerprint(tool: &str, args: &Value) -> String {
    let mut digest = Sha256::new();
    digest.update(tool);
    digest.update([0]);
    // JSON values always have a text.
    digest.update(serde_json::to_vec(args).unwrap_or_default());
    let digest = digest.finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl Tool {
    /// The built-in tool that it is, if it is one.
    pub fn builtin(&self) -> Option<Builtin> {
        match &self.target {
            Some(Target::Builtin(builtin)) => Some(*builtin),
            Some(Target::Http(_) | Target::Native(_) | Target::Agent(_) | Target::Mcp(_))
            | None => None,
        }
    }

    /// See [`Remembered::does`].
    pub(crate) fn does(&self) -> String {
        let run = match &self.target {
            None => String::new(),
            Some(Target::Http(endpoint)) => format!("http {}", endpoint.url),
            Some(Target::Native(name)) => format!("native {name}"),
            Some(Target::Builtin(builtin)) => format!("builtin {}", builtin.name()),
            Some(Target::Agent(name)) => format!("agent {name}"),
            Some(Target::Mcp(pick)) => format!("mcp {} {}", pick.server.key, pick.tool),
        };
        hex(Sha256::new().chain_update(format!("{:?} {run}", self.executor)))
    }

    /// Whether it may run while the conversation plans.
    fn changes_nothing(&self) -> bool {
        self.read_only || self.builtin().is_some_and(Builtin::changes_nothing)
    }

    /// Whether it needs no approval in the phase `accept_edits`.
    fn is_accepted_with_edits(&self) -> bool {
        self.builtin().is_some_and(Builtin::is_accepted_with_edits)
    }
}

#[cfg(test)]
mod tests;
