//! Versions of file systems.

use super::EditError;
use super::values::VERSION;
use super::view;
use crate::{DatasetKind, Pool};
use ::pool::live::LivePool;
use dsl::prop as stored;

/// A file system and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesystemVersion {
    /// Full name.
    pub name: String,
    /// 1 to 5.
    pub version: u64,
}

/// The file systems at and below a name, with their versions.
///
/// # Errors
/// [`EditError::NoDataset`].
pub fn filesystem_versions(
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

/// Raises the version of a file system.
///
/// # Errors
/// [`EditError::Unsupported`] if it does not have this version already.
pub(super) fn upgrade(pool: &LivePool, name: &str, version: u64) -> Result<(), EditError> {
    let found = filesystem_versions(&view(pool)?, name, false)?;
    if found.iter().all(|fs| fs.version == version) {
        return Ok(());
    }
    Err(EditError::Unsupported { what: "changing the version of a file system" })
}
