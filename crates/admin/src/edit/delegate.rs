//! Delegated permissions of users other than the administrator.

use super::{EditError, permit, run};
use crate::{Owner, identity};
use cenote::{Pool, PoolWriter};
use dsl::delegation;
use dsl::delegation::{Allow, Scope, Who};

/// A grant: who gets which permissions, and where they are in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The users, groups and other grantees.
    pub who: Vec<Who>,
    /// Where the permissions are in force. Empty for permission sets and create-time permissions.
    pub scopes: Vec<Scope>,
    /// Permissions, and names of permission sets with `@`. When permissions are revoked, an empty list means all.
    pub permissions: Vec<String>,
}

impl Grant {
    fn entries(&self) -> Vec<(Who, Scope)> {
        let scopes = |who: &Who| match who {
            Who::Set(_) | Who::CreateTime => vec![Scope::NotApplicable],
            _ => self.scopes.clone(),
        };
        self.who.iter().flat_map(|who| scopes(who).into_iter().map(|scope| (who.clone(), scope))).collect()
    }
}

/// The permissions in force at a dataset: its own, then those of its ancestors, nearest first. Datasets without
/// permissions are left out.
///
/// # Errors
/// [`EditError::NoDataset`].
pub(crate) fn allowed(pool: &Pool, name: &str) -> Result<Vec<(String, Vec<Allow>)>, EditError> {
    let dir = pool.dsl().dir(name)?;
    let mut all = Vec::new();
    for at in dir.ancestry() {
        let own = at.allowed()?;
        if !own.is_empty() {
            all.push((at.name().to_owned(), own));
        }
    }
    Ok(all)
}

/// Grants permissions at a dataset.
///
/// # Errors
/// [`EditError::Refused`] if a permission does not exist; [`EditError::Denied`].
pub fn allow(pool: &PoolWriter, name: &str, grant: &Grant) -> Result<(), EditError> {
    ask(pool, name, grant)?;
    let (name, grant) = (name.to_owned(), grant.clone());
    run(pool, move |ctx| {
        let dir = ctx.dsl()?.dir(&name)?;
        let permissions: Vec<&str> = grant.permissions.iter().map(String::as_str).collect();
        grant.who.iter().try_for_each(|who| delegation::change::check(who, &permissions))?;
        for (who, scope) in grant.entries() {
            delegation::change::allow(ctx.m(), dir.id(), &who, scope, &permissions)?;
            let sorted = |sets: bool| permissions.iter().filter(move |p| p.starts_with('@') == sets);
            for (sets, permission) in sorted(false).map(|p| (false, p)).chain(sorted(true).map(|p| (true, p)))
            {
                let text = format!("{} {permission}", delegation::change::key(&who, scope, sets));
                note(ctx, "permission update", &dir, text)?;
            }
        }
        Ok(())
    })
}

/// Revokes permissions at a dataset and, with `below`, at its descendants.
///
/// # Errors
/// [`EditError::NoDataset`] if the dataset does not exist; [`EditError::Denied`].
pub fn unallow(pool: &PoolWriter, name: &str, grant: &Grant, below: bool) -> Result<(), EditError> {
    permit::ask(pool, name, &["allow"])?;
    let own = Who::User(pool.caller().uid.into());
    if !pool.caller().is_admin() && grant.who.iter().any(|who| *who != own) {
        // Other users can only revoke their own permissions.
        return Err(EditError::Denied);
    }
    let (name, grant) = (name.to_owned(), grant.clone());
    run(pool, move |ctx| {
        let permissions: Vec<&str> = grant.permissions.iter().map(String::as_str).collect();
        grant.who.iter().try_for_each(|who| delegation::change::check(who, &permissions))?;
        let mut dirs = vec![ctx.dsl()?.dir(&name)?];
        while let Some(dir) = dirs.pop() {
            if below {
                dirs.extend(dir.children()?);
            }
            for (who, scope) in grant.entries() {
                let named = (!permissions.is_empty()).then_some(permissions.as_slice());
                delegation::change::unallow(ctx.m(), dir.id(), &who, scope, named)?;
                if permissions.is_empty() {
                    for sets in [false, true] {
                        note(ctx, "permission who remove", &dir, delegation::change::key(&who, scope, sets))?;
                    }
                }
                for permission in &permissions {
                    let key = delegation::change::key(&who, scope, permission.starts_with('@'));
                    note(ctx, "permission remove", &dir, format!("{key} {permission}"))?;
                }
            }
        }
        Ok(())
    })
}

/// Checks that the caller has the permissions to grant. Only the administrator may grant a permission set, because
/// it may be extended later, and `allow`, because every user who has it could hand it on without end.
fn ask(pool: &PoolWriter, name: &str, grant: &Grant) -> Result<(), EditError> {
    if !pool.caller().is_admin() && grant.permissions.iter().any(|permission| permission == "allow") {
        return Err(EditError::Denied);
    }
    let mut needed = vec!["allow"];
    needed.extend(grant.permissions.iter().map(String::as_str));
    permit::ask(pool, name, &needed)
}

fn note(ctx: &mut dsl::TaskCtx<'_>, what: &str, dir: &dsl::Dir, text: String) -> Result<(), dsl::DslError> {
    let Some(head) = dir.head()? else { return Ok(()) };
    ctx.note(what, Some((dir.name(), head.id())), text);
    Ok(())
}

/// Id of a user or group given by name or by id.
pub fn owner_id(owner: Owner, name: &str) -> Option<u64> {
    identity::parse(owner, name).and_then(|(domain, id)| domain.is_none().then_some(id))
}
