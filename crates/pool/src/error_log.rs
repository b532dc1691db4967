//! The error log: blocks that could not be read
//! (docs/on-disk/22-mos-dsl.md, section 11).

use crate::{Pool, PoolError};
use dmu::zap::Zap;
use format::ObjectId;
use format::errlog::ErrorKey;

/// The two logs: what was found since the last scrub, and what that scrub found.
const LOGS: [&str; 2] = ["errlog_last", "errlog_scrub"];

/// A block in the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoggedError {
    /// The head dataset that it was found in, or the object set in a log without heads; 0: the MOS.
    pub dataset: ObjectId,
    /// The block.
    pub key: ErrorKey,
}

impl Pool {
    /// The blocks in the error log, each once, by dataset and place.
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
