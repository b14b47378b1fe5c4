//! A call of one of the store's scripts.

use super::text;

/// The file name of a script, without its ending.
pub type ScriptName = &'static str;

macro_rules! scripts {
    ($($name:literal)+) => {
        [$(($name, include_str!(concat!("../../../src/store/redis/lua/", $name, ".lua")))),+]
    };
}

const SCRIPTS: [(ScriptName, &str); 45] = scripts!(
    "agent" "api_key" "api_keys_used" "append" "audit" "barrier" "blob" "claim" "claim_and_load"
    "decision" "declare_dead" "delete" "enter" "load" "operation" "page" "release" "remove_blob"
    "renew" "reserve" "reset_deaths" "webhooks" "notice_head" "settle_notice" "drop_notices"
    "redeliver_notice" "schedule" "add_revision" "drop_revisions" "relist" "rebuild" "rewrite"
    "rename_usage" "replace_operation" "rollout" "rekey" "stage" "hold_blob" "name_blobs"
    "refer_blobs" "dropped_names" "drop_blobs" "end_holds" "lost_names"
    "replace_decision"
);

/// The script with this source, which libraries may precede.
pub fn name_of(source: &str) -> ScriptName {
    let found = SCRIPTS.iter().find(|(_, ending)| source.ends_with(ending));
    found.map(|(name, _)| *name).expect("every script of the store is listed above")
}

/// A call, with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub script: ScriptName,
    pub keys: Vec<Vec<u8>>,
    pub args: Vec<Vec<u8>>,
}

impl Call {
    /// The argument at this position, counted from 0.
    pub fn arg(&self, at: usize) -> &str {
        text(&self.args[at])
    }

    /// How many events stand before those of a call of `append`, and how many it has. Those of an import
    /// are aside before, and their number is the last argument.
    pub fn appended(&self) -> (u64, u64) {
        let is_import = self.keys.iter().any(|key| text(key).contains(":staged:"));
        let before = if is_import { self.args.len() - 1 } else { 4 };
        let [before, count] = [before, 6].map(|at| self.arg(at).parse().unwrap());
        (before, count)
    }
}
