//! Progress of long-running operations, stored as arrays of numbers in the MOS and in vdev ZAPs: scrub and
//! resilver, error scrub, sequential rebuild, device removal (docs/on-disk/14-vdevs.md, sections 6 and 9).
//!
//! Older software wrote shorter arrays: missing words count as zero. Longer arrays are refused.

use crate::{DecodeError, ObjectId, Txg, VdevId};

/// The function of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScanFunc {
    /// No scan was ever started.
    None,
    /// Scrub: every copy of every block is checked.
    Scrub,
    /// Resilver: restores missing data on devices.
    Resilver,
    /// Checks the blocks in the error log.
    ErrorScrub,
}

/// The state of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScanState {
    /// No scan was ever started.
    None,
    /// Running, or interrupted and to be resumed.
    Scanning,
    /// The scan has completed.
    Finished,
    /// The scan was cancelled.
    Canceled,
    /// An error scrub is running.
    ErrorScrubbing,
}

/// Flag: the scan is paused.
pub const SCAN_FLAG_PAUSED: u64 = 2;

fn func(id: u64) -> Result<ScanFunc, DecodeError> {
    Ok(match id {
        0 => ScanFunc::None,
        1 => ScanFunc::Scrub,
        2 => ScanFunc::Resilver,
        3 => ScanFunc::ErrorScrub,
        _ => return Err(DecodeError::field("scan", "function", id)),
    })
}

fn state(id: u64) -> Result<ScanState, DecodeError> {
    Ok(match id {
        0 => ScanState::None,
        1 => ScanState::Scanning,
        2 => ScanState::Finished,
        3 => ScanState::Canceled,
        4 => ScanState::ErrorScrubbing,
        _ => return Err(DecodeError::field("scan", "state", id)),
    })
}

/// The words, extended with zeros.
fn extend<const N: usize>(what: &'static str, words: &[u64]) -> Result<[u64; N], DecodeError> {
    if words.len() > N {
        return Err(DecodeError::field(what, "length", words.len() as u64));
    }
    let mut out = [0; N];
    for (slot, word) in out.iter_mut().zip(words) {
        *slot = *word;
    }
    Ok(out)
}

/// State of the scrub or resilver: `scan` in the MOS directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanPhys {
    /// What the scan does: scrub or resilver.
    pub func: ScanFunc,
    /// State of the scan.
    pub state: ScanState,
    /// Object id of the ZAP of datasets that are still to be visited.
    pub queue: ObjectId,
    /// Blocks born after this txg are examined.
    pub min_txg: Txg,
    /// Blocks born up to this txg are examined.
    pub max_txg: Txg,
    /// `min_txg` for the dataset that is being visited.
    pub current_min_txg: Txg,
    /// `max_txg` for the dataset that is being visited.
    pub current_max_txg: Txg,
    /// Seconds since 1970 of its start.
    pub start_time: u64,
    /// Seconds since 1970 of its end.
    pub end_time: u64,
    /// Number of bytes that the scan will examine.
    pub to_examine: u64,
    /// Number of bytes that the scan has examined.
    pub examined: u64,
    /// Number of bytes that the scan has skipped.
    pub skipped: u64,
    /// Number of bytes that were repaired or resilvered.
    pub processed: u64,
    /// Number of errors that were found.
    pub errors: u64,
    /// Classes of the dedup tables that are walked first.
    pub ddt_class_max: u64,
    /// Position in the dedup tables: class, type, checksum, cursor.
    pub ddt_bookmark: [u64; 4],
    /// Position of the scan: object set, object, level, block.
    pub bookmark: [u64; 4],
    /// The bits `SCAN_FLAG_…` of the scan.
    pub flags: u64,
}

impl ScanPhys {
    /// Number of 64-bit words of the stored array.
    pub const WORDS: usize = 24;

