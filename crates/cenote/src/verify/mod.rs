//! Reads and checks every block of a pool, and says which files are damaged.
//!
//! The pool's own objects, then every file system, volume and snapshot, oldest first. Blocks are
//! shared between snapshots and clones: a subtree that is not newer than the snapshot before is
//! in that snapshot too and was checked there, so each block is read once. Blocks shared by
//! deduplication or cloning are remembered, as far as memory is set aside for it.
//!
//! # What always holds
//! - Memory is bounded: a queue of pointers, one block per thread and level of a tree, and lists of
//!   what is wrong that end at [`HITS_MAX`] entries; what is beyond is still counted.
//! - A block counts as checked when each of its copies was read and compared with its checksum, parity
//!   included (with [`Options::every_copy`]), and its MAC where the dataset's key is loaded.
//! - Damage is reported for every snapshot and clone that holds the block, not only where it was met.
//! - What could not be looked at is in the report: it never makes a pool look whole.
//!
//! # Order
//! `plan` lists the object sets -> threads walk them and check blocks (`block_walk`, `check`) -> `names`
//! turns what was met into files.

mod check;
mod names;
pub(crate) mod plan;

use std::ops::Range;

use format::VdevGuid;
use vdev::tree::FaultKind;

use crate::Pool;
use crate::inspect::{Check, Space, blocks};

/// Damaged blocks whose place is kept for the report; all are counted.
pub const HITS_MAX: usize = 100_000;

/// What the report calls the object set of the pool itself.
pub const POOL_OBJECTS: &str = "<metadata>";

/// How to verify.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads; each waits for disks most of the time.
    pub threads: usize,
    /// Read all copies of a block and check parity, as a scrub does; otherwise one good copy is enough.
    pub every_copy: bool,
    /// Only these datasets, by full name, and the pool's own objects; empty: all.
    pub only: Vec<String>,
    /// If everything could be read, compare where blocks are with the space maps. That walks the trees once
    /// more, and takes some tens of bytes of memory for each separate range of free space and each shared block.
    pub space: bool,
}

impl Default for Options {
    fn default() -> Options {
        let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        Options { threads: (2 * cpus).clamp(4, 32), every_copy: true, only: Vec::new(), space: true }
    }
}

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of devices checked, as allocated: copies and parity count.
    pub bytes: u64,
    /// Blocks checked.
    pub blocks: u64,
    /// Blocks with no good copy.
    pub damaged: u64,
    /// Blocks with a bad copy or column, but readable.
    pub degraded: u64,
    /// What is being walked.
    pub dataset: String,
}

/// Is told of progress, from several threads, now and then.
pub trait Watcher: Sync {
    /// Returns false to end the run early.
    fn progress(&self, progress: &Progress) -> bool;
}

/// A watcher for those who do not want to know.
impl Watcher for () {
    fn progress(&self, _: &Progress) -> bool {
        true
    }
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One per object set, in the order of the walk; the first is the pool's own.
    pub datasets: Vec<DatasetReport>,
    /// What is lost, by file.
    pub damage: Vec<Damage>,
    /// Damaged blocks that did not fit the list.
    pub damage_untold: u64,
    /// Devices that failed, lied or are missing.
    pub devices: Vec<DeviceReport>,
    /// Totals.
    pub totals: Progress,
    /// Where blocks are, compared with the space maps; why that could not be done. `None`: not asked for, or
    /// not all blocks are known.
    pub space: Option<Result<Space, String>>,
    /// The watcher ended the run.
    pub cut_short: bool,
}

impl Report {
    /// Every block could be read, and everything was looked at.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.totals.damaged == 0
            && self.damage.is_empty()
            && !self.cut_short
            && self.datasets.iter().all(|dataset| dataset.failed.is_none())
    }

    /// Every copy of every block is good, too, and the space maps are right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_whole() && self.totals.degraded == 0 && self.devices.is_empty() && self.is_space_right()
    }

    /// The space maps do not contradict themselves or the blocks, as far as that was looked at.
    #[must_use]
    pub fn is_space_right(&self) -> bool {
        self.space.as_ref().is_none_or(|space| space.as_ref().is_ok_and(Space::matches))
    }
}

/// What verification could do about encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Not encrypted.
    #[default]
    None,
    /// Keys were loaded, and MACs verified.
    Verified,
    /// No key: checksums were verified, MACs were not.
    NoKey,
}

/// One object set.
#[derive(Debug, Clone, Default)]
pub struct DatasetReport {
    /// Full name; [`POOL_OBJECTS`] for the pool's own objects.
    pub name: String,
    /// Blocks met here first.
    pub blocks: u64,
    /// Bytes of devices that they take.
    pub bytes: u64,
    /// Of the blocks, those with no good copy.
    pub damaged: u64,
    /// Of the blocks, those with a bad copy or column.
    pub degraded: u64,
    /// What was done about MACs.
    pub encryption: Encryption,
    /// Why it could not be looked at.
    pub failed: Option<String>,
}

/// Where damage is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// A file, by its path from the root of the file system.
    File(Vec<u8>),
    /// An object of a file system without a name that could be found.
    Object(u64),
    /// A volume's data.
    Volume,
    /// Something of the file system or pool itself: object and its type.
    Internal(u64, String),
    /// All objects with these numbers: their dnodes are lost.
    Objects(Range<u64>),
}

/// Something that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Dataset or snapshot.
    pub dataset: String,
    /// What in it.
    pub place: Place,
    /// Bytes of it that are lost, in order; empty when the whole is.
    pub ranges: Vec<Range<u64>>,
    /// Attributes are lost, not (only) data.
    pub attributes: bool,
    /// Why, in the words of the first block met.
    pub cause: String,
}

/// A device with errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Which.
    pub guid: VdevGuid,
    /// Its path, where it was opened or was last seen.
    pub path: String,
    /// Reads that failed.
    pub io: u64,
    /// Reads that gave wrong bytes.
    pub checksum: u64,
    /// Reads that could not be tried: the device is not there.
    pub missing: u64,
    /// Its state, in one word.
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

/// Bytes of devices that a run over the whole pool will check, about: what is allocated.
#[must_use]
pub fn expected_bytes(pool: &Pool) -> Option<u64> {
    pool.spa().space().ok().map(|space| space.allocated)
}

/// Verifies a pool.
pub fn verify(pool: &Pool, options: &Options, watcher: &dyn Watcher) -> Report {
    let plan = plan::Plan::new(pool.spa(), &options.only);
    let found = check::run(pool, &plan, options, watcher);
    let mut report = names::report(pool, &plan, found);
    if options.space && options.only.is_empty() && report.is_whole() {
        report.space = Some(compare_space(pool));
    }
    report
}

fn compare_space(pool: &Pool) -> Result<Space, String> {
    let report = blocks(pool, Check::Nothing, true).map_err(|error| crate::error::chain(&error))?;
    let unknown = || report.problems.first().cloned().unwrap_or_default();
    report.space.ok_or_else(unknown)
}
