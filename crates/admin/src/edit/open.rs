//! Opening pools for the verbs that change datasets.

use super::{EditError, pool_of};
use crate::Search;
use crate::change::{self, ChangeError};
use ::pool::space::Class;
use cenote::{Pool, PoolWriter};

/// Finds the pool that a dataset's name begins with, and opens it for change. Everybody may: each verb asks for the
/// permissions of the caller.
///
/// # Errors
/// [`EditError::NoPool`]; [`EditError::Open`] if it can only be read or somebody else has it.
pub fn open_pool(search: &Search, dataset: &str) -> Result<PoolWriter, EditError> {
    let pool = pool_of(dataset);
    change::open_writer(search, pool).map_err(|error| match error {
        ChangeError::NoPool => EditError::NoPool { pool: pool.to_owned() },
        other => EditError::Open(other),
    })
}

/// Whether a pool has vdevs for metadata and small blocks.
pub fn has_special(pool: &Pool) -> bool {
    let spa = pool.spa();
    pool.spa().tree().tops().any(|(vdev, _)| spa.class_of(vdev).is_ok_and(|class| class == Class::Special))
}
