//! Reading blocks, one or many at once.
//!
//! The first attempt at a block needs one copy, or its data columns. [`VdevTree::read_many`] hands those of
//! all its blocks to the devices before it waits; a block whose first attempt fails is then read like a
//! single one.

use super::block::{Extent, Fault, FaultKind, How, Read};
use super::copies::{Copies, pull_all};
use super::error::{VdevError, check_size};
use super::node::{Body, DEPTH_MAX, FaultListener, Vdev, VdevTree};
use super::parity::Straight;
use super::stats::{Op, Priority, PriorityGuard};
use crate::geometry::BlockMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A block of a batch of reads.
#[derive(Clone, Copy)]
pub struct BlockRead<'a> {
    /// Place and size of the block.
    pub at: Extent,
    /// The caller's check of a candidate: whether its bytes are right.
    pub verify: &'a dyn Fn(&[u8]) -> bool,
    /// Whether the space may belong to another block by now. Wrong bytes are then no fault of a leaf, and are
    /// neither counted nor reported. Called only if bytes are wrong.
    pub is_reused: &'a dyn Fn() -> bool,
}

/// The first attempt at a block.
enum Attempt<'t> {
    /// The best of its copies.
    Copies(Copies<'t>),
    /// The data columns, without parity, straight into the block.
    Columns(&'t [Vdev], BlockMap, Straight<'t>),
    /// No attempt that can be combined with those of other blocks.
    Alone,
}

impl VdevTree {
    /// Reads a block: the healthiest copy first, others and reconstructions until `verify` accepts.
    pub fn read(&self, at: &Extent, verify: &dyn Fn(&[u8]) -> bool) -> Read {
        self.run(at, How { every_copy: false, verify })
    }

    /// Reads blocks, results in the order of `reads`. The first attempts at all of them run at the same time,
    /// so the batch takes the memory of all its blocks.
    pub fn read_many(&self, reads: &[BlockRead<'_>]) -> Vec<Read> {
        let mut attempts: Vec<Attempt<'_>> = reads.iter().map(|read| self.attempt(&read.at)).collect();
        let mut pulls = Vec::with_capacity(reads.len());
        for attempt in &mut attempts {
            match attempt {
                Attempt::Copies(copies) => pulls.extend(copies.pull()),
                Attempt::Columns(_, _, straight) => pulls.extend(straight.pulls()),
                Attempt::Alone => {}
            }
        }
        pull_all(&mut pulls);
        let mut results = pulls.into_iter().map(|pull| pull.result).collect::<Vec<_>>().into_iter();
        let mut finish = |(read, attempt): (&BlockRead<'_>, Attempt<'_>)| {
            let how = How { every_copy: false, verify: read.verify };
            let outcome = match attempt {
                Attempt::Copies(mut copies) => {
                    let is_right = results.next().is_some_and(|result| copies.judge(&result, how));
                    if is_right { copies.into_read() } else { copies.read_rest(how) }
                }
                Attempt::Columns(children, map, straight) => {
                    let own: Vec<_> = results.by_ref().take(straight.columns()).collect();
                    let is_complete = own.iter().all(Result::is_ok);
                    let read_at = straight.accept(is_complete, read.at.psize.0 as usize, how);
                    read_at.unwrap_or_else(|| self.search_columns(children, &map, &read.at, how))
                }
                Attempt::Alone => self.read_extent(&read.at, how, 0),
            };
            self.report(outcome, &read.at, |fault| is_blamed(fault, read.is_reused))
        };
        reads.iter().zip(attempts).map(&mut finish).collect()
    }

    fn attempt(&self, at: &Extent) -> Attempt<'_> {
        let Ok(top) = check_size(at.psize).and_then(|()| self.find_top(at.vdev)) else {
            return Attempt::Alone;
        };
        let map = match &top.vdev.body {
            Body::Raidz(raidz, _) => raidz.map(at.offset, at.psize, at.birth),
            Body::Draid(draid, _) => draid.map(at.offset, at.psize),
            Body::Leaf(_) | Body::Mirror(_) if !top.vdev.has_parity() => {
                return Attempt::Copies(self.copies(&top.vdev, at));
            }
            _ => None,
        };
        let Some(map) = map else { return Attempt::Alone };
        match self.straight(top.vdev.children(), &map, at) {
            Some(straight) => Attempt::Columns(top.vdev.children(), map, straight),
            None => Attempt::Alone,
        }
    }

    /// Reads every copy of a block and recomputes its parity, as a scrub does. Every leaf with wrong bytes is
    /// reported; the result has the data if any copy or reconstruction is right.
    pub fn check_every_copy(&self, at: &Extent, verify: &dyn Fn(&[u8]) -> bool) -> Read {
        let _scrub = PriorityGuard::begin(Priority::Scrub);
        self.run(at, How { every_copy: true, verify })
    }

