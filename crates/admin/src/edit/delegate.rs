//! Permissions of users who are not the administrator.

use super::{EditError, permit, run};
use crate::{Owner, identity};
use cenote::{Pool, PoolWriter};
use dsl::delegation;
use dsl::delegation::{Allow, Scope, Who};

/// Whom permissions are given to, and where they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whom.
    pub who: Vec<Who>,
    /// Where; sets and what is given at creation hold nowhere by themselves.
    pub scopes: Vec<Scope>,
    /// Permissions, and with `@` in front sets of them. To be taken back: none means all.
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

/// The permissions that hold at a dataset: its own first, then those of the datasets above, nearest first.
/// Datasets without any are left out.
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

/// Gives permissions at a dataset.
///
/// # Errors
/// [`EditError::Refused`] if one of them does not exist.
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

/// Takes permissions back at a dataset and, with `below`, at all below it.
///
/// # Errors
/// [`EditError::NoDataset`].
pub fn unallow(pool: &PoolWriter, name: &str, grant: &Grant, below: bool) -> Result<(), EditError> {
    permit::ask(pool, name, &["allow"])?;
    let own = Who::User(pool.caller().uid.into());
    if !pool.caller().is_admin() && grant.who.iter().any(|who| *who != own) {
        // Others only give back what they have.
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

/// Who gives permissions has them himself. Nobody has a set: what it says may become more later, so only the
/// administrator gives one.
fn ask(pool: &PoolWriter, name: &str, grant: &Grant) -> Result<(), EditError> {
    let mut needed = vec!["allow"];
    needed.extend(grant.permissions.iter().map(String::as_str));
    permit::ask(pool, name, &needed)
}

fn note(ctx: &mut dsl::TaskCtx<'_>, what: &str, dir: &dsl::Dir, text: String) -> Result<(), dsl::DslError> {
    let Some(head) = dir.head()? else { return Ok(()) };
    ctx.note(what, Some((dir.name(), head.id())), text);
    Ok(())
}

/// The number of a user or group, who is given by name or by number.
pub fn owner_id(owner: Owner, name: &str) -> Option<u64> {
    identity::parse(owner, name).and_then(|(domain, id)| domain.is_none().then_some(id))
}
