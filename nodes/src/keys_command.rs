//! `abide keys`: makes API keys. Nothing is stored.

use abide_conversation::identity::{Role, Tenant};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::access::api_key::NewKey;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Prints a new API key, and the line for the keys of the --auth file that lets it in
    Generate(Generate),
}

/// What a new key is to be.
#[derive(Debug, Args)]
pub struct Generate {
    /// What the key may do: user, approver, backend, author, tenant-admin, auditor, operator
    #[arg(long, value_name = "ROLES", value_delimiter = ',', default_value = "operator",
        value_parser = role)]
    pub roles: Vec<Role>,
    /// The tenant that the key belongs to; an operator belongs to none
    #[arg(long, value_name = "TENANT", value_parser = tenant)]
    pub tenant: Option<Tenant>,
}

impl Generate {
    /// The key, and its line for the file, which is YAML.
    pub fn run(&self) -> Result<String, String> {
        let key = NewKey::generate().ok_or("the system has no randomness")?;
        let mut entry = json!({"id": key.id, "sha256": key.digest().to_string()});
        let is_operator = self.roles.iter().all(|role| *role == Role::Operator);
        if !is_operator || self.tenant.is_some() {
            entry["tenant"] = json!(self.tenant.clone().unwrap_or_default());
        }
        entry["roles"] = json!(self.roles);
        Ok(format!("{}\n- {entry}", key.text))
    }
}

fn role(name: &str) -> Result<Role, String> {
    let known = || format!("must be one of {}", Role::ALL.map(Role::as_str).join(", "));
    Role::parse(name).ok_or_else(known)
}

fn tenant(name: &str) -> Result<Tenant, String> {
    Tenant::parse(name).map_err(|error| error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::access::document::AuthDocument;

    #[test]
    fn the_line_of_a_new_key_lets_it_in() {
        let acme = Tenant::parse("acme").unwrap();
        for (roles, tenant, expected) in [
            (vec![Role::Operator], None, None),
            (vec![Role::User, Role::Approver], None, Some(Tenant::default())),
            (vec![Role::Backend], Some(acme.clone()), Some(acme)),
        ] {
            let printed = Generate { roles: roles.clone(), tenant }.run().unwrap();
            let (key, line) = printed.split_once('\n').unwrap();
            let file = format!("tenants: {{default: {{}}, acme: {{}}}}\nkeys:\n{line}\n");
            let document = AuthDocument::parse(&file, &mut |_| unreachable!()).unwrap();
            let (_, known) = document.keys.first_key_value().unwrap();
            assert!(known.digest.matches(key));
            assert_eq!((&known.tenant, known.roles.len()), (&expected, roles.len()));
        }
    }
}
