//! Destroying.

use super::operation::{self, Operation};
use super::{EditError, Partly, permit, run};
use cenote::PoolWriter;
use dsl::DslError;
use dsl::destroy;
use format::nvlist::{NvList, NvValue};

/// Datasets that are destroyed in one transaction group.
const BATCH: usize = 64;

/// Destroys snapshots, all or none; names that do not exist are passed over. With `defer`, those that are held
/// or have clones are destroyed with their last hold and clone.
///
/// # Errors
/// [`EditError::Refused`] with [`DslError::Held`] or [`DslError::HasClones`].
pub fn destroy_snapshots(pool: &PoolWriter, names: &[String], defer: bool) -> Result<(), EditError> {
    ask(pool, names)?;
    let (operation, wanted) = (Operation::begin("destroy_snaps"), names.to_vec());
    run(pool, move |ctx| destroy::destroy_snapshots(ctx, &wanted, defer))?;
    operation.done(pool, input(names, defer))
}

/// What destroying snapshots is given.
pub(super) fn input<'n>(names: impl IntoIterator<Item = &'n String>, defer: bool) -> NvList {
    let mut input = operation::pair("snaps", operation::names(names));
    if defer {
        input.push("defer", NvValue::Boolean);
    }
    input
}

/// Destroys datasets and snapshots, one after the other in this order; what has gone already is passed over.
///
/// # Errors
/// What was destroyed and what was not, if one of them cannot be.
pub fn destroy_all(pool: &PoolWriter, names: &[String]) -> Result<(), Partly> {
    let partly = |error| Partly { done: Vec::new(), left: names.to_vec(), error };
    ask(pool, names).map_err(partly)?;
    let mut done = 0;
    while let Some(rest) = names.get(done..).filter(|rest| !rest.is_empty()) {
        let batch: Vec<String> = rest.iter().take(BATCH).cloned().collect();
        let operation = Operation::begin("destroy_snaps");
        let outcome = run(pool, move |ctx| {
            for (index, name) in batch.iter().enumerate() {
                let one = ctx.step(|ctx| match name.contains('@') {
                    true => destroy::destroy_snapshots(ctx, std::slice::from_ref(name), false),
                    false => destroy::destroy(ctx, name),
                })?;
                match one {
                    // A clone takes a snapshot with it that was only waiting for that.
                    Ok(()) | Err(DslError::NotFound { .. }) => {}
                    Err(again @ DslError::Again { .. }) if index == 0 => return Err(again),
                    // The rest is tried in the next txg.
                    Err(DslError::Again { .. }) => return Ok((index, None)),
                    // What came before it stays done, and is on disk with this txg.
                    Err(error) => return Ok((index, Some(error))),
                }
            }
            Ok((batch.len(), None))
        });
        let error = match outcome {
            Ok((count, error)) => {
                let mut snapshots = rest.iter().take(count).filter(|name| name.contains('@')).peekable();
                let recorded = match snapshots.peek() {
                    Some(_) => operation.done(pool, input(snapshots, false)),
                    None => Ok(()),
                };
                done += count;
                match error.map(EditError::from).or(recorded.err()) {
                    Some(error) => error,
                    None => continue,
                }
            }
            Err(error) => error,
        };
        let (done, left) = names.split_at(done);
        return Err(Partly { done: done.to_vec(), left: left.to_vec(), error });
    }
    Ok(())
}

/// Asks for what destroying takes, at each dataset that is there.
pub(super) fn ask(pool: &PoolWriter, names: &[String]) -> Result<(), EditError> {
    let Some(permit) = permit::of(pool)? else { return Ok(()) };
    let allowed = names.iter().map(|name| permit.ask(name, &["destroy", "mount"]));
    allowed.filter(|asked| !matches!(asked, Err(EditError::NoDataset { .. }))).collect()
}
