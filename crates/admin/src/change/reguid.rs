//! `zpool reguid`.

use super::ChangeError;
use super::pool_open::{listed_now, note_again, noting, open_for_change, record, warn_of};
use crate::{Imported, Search};
use cenote::PoolWriter;
use format::PoolGuid;

/// Gives a pool this guid, or a new one; it stays listed where it was.
///
/// # Errors
/// If another pool or a vdev has this guid, or the pool cannot be changed.
pub(crate) fn reguid_pool(
    search: &Search,
    name: &str,
    guid: Option<PoolGuid>,
    command: &str,
) -> Result<(), ChangeError> {
    if let Some(wanted) = guid
        && Imported::load()?.by_guid(wanted).is_some()
    {
        return Err(ChangeError::Property("the guid is already in use".to_owned()));
    }
    let pool = open_for_change(search, name)?;
    if guid == Some(PoolGuid(0)) {
        return Err(ChangeError::Property("invalid argument for this pool operation".to_owned()));
    }
    let changed = pool.live().reguid(guid).map_err(ChangeError::from);
    let outcome = changed.and_then(|_| record(&pool, command));
    if outcome.is_ok() {
        warn_of(note_named(&pool, name));
    }
    let closed = pool.close();
    outcome?;
    Ok(closed?)
}

/// Notes a pool by its name, with the guid that it has now: another command may have changed it again.
fn note_named(pool: &PoolWriter, name: &str) -> Result<(), ChangeError> {
    let _noting = noting();
    let config = listed_now(pool)?;
    let imported = Imported::load()?;
    imported.by_name(name).map_or(Ok(()), |known| note_again(known, &known.settings, config))
}
