//! Facts about a pool that is open for writing that are not on disk.

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
    /// From the number that is stored.
    pub(crate) fn of_number(number: u64) -> FailMode {
        match number {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }
}

/// Progress of a scan that is under way or paused, beyond what is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanProgress {
    /// As it will be written.
    pub phys: ScanPhys,
    /// Bytes of the blocks that were read, in all.
    pub issued: u64,
    /// Since when it has been running without a break: seconds since 1970.
    pub pass_start: u64,
    /// Bytes looked at since `pass_start`.
    pub pass_examined: u64,
    /// Bytes that the scan has read since `pass_start`.
    pub pass_issued: u64,
    /// Since when it is paused; 0: it is not.
    pub paused_since: u64,
    /// Seconds that it was paused since `pass_start`.
    pub spent_paused: u64,
}

/// A pool that is open for writing, as its views ask it.
pub(crate) trait LiveStatus: Send + Sync {
    /// Property `failmode` if the pool is suspended or has stopped.
    fn suspended(&self) -> Option<FailMode>;

    /// Why the pool takes no writes until it is imported again; `None`: it takes writes.
    fn stopped(&self) -> Option<String>;

    /// The scan that is under way or paused.
    fn scan_progress(&self) -> Option<ScanProgress>;

    /// Whether a leaf lacks something that only a resilver brings, as this tree has it.
    fn is_resilver_due(&self, tree: &VdevTree) -> bool;
}
