//! Holding snapshots, and letting them go.

use super::operation::{self, Operation};
use super::{EditError, permit, run};
use cenote::{Pool, PoolWriter};
use dsl::DslError;
use dsl::{TaskCtx, destroy, holds};
use format::nvlist::{NvList, NvValue};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Why snapshots cannot be held or released: the name of the first that is to blame, and the reason.
type Blame = Box<(String, EditError)>;

/// The snapshot of this name, and of the same name of all datasets below; `None` where there is none.
///
/// # Errors
/// [`EditError::NoDataset`] if there is no such dataset.
pub fn with_name_below(pool: &Pool, dataset: &str, snapshot: &str) -> Result<Vec<String>, EditError> {
    let mut found = Vec::new();
    for name in super::with_descendants(pool, dataset)? {
        let Some(head) = pool.dsl().dir(&name)?.head()? else { continue };
        if head.snapshot(snapshot)?.is_some() {
            found.push(format!("{name}@{snapshot}"));
        }
    }
    Ok(found)
}

/// Holds snapshots of one pool, all or none.
///
/// # Errors
/// The first snapshot that cannot be held, and why; none is held then.
pub fn hold(pool: &PoolWriter, names: &[String], tag: &str) -> Result<(), Blame> {
    ask(pool, names, "hold")?;
    let operation = Operation::begin("hold");
    each(pool, names, tag, false, |ctx, name, tag, is_check| {
        let id = ctx.dsl()?.dataset(name)?.id();
        if is_check {
            return holds::check_hold(ctx.m(), id, tag, false);
        }
        holds::hold(ctx.m(), id, tag, ctx.now(), false)?;
        ctx.note("hold", Some((name, id)), format!("tag={tag} temp=0 refs={}", holds::count(ctx.m(), id)?));
        Ok(())
    })?;
    let mut list = NvList::new();
    names.iter().for_each(|name| list.push(name, tag));
    record(pool, operation, names, operation::pair("holds", list))
}

fn record(pool: &PoolWriter, operation: Operation, names: &[String], input: NvList) -> Result<(), Blame> {
    let first = || names.first().cloned().unwrap_or_default();
    operation.done(pool, input).map_err(|error| Box::new((first(), error)))
}

/// Releases holds on snapshots of one pool. Those that are not held by this tag are passed over, unless none
/// is. A snapshot that was to be destroyed with its last hold is destroyed.
///
/// # Errors
/// The first snapshot that cannot be released, and why; none is released then.
pub fn release(pool: &PoolWriter, names: &[String], tag: &str) -> Result<(), Blame> {
    ask(pool, names, "release")?;
    let operation = Operation::begin("release");
    each(pool, names, tag, true, |ctx, name, tag, is_check| {
        let id = ctx.dsl()?.dataset(name)?.id();
        if is_check {
            holds::check_release(ctx.m(), id, tag)?;
            return destroy::check_deferred(ctx, id, name);
        }
        let is_due = holds::release(ctx.m(), id, tag)?;
        let left = holds::count(ctx.m(), id)?;
        ctx.note("release", Some((name, id)), format!("tag={tag} refs={left}"));
        if is_due {
            destroy::destroy_if_deferred(ctx, id)?;
        }
        Ok(())
    })?;
    let mut list = NvList::new();
    names.iter().for_each(|name| list.push(name, operation::pair(tag, NvValue::Boolean)));
    record(pool, operation, names, list)
}

/// Asks for a permission at the dataset of each snapshot.
fn ask(pool: &PoolWriter, names: &[String], permission: &str) -> Result<(), Blame> {
    let blame = |name: &String, error| Box::new((name.clone(), error));
    names
        .iter()
        .try_for_each(|name| permit::ask(pool, name, &[permission]).map_err(|error| blame(name, error)))
}

/// Does something to each snapshot, in one transaction group, if it can be done to all; or, if `lenient`, to
/// one at least.
fn each(
    pool: &PoolWriter,
    names: &[String],
    tag: &str,
    lenient: bool,
    step: impl Fn(&mut TaskCtx<'_>, &str, &str, bool) -> Result<(), DslError> + Send + Sync + 'static,
) -> Result<(), Blame> {
    let mut seen = HashSet::new();
    let names: Vec<String> = names.iter().filter(|name| seen.insert(name.as_str())).cloned().collect();
    let tag = tag.to_owned();
    // A task that fails has changed nothing, and a name twice would find its first hold in the way of the second. Which
    // snapshot is to blame stands here.
    let blamed = Arc::new(Mutex::new(names.first().cloned().unwrap_or_default()));
    let slot = Arc::clone(&blamed);
    let outcome = run(pool, move |ctx| {
        let mut blame = None;
        let mut fit = Vec::new();
        for name in &names {
            match step(ctx, name, &tag, true) {
                Ok(()) => fit.push(name),
                // It would be done otherwise: nobody may believe that it was.
                Err(error @ (DslError::Busy { .. } | DslError::Again { .. })) => {
                    name.clone_into(&mut slot.lock().unwrap_or_else(PoisonError::into_inner));
                    return Err(error);
                }
                Err(error) => blame = blame.or(Some((name.clone(), error))),
            }
        }
        if let Some((name, error)) = blame.filter(|_| !lenient || fit.is_empty()) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = name;
            return Err(error);
        }
        fit.iter().try_for_each(|name| step(ctx, name, &tag, false))
    });
    outcome.map_err(|error| {
        let name = blamed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::new((name, error))
    })
}
