//! Renaming.

use super::{EditError, permit, run};
use cenote::PoolWriter;
use dsl::rename as task;

/// Renames a file system or volume with all below it.
///
/// # Errors
/// Why it cannot be renamed; nothing has changed then.
pub fn rename(pool: &PoolWriter, from: &str, to: &str) -> Result<(), EditError> {
    permit::ask(pool, from, &["rename", "mount"])?;
    permit::ask_new(pool, to, &[])?;
    let (from, to) = (from.to_owned(), to.to_owned());
    run(pool, move |ctx| task::rename(ctx, &from, &to))
}

/// Renames a snapshot; `to` is the part of the new name behind the `@`. With `below`, also the snapshots of the
/// same name of all datasets below.
///
/// # Errors
/// Why it cannot be renamed; nothing has changed then.
pub fn rename_snapshot(pool: &PoolWriter, from: &str, to: &str, below: bool) -> Result<(), EditError> {
    permit::ask(pool, from, &["rename", "create", "mount"])?;
    let (from, to) = (from.to_owned(), to.to_owned());
    run(pool, move |ctx| task::rename_snapshot(ctx, &from, &to, below))
}