    /// Like [`VdevTree::read`], for places where wrong bytes are expected (the end of a log chain): no fault
    /// is reported and no checksum error is counted.
    ///
    /// # Errors
    /// [`VdevError`] if no copy or reconstruction is right.
    pub fn read_quietly(&self, at: &Extent, verify: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, VdevError> {
        self.read_extent(at, How { every_copy: false, verify }, 0).data
    }

    /// Like [`VdevTree::read`], for a block whose space may belong to another block by now. Wrong bytes are
    /// then no fault of a leaf, and are neither counted nor reported; `is_reused` is called only if bytes are
    /// wrong.
    pub fn read_perhaps_reused(
        &self,
        at: &Extent,
        verify: &dyn Fn(&[u8]) -> bool,
        is_reused: &dyn Fn() -> bool,
    ) -> Read {
        self.run_telling(at, How { every_copy: false, verify }, |fault| is_blamed(fault, is_reused))
    }

    fn run(&self, at: &Extent, how: How<'_>) -> Read {
        self.run_telling(at, how, |_| true)
    }

    /// Reads a block; counts and reports the faults for which `is_told` is true.
    fn run_telling(&self, at: &Extent, how: How<'_>, is_told: impl Fn(&Fault) -> bool) -> Read {
        let read = self.read_extent(at, how, 0);
        self.report(read, at, is_told)
    }

    /// Counts and reports the faults of a read that satisfy a condition.
    fn report(&self, mut read: Read, at: &Extent, is_told: impl Fn(&Fault) -> bool) -> Read {
        read.faults.sort_by_key(|fault| (fault.leaf.0, fault.offset.0, fault.kind));
        read.faults.dedup();
        let told: Vec<Fault> = read.faults.iter().copied().filter(is_told).collect();
        self.count(&told);
        self.tell(Op::Read, &told, at.psize.0);
        read
    }

    /// Reports all faults to this listener from now on. A second call has no effect.
    pub fn set_listener(&self, listener: Arc<dyn FaultListener>) {
        let _ = self.listener.set(listener);
    }

    pub(super) fn tell(&self, op: Op, faults: &[Fault], bytes: u64) {
        let Some(listener) = self.listener.get() else { return };
        for fault in faults.iter().filter(|fault| fault.kind != FaultKind::Missing) {
            listener.fault(self, op, fault, bytes);
        }
    }

    /// Adds faults to the leaves' counters.
    fn count(&self, faults: &[Fault]) {
        for fault in faults {
            if fault.kind == FaultKind::Missing {
                continue; // not the leaf's doing, and in a degraded pool every other read has one
            }
            let Some(leaf) = self.leaf(fault.leaf) else { continue };
            let counter = match fault.kind {
                FaultKind::Checksum => &leaf.counters().checksum_errors,
                _ => &leaf.counters().read_errors,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn read_extent(&self, at: &Extent, how: How<'_>, depth: usize) -> Read {
        let failed = |error| Read { data: Err(error), faults: Vec::new() };
        let top = match check_size(at.psize).and_then(|()| self.find_top(at.vdev)) {
            Ok(top) => top,
            Err(error) => return failed(error),
        };
        match &top.vdev.body {
            Body::Indirect => self.read_indirect(at, how, depth),
            _ => self.read_vdev(&top.vdev, at, how, depth),
        }
    }

    /// Reads a block on `vdev`, which is the top-level vdev or a child of a mirror.
    pub(super) fn read_vdev(&self, vdev: &Vdev, at: &Extent, how: How<'_>, depth: usize) -> Read {
        if depth > DEPTH_MAX {
            return Read { data: Err(VdevError::NoCopies), faults: Vec::new() };
        }
        let map = match &vdev.body {
            Body::Raidz(raidz, _) => raidz.map(at.offset, at.psize, at.birth),
            Body::Draid(draid, _) => draid.map(at.offset, at.psize),
            Body::Mirror(children) if children.iter().any(Vdev::has_parity) => {
                return self.read_sides(children, at, how, depth);
            }
            _ => return self.read_copies(vdev, at, how),
        };
        match map {
            Some(map) => self.read_columns(vdev.children(), &map, at, how),
            None => {
                let error = VdevError::Misaligned { vdev: at.vdev, offset: at.offset };
                Read { data: Err(error), faults: Vec::new() }
            }
        }
    }
}

/// Whether a fault counts against its leaf: wrong bytes in reused space do not.
fn is_blamed(fault: &Fault, is_reused: &dyn Fn() -> bool) -> bool {
    fault.kind != FaultKind::Checksum || !is_reused()
}
