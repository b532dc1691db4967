//! Running the task of a verb in a pool that is open for change.

use super::error::EditError;
use ::pool::PoolError;
use cenote::{Pool, PoolWriter};
use dsl::{Caller, DslError, TaskCtx};
use std::sync::Arc;

/// Tries of a task that had to wait for the next txg.
const AGAIN_MAX: usize = 16;

/// The datasets of the last txg that is on disk.
pub(crate) fn view(pool: &PoolWriter) -> Result<Pool, EditError> {
    Ok(pool.view()?)
}

/// In whose name a verb runs, as far as limits on the number of datasets care.
fn caller(pool: &PoolWriter) -> Caller {
    let caller = pool.caller();
    if caller.is_admin() { Caller::Root } else { Caller::User(caller.delegate()) }
}

/// Runs a task in syncing context; one that cannot be done in a txg is tried again in the next.
pub(crate) fn run<T: Send + 'static>(
    pool: &PoolWriter,
    task: impl Fn(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + Sync + 'static,
) -> Result<T, EditError> {
    let (task, caller, pool) = (Arc::new(task), caller(pool), pool.live());
    for _ in 1..AGAIN_MAX {
        let once = Arc::clone(&task);
        match pool.run_as(caller.clone(), move |ctx| once(ctx)) {
            Err(PoolError::Dsl(error)) if error.is_for_now() => {}
            done => return Ok(done?),
        }
    }
    Ok(pool.run_as(caller, move |ctx| task(ctx))?)
}
