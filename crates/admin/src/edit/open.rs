//! Opens pools for the verbs that change datasets.

use super::{EditError, pool_of};
use crate::Search;
use crate::change::{self, ChangeError};
use ::pool::space::Class;
use cenote::{Pool, PoolWriter};

/// Opens the pool of a dataset for change. Every caller may do this: each verb checks the caller's permissions
/// itself.
///
/// # Errors
/// [`EditError::NoPool`]; [`EditError::Open`] if the pool is read-only or another process has it open.
pub fn open_pool(search: &Search, dataset: &str) -> Result<PoolWriter, EditError> {
    let pool = pool_of(dataset);
    change::open_writer(search, pool).map_err(|error| match error {
        ChangeError::NoPool => EditError::NoPool { pool: pool.to_owned() },
        other => EditError::Open(other),
    })
}

/// True if the pool has special vdevs (metadata and small blocks).
pub(crate) fn has_special(pool: &Pool) -> bool {
    let spa = pool.spa();
    pool.spa().tree().tops().any(|(vdev, _)| spa.class_of(vdev).is_ok_and(|class| class == Class::Special))
}
