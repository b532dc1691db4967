//! Reads and checks every block of a pool, and names the damaged files.
//!
//! The order is: the pool's own objects, then every file system, volume and snapshot, oldest first. Snapshots and
//! clones share blocks: a subtree that is not newer than the previous snapshot also belongs to that snapshot and
//! was checked there, so each block is read once. Blocks shared by deduplication or cloning are remembered up to a
//! limit.
//!
//! # What always holds
//! - Memory is bounded: a queue of pointers, one block per thread and level of a tree, and lists of damage
//!   that end at a fixed number of entries; further damage is counted.
//! - A block counts as checked when each of its copies was read and compared with its checksum, parity
//!   included (with [`Options::every_copy`]), and its MAC where the dataset's key is loaded.
//! - Damage is reported for every snapshot and clone that holds the block, not only where it was met.
//! - What could not be checked is in the report, and [`Report::is_whole`] is then false.
//!
//! # Order
//! `plan` lists the object sets -> threads walk them and check blocks (`block_walk`, `check`) -> `names` finds the
//! files of the damaged blocks.

mod check;
mod names;
pub(crate) mod plan;

use std::ops::Range;

use format::VdevGuid;
use vdev::tree::FaultKind;

use crate::Pool;
use crate::error::Cause;
use crate::inspect::{Check, Problem, Space, Subject, blocks};

/// Maximum number of damaged blocks in the report; all are counted.
pub(crate) const HITS_MAX: usize = 100_000;

/// Name of the meta object set in the report.
pub(crate) const POOL_OBJECTS: &str = "<metadata>";

/// Options of [`verify`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of threads. Each waits for disks most of the time.
    pub threads: usize,
    /// Read all copies of a block and check parity, as a scrub does; otherwise one good copy is enough.
    pub every_copy: bool,
    /// Only these datasets, by full name, and the pool's own objects; empty: all.
    pub only: Vec<String>,
    /// If all blocks could be read, compare their locations with the space maps. This walks the trees a second
    /// time, and needs some tens of bytes of memory per separate range of free space and per shared block.
    pub space: bool,
}

impl Default for Options {
    fn default() -> Options {
        let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        Options { threads: (2 * cpus).clamp(4, 32), every_copy: true, only: Vec::new(), space: true }
    }
}

/// Progress of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of devices checked, as allocated: copies and parity count.
    pub bytes: u64,
    /// Number of blocks checked.
    pub blocks: u64,
    /// Number of blocks without a good copy.
    pub damaged: u64,
    /// Number of readable blocks with a bad copy or column.
    pub degraded: u64,
    /// Full name of the dataset that is being checked.
    pub dataset: String,
}

/// Observer of a run; called regularly, from several threads.
pub trait Watcher: Sync {
    /// Returns false to end the run early.
    fn progress(&self, progress: &Progress) -> bool;
}

/// A watcher that ignores progress and never ends a run.
impl Watcher for () {
    fn progress(&self, _: &Progress) -> bool {
        true
    }
}

/// Result of [`verify`].
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One per object set, in the order of the walk; the first is the pool's own.
    pub datasets: Vec<DatasetReport>,
    /// Damaged files and objects, with their lost ranges.
    pub damage: Vec<Damage>,
    /// Number of damaged blocks beyond the list.
    pub damage_untold: u64,
    /// Devices with read errors or wrong data, and missing devices.
    pub devices: Vec<DeviceReport>,
    /// Sums over all datasets.
    pub totals: Progress,
    /// Comparison of the blocks with the space maps, or the error that prevented it. `None`: not asked for,
    /// or some blocks could not be read.
    pub space: Option<Result<Space, Problem>>,
    /// True if the watcher ended the run.
    pub cut_short: bool,
}

