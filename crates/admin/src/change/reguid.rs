//! Changes the guid of a pool (`zpool reguid`).

use super::ChangeError;
use super::pool_open::{listed_now, note_again, noting, open_for_change, record, warn_of};
use crate::{Imported, Search};
use cenote::PoolWriter;
use format::PoolGuid;

/// Gives a pool the given guid, or a random one. The pool stays in its cache file.
///
/// # Errors
/// Another pool or a vdev has this guid, or the pool cannot be changed.
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

/// Updates the entry of a pool, found by its name, with its present guid, which another command may have changed
/// since.
fn note_named(pool: &PoolWriter, name: &str) -> Result<(), ChangeError> {
    let _noting = noting();
    let config = listed_now(pool)?;
    let imported = Imported::load()?;
    imported.by_name(name).map_or(Ok(()), |known| note_again(known, &known.settings, config))
}