    /// Decodes the stored array of words.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if words are missing; [`DecodeError::Field`] for an unknown function or
    /// state.
    pub fn from_words(words: &[u64]) -> Result<ScanPhys, DecodeError> {
        let w: [u64; ScanPhys::WORDS] = extend("scan", words)?;
        Ok(ScanPhys {
            func: func(w[0])?,
            state: state(w[1])?,
            queue: ObjectId(w[2]),
            min_txg: Txg(w[3]),
            max_txg: Txg(w[4]),
            current_min_txg: Txg(w[5]),
            current_max_txg: Txg(w[6]),
            start_time: w[7],
            end_time: w[8],
            to_examine: w[9],
            examined: w[10],
            skipped: w[11],
            processed: w[12],
            errors: w[13],
            ddt_class_max: w[14],
            ddt_bookmark: [w[15], w[16], w[17], w[18]],
            bookmark: [w[19], w[20], w[21], w[22]],
            flags: w[23],
        })
    }

    /// Encodes the array of words.
    pub fn to_words(&self) -> [u64; ScanPhys::WORDS] {
        let [d0, d1, d2, d3] = self.ddt_bookmark;
        let [b0, b1, b2, b3] = self.bookmark;
        [
            self.func as u64,
            self.state as u64,
            self.queue.0,
            self.min_txg.0,
            self.max_txg.0,
            self.current_min_txg.0,
            self.current_max_txg.0,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            d0,
            d1,
            d2,
            d3,
            b0,
            b1,
            b2,
            b3,
            self.flags,
        ]
    }

    /// True if an administrator has paused the scan.
    pub fn is_paused(&self) -> bool {
        self.flags & SCAN_FLAG_PAUSED != 0
    }
}

/// State of the error scrub: `error_scrub` in the MOS directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorScrubPhys {
    /// Function of the scan.
    pub func: ScanFunc,
    /// State of the scan.
    pub state: ScanState,
    /// Cursor in the error log.
    pub cursor: u64,
    /// Seconds since 1970 of its start.
    pub start_time: u64,
    /// Seconds since 1970 of its end.
    pub end_time: u64,
    /// Number of blocks that the scan will examine.
    pub to_examine: u64,
    /// Number of blocks that were examined.
    pub examined: u64,
    /// Number of errors that were found.
    pub errors: u64,
    /// A value other than 0 means that the scan is paused.
    pub paused_flags: u64,
}

impl ErrorScrubPhys {
    /// Decodes the array of nine words.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if words are missing; [`DecodeError::Field`] for an unknown function or
    /// state.
    pub fn from_words(words: &[u64]) -> Result<ErrorScrubPhys, DecodeError> {
        let [f, s, cursor, start_time, end_time, to_examine, examined, errors, paused_flags] =
            extend("error scrub", words)?;
        Ok(ErrorScrubPhys {
            func: func(f)?,
            state: state(s)?,
            cursor,
            start_time,
            end_time,
            to_examine,
            examined,
            errors,
            paused_flags,
        })
    }

    /// Encodes the array of nine words.
    pub fn to_words(&self) -> [u64; 9] {
        [
            self.func as u64,
            self.state as u64,
            self.cursor,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.errors,
            self.paused_flags,
        ]
    }
}

/// State of a sequential rebuild: `org.openzfs:vdev_rebuild` in the ZAP of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildPhys {
    /// State of the rebuild.
    pub(crate) state: RebuildState,
    /// All data below this offset has been copied.
    pub(crate) last_offset: u64,
    /// Blocks born after this txg are missing on the device.
    pub(crate) min_txg: Txg,
    /// Blocks born up to this txg are missing on the device.
    pub(crate) max_txg: Txg,
    /// Seconds since 1970 of its start.
    pub(crate) start_time: u64,
    /// Seconds since 1970 of its end.
    pub(crate) end_time: u64,
    /// Duration of the rebuild in milliseconds.
    pub(crate) scan_time_ms: u64,
    /// Size of the allocated segments that were passed, in bytes.
    pub(crate) bytes_scanned: u64,
    /// Number of bytes that were written as repairs.
    pub(crate) bytes_issued: u64,
    /// Number of bytes that were rebuilt.
    pub(crate) bytes_rebuilt: u64,
    /// Total number of bytes to rebuild.
    pub(crate) bytes_est: u64,
    /// Number of errors that were met.
    pub(crate) errors: u64,
}

