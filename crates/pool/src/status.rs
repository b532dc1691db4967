//! Facts about a pool open for writing that are not on disk.

use format::scan::ScanPhys;
use vdev::VdevTree;

/// Property `failmode`: how the pool behaves when writes are impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// Writers wait until the devices are back.
    #[default]
    Wait,
    /// Writers get errors until the devices are back.
    Continue,
    /// The process ends with a message.
    Panic,
}

impl FailMode {
    /// Decodes the stored number.
    pub(crate) fn of_number(number: u64) -> FailMode {
        match number {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }
}

/// Progress of an active or paused scan, beyond the state on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanProgress {
    /// The scan as the next save will write it.
    pub phys: ScanPhys,
    /// Bytes of all blocks that were read.
    pub issued: u64,
    /// Start of the present run without a break, in seconds since 1970.
    pub pass_start: u64,
    /// Bytes examined since `pass_start`.
    pub pass_examined: u64,
    /// Bytes that the scan has read since `pass_start`.
    pub pass_issued: u64,
    /// Time when it was paused, in seconds since 1970; 0: it is not paused.
    pub paused_since: u64,
    /// Seconds for which it was paused since `pass_start`.
    pub spent_paused: u64,
}

/// A pool open for writing, as its views query it.
pub(crate) trait LiveStatus: Send + Sync {
    /// Property `failmode` if the pool is suspended or has stopped.
    fn suspended(&self) -> Option<FailMode>;

    /// Why the pool takes no writes until it is imported again; `None`: it takes writes.
    fn stopped(&self) -> Option<String>;

    /// Progress of the active or paused scan.
    fn scan_progress(&self) -> Option<ScanProgress>;

    /// Whether a leaf of this tree lacks data that only a resilver restores.
    fn is_resilver_due(&self, tree: &VdevTree) -> bool;
}
