//! The workload on disks with faults. As long as the layout can spare the faulty disks, no operation fails
//! and no wrong byte is returned. With more faulty disks there are errors, but still no wrong byte.

use crate::check;
use crate::disks::{Disks, Layout};
use crate::model::Entry;
use crate::run::{Failure, POOL, Run, host, open_fs};
use crate::workload::Work;
use format::DeviceOffset;
use format::units::LABEL_START;
use pool::ImportOptions;
use pool::LivePool;
use pool::Which;
use vdev::device::sim::{Fate, Rates};
use vdev::env::Random;

/// Steps between two checks of all contents.
const LOOK_EVERY: u64 = 12;
/// Length of a label in bytes; a disk has two at each end.
const LABEL: u64 = 256 << 10;
const SECTOR: usize = 512;

/// A fault of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Some writes go to the wrong place, some are lost, and all are reported as successful.
    Lying,
    /// Some reads, writes and flushes fail.
    Failing,
    /// The disk fails after a while for good.
    Dying,
    /// Bits flip in stored data.
    Rotting,
    /// The labels are overwritten: some of them while the pool is in use, all of them before it is opened
    /// again.
    LosingLabels,
    /// Flushes are reported as done and are not; then the power is cut.
    PretendingToFlush,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 6] = [
        Fault::Lying,
        Fault::Failing,
        Fault::Dying,
        Fault::Rotting,
        Fault::LosingLabels,
        Fault::PretendingToFlush,
    ];
}

/// Runs a workload of `steps` steps while disks misbehave: as many as the layout can spare, with these faults
/// one after the other.
///
/// # Errors
/// An operation fails, or data reads other than it was written.
pub fn run_with_faults(layout: Layout, seed: u64, steps: u64, faults: &[Fault]) -> Result<(), Failure> {
    let mut work = Work::new(layout, seed)?;
    let mut random = Random::from_seed(seed);
    // Whole disks; the seed decides which.
    let mut bad: Vec<usize> = (0..layout.data_disks()).collect();
    while bad.len() > layout.spare_disks() {
        bad.remove(random.below(bad.len() as u64) as usize);
    }
    let bad: Vec<(usize, Fault)> = bad.into_iter().zip(faults.iter().copied().cycle()).collect();
    for (disk, fault) in &bad {
        let disk = &work.disks().disks()[*disk];
        match fault {
            Fault::Lying => {
                disk.set_rates(Rates { lost_write: 9, misdirected_write: 13, ..Rates::default() });
            }
            Fault::Failing => {
                disk.set_rates(Rates { read_error: 5, write_error: 7, flush_error: 4, ..Rates::default() });
            }
            Fault::Dying => disk.vanish_after(random.below(400)),
            Fault::PretendingToFlush => disk.set_rates(Rates { lying_flush: 2, ..Rates::default() }),
            Fault::Rotting | Fault::LosingLabels => {}
        }
    }
    for step in 1..=steps {
        work.advance()?;
        for (disk, fault) in &bad {
            match fault {
                Fault::Rotting => work.rot(*disk, &mut random),
                Fault::LosingLabels if random.one_in(4) => {
                    lose_label(work.disks(), *disk, random.below(4));
                }
                _ => {}
            }
        }
        if step % LOOK_EVERY == 0 {
            work.look()?;
        }
    }
    let loses_power = bad.iter().any(|(_, fault)| *fault == Fault::PretendingToFlush);
    let (run, disks) = if loses_power { work.lose_power(Fate::Random, seed)? } else { work.export()? };
    for (disk, _) in bad.iter().filter(|(_, fault)| *fault == Fault::LosingLabels) {
        (0..4).for_each(|label| lose_label(&disks, *disk, label));
    }
    let end = run.model.step();
    check::check_state(&run, &disks, end, end, seed)
}

fn lose_label(disks: &Disks, disk: usize, label: u64) {
    let at = if label < 2 { label * LABEL } else { disks.size() - (4 - label) * LABEL };
    disks.disks()[disk].garble(DeviceOffset(at), LABEL);
}

/// Counts of files that were read.
#[derive(Debug, Default, Clone, Copy)]
pub struct Readings {
    /// Files that read as they were written.
    pub right: u64,
    /// Files that returned an error.
    pub errors: u64,
}

/// Runs a workload, then damages more disks than the layout can spare, and reads every file.
///
/// # Errors
/// A byte reads other than it was written.
pub fn read_beyond_redundancy(layout: Layout, seed: u64, steps: u64) -> Result<Readings, Failure> {
    let mut work = Work::new(layout, seed)?;
    for _ in 0..steps {
        work.advance()?;
    }
    let (run, disks) = work.export()?;
    let mut random = Random::from_seed(seed);
    // The same ranges on all disks: no copy and no parity is left.
    for op in run.ops.iter().filter_map(|(_, op)| op.data.is_some().then_some(op)) {
        let is_data = op.at.0 >= LABEL_START && op.at.0 + op.len <= disks.size() - 2 * LABEL;
        for at in (0..op.len).step_by(SECTOR).filter(|_| is_data) {
            if random.one_in(32) {
                disks.disks().iter().for_each(|disk| disk.flip(DeviceOffset(op.at.0 + at), 1, 0x10));
            }
        }
    }
    let mut readings = Readings::default();
    if let Err(error) = read_files(&run, &disks, seed, &mut readings) {
        if error.is::<Misread>() {
            return Err(error);
        }
        // The pool cannot be opened, or a directory cannot be read.
        readings.errors += 1;
    }
    Ok(readings)
}

/// A byte that is not the one that was written.
#[derive(Debug)]
struct Misread(String);

impl std::fmt::Display for Misread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has other bytes than were written", self.0)
    }
}

impl std::error::Error for Misread {}

fn read_files(run: &Run, disks: &Disks, seed: u64, readings: &mut Readings) -> Result<(), Failure> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    let which = Which::Name(POOL.to_owned());
    let pool = LivePool::import(&disks.found(), &which, &options, crate::run::env(seed))?;
    let fs = open_fs(&pool, seed)?;
    let reader = fs.fs.reader();
    for (path, entry) in run.model.now() {
        let Entry::File(id) = entry else { continue };
        let expected = &run.model.file(*id).bytes;
        let read = || -> Result<Vec<u8>, Failure> {
            let node = reader.resolve(path.as_bytes())?.ok_or_else(|| Misread(path.clone()))?;
            let mut bytes = vec![0; node.attrs().size as usize];
            node.read_at(0, &mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) if bytes == *expected => readings.right += 1,
            Ok(_) => return Err(Misread(path.clone()).into()),
            Err(error) if error.is::<Misread>() => return Err(error),
            Err(_) => readings.errors += 1,
        }
    }
    Ok(())
}
