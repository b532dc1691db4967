//! The workload on disks that rot, lie and die, as many of them as the layout can spare: no wrong byte is
//! ever returned, and nothing fails.

use crate::check;
use crate::disks::Layout;
use crate::workload::{Failure, Work};
use vdev::device::sim::Rates;
use vdev::env::Random;

/// Steps between two looks at everything.
const LOOK_EVERY: u64 = 12;

/// What is wrong with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Some writes land elsewhere, some never happen, and the disk says that all is well.
    Lying,
    /// Reads, writes and flushes fail now and then.
    Failing,
    /// It is gone after a while, and does not come back.
    Dying,
    /// Bits flip in what is on it.
    Rotting,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 4] = [Fault::Lying, Fault::Failing, Fault::Dying, Fault::Rotting];
}

/// Runs a workload of `steps` steps while disks misbehave.
///
/// # Errors
/// If an operation fails, or anything reads other than it was written.
pub fn run_with_faults(layout: Layout, seed: u64, steps: u64, fault: Fault) -> Result<(), Failure> {
    let mut work = Work::new(layout, seed)?;
    let mut random = Random::from_seed(seed);
    // Whole disks: which of them is the random part.
    let mut bad: Vec<usize> = (0..layout.data_disks()).collect();
    while bad.len() > layout.spare_disks() {
        bad.remove(random.below(bad.len() as u64) as usize);
    }
    for disk in &bad {
        let disk = &work.disks().disks()[*disk];
        match fault {
            Fault::Lying => {
                disk.set_rates(Rates { lost_write: 9, misdirected_write: 13, ..Rates::default() });
            }
            Fault::Failing => {
                disk.set_rates(Rates { read_error: 5, write_error: 7, flush_error: 4, ..Rates::default() });
            }
            Fault::Dying => disk.vanish_after(random.below(400)),
            Fault::Rotting => {}
        }
    }
    for step in 1..=steps {
        work.advance()?;
        if fault == Fault::Rotting {
            for disk in &bad {
                work.rot(*disk, &mut random);
            }
        }
        if step % LOOK_EVERY == 0 {
            work.look()?;
        }
    }
    let (run, disks) = work.export()?;
    let end = run.model.step();
    check::check_state(&run, &disks, end, end, seed)
}
