//! `zpool reguid`.

use super::pool_open::{listed_now, note, open_for_change};
use super::{ChangeError, cache_error, cache_path};
use crate::admin::{Imported, Search, session};
use ::pool::live::CacheFile;
use format::PoolGuid;

/// Gives a pool this guid, or a new one; it stays listed where it was.
///
/// # Errors
/// If another pool or a vdev has this guid, or the pool cannot be changed.
pub fn reguid_pool(
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
    let old = pool.guid();
    let outcome = (|| {
        pool.live().reguid(guid)?;
        pool.record(command)?;
        listed_now(&pool)
    })();
    let closed = pool.close();
    let mut config = outcome?;
    closed?;
    let imported = Imported::load()?;
    let Some(known) = imported.by_guid(old) else { return Ok(()) };
    if known.settings.temporary {
        config.name.clone_from(&known.name);
    }
    let forget = |file: CacheFile| file.take(old).map_err(|error| cache_error(&error));
    forget(CacheFile::at(cache_path()))?;
    forget(CacheFile::at(session::path()))?;
    if let Some(file) = known.settings.other_file() {
        forget(file)?;
    }
    note(&config, &known.settings)
}
