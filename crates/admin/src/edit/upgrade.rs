//! File system versions: listing and upgrading.

use super::EditError;
use super::values::VERSION;
use super::{run, view};
use cenote::{DatasetKind, Pool, PoolWriter};
use dsl::Cost;
use dsl::prop as stored;
use serde::{Deserialize, Serialize};
use zpl::upgrade_filesystem;

/// A file system and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemVersion {
    /// Full name of the file system.
    pub name: String,
    /// Its version, 1 to 5.
    pub version: u64,
}

/// The file systems at and below a name, with their versions.
///
/// # Errors
/// [`EditError::NoDataset`].
pub(crate) fn filesystem_versions(
    pool: &Pool,
    name: &str,
    below: bool,
) -> Result<Vec<FilesystemVersion>, EditError> {
    let names = if below { super::with_descendants(pool, name)? } else { vec![name.to_owned()] };
    let mut found = Vec::new();
    for name in names {
        let dataset = pool.dataset(&name)?;
        if dataset.kind()? != DatasetKind::Filesystem {
            if below {
                continue;
            }
            return Err(EditError::WrongKind { name });
        }
        let version = stored::get(dataset.dsl(), "version")?.and_then(|v| v.raw.number()).unwrap_or(VERSION);
        found.push(FilesystemVersion { name, version });
    }
    Ok(found)
}

/// Raises the version of a file system to the newest. Its files keep their format until they are changed.
///
/// # Errors
/// [`EditError::Unsupported`] if `version` is neither the newest nor the present version.
pub(super) fn upgrade(pool: &PoolWriter, name: &str, version: u64) -> Result<(), EditError> {
    let pool_view = view(pool)?;
    let found = filesystem_versions(&pool_view, name, false)?;
    let Some(old) = found.first().map(|fs| fs.version).filter(|old| *old != version) else { return Ok(()) };
    if version != VERSION {
        return Err(EditError::Unsupported { what: "a version of file systems other than the newest" });
    }
    let id = pool_view.dataset(name)?.dsl().id();
    let head = pool.live().heads().open(id)?;
    {
        let tx = head.begin(Cost::metadata())?;
        upgrade_filesystem(&head.set, pool.live().env(), &tx).map_err(cenote::Error::from)?;
    }
    drop(head);
    let name = name.to_owned();
    run(pool, move |ctx| {
        ctx.note("upgrade", Some((&name, id)), format!("from {old} to {version}"));
        Ok(())
    })
}
