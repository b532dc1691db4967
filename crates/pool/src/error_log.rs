//! The error log: blocks that could not be read
//! (docs/on-disk/22-mos-dsl.md, section 11).

use crate::error::PoolError;
use crate::view::Pool;
use dmu::traverse::Bookmark;
use dmu::zap::Zap;
use dmu::{DmuError, ObjSet};
use dsl::{Dataset, DslError};
use format::errlog::ErrorKey;
use format::names;
use format::{BlockPtr, Level, ObjectId, Txg};
use std::collections::HashSet;
use std::sync::Arc;

/// The two logs: errors found since the last scrub, and errors found by that scrub.
const LOGS: [&str; 2] = [names::directory::ERRLOG_LAST, names::directory::ERRLOG_SCRUB];

/// A block in the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoggedError {
    /// Head dataset in which the error was found, or the object set in a log without heads; 0: the MOS.
    pub dataset: ObjectId,
    /// Key of the block in the log.
    pub key: ErrorKey,
}

/// The present state of the block that an entry of the log names.
pub(crate) enum Now {
    /// The block, as the dataset has it now.
    Block(BlockPtr),
    /// The dataset now has another block there, or none.
    Gone,
    /// The dataset or a block above it cannot be read.
    Unknown,
}

/// Looks up the block that an entry of the log names in an object set.
pub(crate) fn block_in(set: &Arc<ObjSet>, entry: &LoggedError, level: u8) -> Now {
    let key = &entry.key;
    let object = match set.object(key.object) {
        Ok(object) => object,
        Err(DmuError::NoObject { .. }) => return Now::Gone,
        Err(_) => return Now::Unknown,
    };
    let found = if key.block.0 == Bookmark::SPILL {
        Ok(object.dnode().spill.unwrap_or(BlockPtr::HOLE))
    } else {
        object.block_ptr(Level(level), key.block)
    };
    match found {
        Ok(bp) if bp.is_hole() || key.birth.is_some_and(|birth| birth != bp.logical_birth()) => Now::Gone,
        Ok(bp) => Now::Block(bp),
        Err(_) => Now::Unknown,
    }
}

impl Pool {
    /// The datasets that have a block of the log: the head in which it was found, its snapshots, their
    /// clones, and the datasets that it is a clone of. Each head comes before its snapshots, the oldest of
    /// these first, each before its clones. A dataset counts as having the block if that cannot be
    /// determined. At most `left` of them are examined, which is counted down.
    ///
    /// `None`: unknown, because the log does not have the birth of the block, or there were too many
    /// datasets.
    pub fn carriers(&self, entry: &LoggedError, left: &mut usize) -> Option<Vec<Dataset>> {
        let birth = entry.key.birth?;
        let level = u8::try_from(entry.key.level).ok()?;
        let head = match self.dsl().dataset_by_object(entry.dataset) {
            Ok(head) => head,
            Err(DslError::Dmu(DmuError::Zio { .. })) => return None,
            // The dataset was destroyed.
            Err(_) => return Some(Vec::new()),
        };
        let mut stack = vec![self.oldest_with(head, birth).ok()?];
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        while let Some(dataset) = stack.pop() {
            if !seen.insert(dataset.id()) {
                continue;
            }
            *left = left.checked_sub(1)?;
            let now = dataset.open_objset().map_or(Now::Unknown, |set| block_in(&set, entry, level));
            let has_it = !matches!(now, Now::Gone);
            let next = match dataset.is_snapshot() {
                true if has_it => dataset.clones(),
                true => Ok(Vec::new()),
                false => dataset.snapshots(),
            };
            let may_have_it = |next: &Dataset| !next.is_snapshot() || next.phys().creation_txg >= birth;
            stack.extend(next.ok()?.into_iter().filter(may_have_it).rev());
            if has_it {
                found.push(dataset);
            }
        }
        Some(found)
    }

    /// The oldest head in the clone chain of a head that has a block of this birth.
    fn oldest_with(&self, mut head: Dataset, birth: Txg) -> Result<Dataset, DslError> {
        let mut seen = HashSet::new();
        while let Some(origin) = head.dir().phys().origin
            && seen.insert(head.id())
        {
            let origin = self.dsl().dataset_by_object(origin)?;
            if origin.phys().creation_txg < birth {
                break;
            }
            let Some(above) = origin.dir().head()? else { break };
            head = above;
        }
        Ok(head)
    }

    /// The blocks in the error log, each once, by dataset and place.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn error_log(&self) -> Result<Vec<LoggedError>, PoolError> {
        let by_head = self.features().is_active("head_errlog");
        let mut all = Vec::new();
        for name in LOGS {
            let Some((id, zap)) = self.directory().zap(name)? else { continue };
            if by_head {
                self.heads(id, &zap, &mut all)?;
            } else {
                for entry in zap.entries() {
                    let key = ErrorKey::parse(entry?.name()).map_err(PoolError::decode(id))?;
                    all.push(LoggedError { dataset: key.objset.unwrap_or_default(), key });
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn heads(&self, id: ObjectId, heads: &Zap, all: &mut Vec<LoggedError>) -> Result<(), PoolError> {
        for entry in heads.entries() {
            let entry = entry?;
            let name = std::str::from_utf8(entry.name()).ok();
            let head = name.and_then(|n| u64::from_str_radix(n, 16).ok());
            let (Some(head), Some(list)) = (head, entry.u64()) else {
                return Err(PoolError::Corrupt {
                    object: id,
                    why: "an entry of the error log names no dataset",
                });
            };
            let list = ObjectId(list);
            for entry in Zap::open(&self.mos().object(list)?)?.entries() {
                let key = ErrorKey::parse_by_head(entry?.name()).map_err(PoolError::decode(list))?;
                all.push(LoggedError { dataset: ObjectId(head), key });
            }
        }
        Ok(())
    }
}
