//! How long the conversations of tenants are kept, by the file that is in force at the moment of a
//! sweep.

use std::time::Duration;

use abide_conversation::Tenant;
use abide_registry::retention::RetentionRules;

use super::control::AccessControl;
use super::guard::Guard;

impl RetentionRules for AccessControl {
    fn tenants(&self) -> Vec<Tenant> {
        self.guard().map_or_else(|| vec![Tenant::default()], Guard::tenants)
    }

    fn retention(&self, tenant: &Tenant) -> Option<Duration> {
        self.guard()?.tenant_settings(tenant)?.retention
    }

    fn deleted(&self, tenant: &Tenant) {
        AccessControl::deleted(self, tenant);
    }
}
