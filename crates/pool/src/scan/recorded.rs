//! Scrubs, resilvers, removals and expansions as the MOS records them
//! (docs/on-disk/22-mos-dsl.md, section 12; docs/on-disk/14-vdevs.md, sections 4, 6, 9).

use crate::directory::{self, Directory};
use crate::error::PoolError;
use crate::view::Pool;
use dmu::zap::Zap;
use format::names;
use format::scan::{CondensingPhys, ErrorScrubPhys, RemovalPhys, ScanFunc, ScanPhys};
use format::{ObjectId, Txg, VdevId};

/// The last or running expansion of a RAID-Z vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expansion {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// State: 1: running; 2: finished; 3: canceled.
    pub state: u64,
    /// Time when it began, in seconds since 1970.
    pub start_time: u64,
    /// Time when it ended, in seconds since 1970.
    pub end_time: u64,
    /// Bytes copied so far.
    pub copied: u64,
}

/// The last or current removal of a top-level vdev.
pub(crate) fn removal(directory: &Directory) -> Result<Option<RemovalPhys>, PoolError> {
    let words = directory.words(names::directory::REMOVING)?;
    if words.is_empty() {
        return Ok(None);
    }
    RemovalPhys::from_words(&words).map(Some).map_err(PoolError::decode(directory::OBJECT))
}

impl Pool {
    /// The last or current scrub or resilver; `None`: there was none.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn scan(&self) -> Result<Option<ScanPhys>, PoolError> {
        let words = self.directory().words(names::directory::SCAN)?;
        let scan = ScanPhys::from_words(&words).map_err(PoolError::decode(directory::OBJECT))?;
        Ok((scan.func != ScanFunc::None).then_some(scan))
    }

    /// The last or current scrub of the error log; `None`: there was none.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn error_scrub(&self) -> Result<Option<ErrorScrubPhys>, PoolError> {
        let words = self.directory().words(names::directory::ERROR_SCRUB)?;
        let scrub = ErrorScrubPhys::from_words(&words).map_err(PoolError::decode(directory::OBJECT))?;
        Ok((scrub.func != ScanFunc::None).then_some(scrub))
    }

    /// The newest txg such that a scrub has read all blocks born up to it.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub(crate) fn last_scrubbed_txg(&self) -> Result<Txg, PoolError> {
        Ok(Txg(self.directory().number(names::directory::LAST_SCRUBBED_TXG)?.unwrap_or(0)))
    }

    /// The last or current removal of a top-level vdev.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn removal(&self) -> Result<Option<RemovalPhys>, PoolError> {
        removal(self.directory())
    }

    /// The mapping that is being condensed; `None`: there is none.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn condensing(&self) -> Result<Option<CondensingPhys>, PoolError> {
        let words = self.directory().words(names::directory::CONDENSING_INDIRECT)?;
        if words.is_empty() {
            return Ok(None);
        }
        CondensingPhys::from_words(&words).map(Some).map_err(PoolError::decode(directory::OBJECT))
    }

    /// The last or current RAID-Z expansion of each vdev that had one.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn expansions(&self) -> Result<Vec<Expansion>, PoolError> {
        let mut all = Vec::new();
        for (vdev, node) in self.tree().tops().filter(|(_, node)| node.zap_top != ObjectId(0)) {
            let zap = Zap::open(&self.mos().object(node.zap_top)?)?;
            let number = |key: &str| -> Result<u64, PoolError> {
                Ok(zap.lookup(key.as_bytes())?.and_then(|entry| entry.u64()).unwrap_or(0))
            };
            let state = number(names::top_vdev::EXPAND_STATE)?;
            if state != 0 {
                let (start_time, end_time) =
                    (number(names::top_vdev::EXPAND_START_TIME)?, number(names::top_vdev::EXPAND_END_TIME)?);
                all.push(Expansion {
                    vdev,
                    state,
                    start_time,
                    end_time,
                    copied: number(names::top_vdev::EXPAND_BYTES_COPIED)?,
                });
            }
        }
        Ok(all)
    }
}