/// State of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RebuildState {
    /// No rebuild was ever started.
    None,
    /// Running, or interrupted and to be resumed.
    Active,
    /// The rebuild was cancelled.
    Canceled,
    /// The rebuild has completed.
    Complete,
}

impl RebuildPhys {
    /// Decodes the array of twelve words.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if words are missing; [`DecodeError::Field`] for an unknown state.
    pub fn from_words(words: &[u64]) -> Result<RebuildPhys, DecodeError> {
        let w: [u64; 12] = extend("rebuild", words)?;
        let state = match w[0] {
            0 => RebuildState::None,
            1 => RebuildState::Active,
            2 => RebuildState::Canceled,
            3 => RebuildState::Complete,
            other => return Err(DecodeError::field("rebuild", "state", other)),
        };
        Ok(RebuildPhys {
            state,
            last_offset: w[1],
            min_txg: Txg(w[2]),
            max_txg: Txg(w[3]),
            start_time: w[4],
            end_time: w[5],
            scan_time_ms: w[6],
            bytes_scanned: w[7],
            bytes_issued: w[8],
            bytes_rebuilt: w[9],
            bytes_est: w[10],
            errors: w[11],
        })
    }

    /// Encodes the array of twelve words.
    pub fn to_words(&self) -> [u64; 12] {
        [
            self.state as u64,
            self.last_offset,
            self.min_txg.0,
            self.max_txg.0,
            self.start_time,
            self.end_time,
            self.scan_time_ms,
            self.bytes_scanned,
            self.bytes_issued,
            self.bytes_rebuilt,
            self.bytes_est,
            self.errors,
        ]
    }
}

/// State of the newest device removal: `com.delphix:removing` in the MOS directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalPhys {
    /// State of the removal.
    pub state: ScanState,
    /// The top-level vdev that is being removed.
    pub vdev: Option<VdevId>,
    /// The vdev that was removed before it: start of the chain through `prev_indirect_vdev`.
    pub prev_indirect_vdev: Option<VdevId>,
    /// Seconds since 1970 of its start.
    pub start_time: u64,
    /// Seconds since 1970 of its end.
    pub end_time: u64,
    /// Number of bytes that must be copied.
    pub to_copy: u64,
    /// Number of bytes that were copied.
    pub copied: u64,
}

impl RemovalPhys {
    /// Decodes the array of seven words.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if words are missing; [`DecodeError::Field`] for an unknown state or an
    /// impossible vdev.
    pub fn from_words(words: &[u64]) -> Result<RemovalPhys, DecodeError> {
        let [s, vdev, prev, start_time, end_time, to_copy, copied] = extend("removal", words)?;
        Ok(RemovalPhys {
            state: state(s)?,
            vdev: vdev_id(vdev)?,
            prev_indirect_vdev: vdev_id(prev)?,
            start_time,
            end_time,
            to_copy,
            copied,
        })
    }

    /// Encodes the array of seven words.
    pub fn to_words(&self) -> [u64; 7] {
        let id = |vdev: Option<VdevId>| vdev.map_or(u64::MAX, |vdev| vdev.0.into());
        [
            self.state as u64,
            id(self.vdev),
            id(self.prev_indirect_vdev),
            self.start_time,
            self.end_time,
            self.to_copy,
            self.copied,
        ]
    }
}

/// A mapping that is being rewritten without its obsolete ranges: `com.delphix:condensing_indirect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CondensingPhys {
    /// The top-level vdev that was removed.
    pub(crate) vdev: VdevId,
    /// Object id of the space map of ranges that were obsolete at the start.
    pub(crate) previous_obsolete: ObjectId,
    /// Object id of the new mapping.
    pub(crate) next_mapping: ObjectId,
}