impl Report {
    /// True if every dataset was checked and every block could be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.totals.damaged == 0
            && self.damage.is_empty()
            && !self.cut_short
            && self.datasets.iter().all(|dataset| dataset.failed.is_none())
    }

    /// True if [`Report::is_whole`], every copy of every block is good, and the space maps are right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_whole() && self.totals.degraded == 0 && self.devices.is_empty() && self.is_space_right()
    }

    /// True if the space maps contradict neither themselves nor the blocks, as far as they were compared.
    #[must_use]
    pub fn is_space_right(&self) -> bool {
        self.space.as_ref().is_none_or(|space| space.as_ref().is_ok_and(Space::matches))
    }
}

/// Verification of the MACs of an encrypted dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// The dataset is not encrypted.
    #[default]
    None,
    /// The key was loaded and the MACs were verified.
    Verified,
    /// No key: checksums were verified, MACs were not.
    NoKey,
}

/// Result for one object set.
#[derive(Debug, Clone, Default)]
pub struct DatasetReport {
    /// Full name; `<metadata>` for the meta object set.
    pub name: String,
    /// Number of blocks that are checked for this set: blocks shared with an earlier set are not counted
    /// again.
    pub blocks: u64,
    /// Allocated bytes of those blocks, copies and parity included.
    pub bytes: u64,
    /// Number of those blocks without a good copy.
    pub damaged: u64,
    /// Number of those blocks with a bad copy or column.
    pub degraded: u64,
    /// Verification of the MACs.
    pub encryption: Encryption,
    /// The error that prevented the check.
    pub failed: Option<Cause>,
}

/// Part of a dataset that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DamagedPart {
    /// A file, by its path from the root of the file system.
    File(Vec<u8>),
    /// An object of a file system whose name was not found; holds the object id.
    Object(u64),
    /// The data of a volume.
    Volume,
    /// An object of the file system or pool that is not a file: its object id and type.
    Internal(u64, String),
    /// All objects in this range of object ids, because their dnodes are lost.
    Objects(Range<u64>),
}

/// Damage of one file or object.
#[derive(Debug, Clone)]
pub struct Damage {
    /// Full name of the dataset or snapshot.
    pub dataset: String,
    /// The damaged part of it.
    pub place: DamagedPart,
    /// Byte ranges that are lost, in order; empty if everything is.
    pub ranges: Vec<Range<u64>>,
    /// True if attributes are lost, with or without data.
    pub attributes: bool,
    /// The error of the first damaged block.
    pub cause: Cause,
}

/// Errors of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Guid of the device.
    pub guid: VdevGuid,
    /// Path at which it was opened or last seen.
    pub path: String,
    /// Number of reads that failed.
    pub io: u64,
    /// Number of reads that returned wrong data.
    pub checksum: u64,
    /// Number of reads that were not tried because the device is missing.
    pub missing: u64,
    /// State of the device, as `zpool status` prints it.
    pub state: String,
}

impl DeviceReport {
    fn count(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Io => self.io += 1,
            FaultKind::Checksum => self.checksum += 1,
            FaultKind::Missing => self.missing += 1,
        }
    }
}

/// Approximate number of bytes that a run over the whole pool checks: the allocated bytes. `None` if the
/// space maps cannot be read.
#[must_use]
pub fn expected_bytes(pool: &Pool) -> Option<u64> {
    pool.spa().space().ok().map(|space| space.allocated)
}

/// Reads and checks every block of the pool, or of the datasets of `options`. Errors are part of the report.
pub fn verify(pool: &Pool, options: &Options, watcher: &dyn Watcher) -> Report {
    let plan = plan::Plan::new(pool.spa(), &options.only);
    let found = check::run(pool, &plan, options, watcher);
    let mut report = names::report(pool, &plan, found);
    if options.space && options.only.is_empty() && report.is_whole() {
        report.space = compare_space(pool);
    }
    report
}

/// A count that has met no problem has compared.
fn compare_space(pool: &Pool) -> Option<Result<Space, Problem>> {
    match blocks(pool, Check::Nothing, true) {
        Ok(report) => report.space.map(Ok).or_else(|| report.problems.into_iter().next().map(Err)),
        Err(error) => Some(Err(Problem { subject: Subject::Pool, cause: error.into() })),
    }
}
