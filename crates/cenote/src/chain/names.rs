//! Names of datasets in streams, and in the pool of an index.

use super::error::ChainError;
use format::stream::Begin;
use std::path::Path;

/// Name of the pool if the datasets are of several pools, or one of them is the root of a pool.
pub(super) const OTHERWISE: &str = "streams";

/// Places of datasets: those of the pool whose name the index's pool has are at their own names, others below it.
pub(super) struct Names {
    pool: String,
}

impl Names {
    pub(super) fn new(pool: &str) -> Names {
        Names { pool: pool.to_owned() }
    }

    /// Name in the pool of a dataset that its sender calls `sent`.
    pub(super) fn placed(&self, sent: &str) -> String {
        match sent.split_once('/') {
            Some((pool, _)) if pool == self.pool => sent.to_owned(),
            _ => format!("{}/{sent}", self.pool),
        }
    }

    /// What the sender calls a dataset of the pool.
    pub(super) fn sent(&self, placed: &str) -> String {
        let below = placed.strip_prefix(OTHERWISE).and_then(|rest| rest.strip_prefix('/'));
        below.filter(|_| self.pool == OTHERWISE).unwrap_or(placed).to_owned()
    }
}

/// The name of the pool for these streams.
pub(super) fn pool_for<'b>(begins: impl Iterator<Item = &'b Begin>) -> String {
    let mut pool: Option<String> = None;
    for begin in begins {
        match dataset_of(begin).split_once('/') {
            Some((first, _)) if pool.as_deref().is_none_or(|pool| pool == first) => {
                pool = Some(first.to_owned())
            }
            _ => return OTHERWISE.to_owned(),
        }
    }
    pool.filter(|pool| pool::check_name(pool).is_ok()).unwrap_or_else(|| OTHERWISE.to_owned())
}

/// The dataset that a stream is of, as far as its name tells.
pub(super) fn dataset_of(begin: &Begin) -> String {
    let name = begin.name().split(|byte| *byte == b'@').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// A name for messages.
pub(super) fn shown(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

/// The dataset and the snapshot that a stream is of.
pub(super) fn split(begin: &Begin, file: &Path) -> Result<(String, String), ChainError> {
    let name = std::str::from_utf8(begin.name()).ok();
    let parts = name.and_then(|name| name.split_once('@'));
    let parts = parts.filter(|(dataset, snapshot)| !dataset.is_empty() && !snapshot.is_empty());
    match parts {
        Some((dataset, snapshot)) => Ok((dataset.to_owned(), snapshot.to_owned())),
        None => Err(ChainError::BadName { file: file.to_owned(), name: shown(begin.name()) }),
    }
}