impl CondensingPhys {
    /// Decodes the array of three words.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if words are missing; [`DecodeError::Field`] for an impossible vdev.
    pub fn from_words(words: &[u64]) -> Result<CondensingPhys, DecodeError> {
        let [vdev, previous, next] = extend("condensing", words)?;
        Ok(CondensingPhys {
            vdev: vdev_id(vdev)?.ok_or(DecodeError::field("condensing", "vdev", vdev))?,
            previous_obsolete: ObjectId(previous),
            next_mapping: ObjectId(next),
        })
    }

    /// The top-level vdev that was removed.
    pub fn vdev(&self) -> VdevId {
        self.vdev
    }

    /// The space map of ranges that were obsolete at the start; 0: none.
    pub fn previous_obsolete(self) -> ObjectId {
        self.previous_obsolete
    }

    /// The new mapping.
    pub fn next_mapping(&self) -> ObjectId {
        self.next_mapping
    }

    /// Encodes the array of three words.
    pub fn to_words(&self) -> [u64; 3] {
        [self.vdev.0.into(), self.previous_obsolete.0, self.next_mapping.0]
    }
}

/// All ones mean no vdev.
fn vdev_id(id: u64) -> Result<Option<VdevId>, DecodeError> {
    match id {
        u64::MAX => Ok(None),
        id if id < 1 << 24 => Ok(Some(VdevId(id as u32))),
        id => Err(DecodeError::field("removal", "vdev", id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_round_trip_and_short_arrays_are_filled_up() {
        let mut words: [u64; 24] = std::array::from_fn(|i| i as u64);
        words[0] = 2;
        words[1] = 1;
        let scan = ScanPhys::from_words(&words).unwrap();
        assert_eq!((scan.func, scan.state), (ScanFunc::Resilver, ScanState::Scanning));
        assert_eq!((scan.bookmark, scan.flags), ([19, 20, 21, 22], 23));
        assert_eq!(scan.to_words(), words);
        let short = ScanPhys::from_words(&words[..20]).unwrap();
        assert_eq!((short.bookmark, short.is_paused()), ([19, 0, 0, 0], false));
    }

    #[test]
    fn other_arrays_round_trip() {
        let words: [u64; 12] = std::array::from_fn(|i| i as u64 + 1);
        assert_eq!(RebuildPhys::from_words(&words).unwrap().to_words(), words);
        let words: [u64; 9] = std::array::from_fn(|i| i as u64 + 1);
        assert_eq!(ErrorScrubPhys::from_words(&words).unwrap().to_words(), words);
        let words = [1, u64::MAX, 3, 4, 5, 6, 7];
        assert_eq!(RemovalPhys::from_words(&words).unwrap().to_words(), words);
        assert_eq!(CondensingPhys::from_words(&[1, 2, 3]).unwrap().to_words(), [1, 2, 3]);
    }

    #[test]
    fn longer_arrays_and_unknown_numbers_are_refused() {
        assert!(ScanPhys::from_words(&[0; 25]).is_err());
        assert!(ScanPhys::from_words(&[4]).is_err());
        assert!(ScanPhys::from_words(&[0, 5]).is_err());
        assert!(ErrorScrubPhys::from_words(&[0; 10]).is_err());
        assert!(RebuildPhys::from_words(&[4]).is_err());
        assert!(RemovalPhys::from_words(&[0, 1 << 24]).is_err());
    }

    #[test]
    fn removals_end_their_chain_with_all_ones() {
        let removal = RemovalPhys::from_words(&[2, u64::MAX, 1, 5, 6, 7, 8]).unwrap();
        assert_eq!((removal.vdev, removal.prev_indirect_vdev), (None, Some(VdevId(1))));
        assert_eq!((removal.state, removal.copied), (ScanState::Finished, 8));
        assert!(CondensingPhys::from_words(&[u64::MAX, 1, 2]).is_err());
    }
}
