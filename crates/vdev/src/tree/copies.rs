//! Reading vdevs whose leaves hold the same bytes: mirrors, replacements, spares, single leaves.
//!
//! A [`Source`] is a leaf and an offset on it. All other reads of the tree end in sources: a column of a
//! RAID-Z has one, or several while its child is being replaced.

use super::block::{Extent, Fault, FaultKind, How, Read, on_device};
use super::error::VdevError;
use super::leaf::{Leaf, Trust};
use super::node::{Body, DEPTH_MAX, DistributedSpare, Vdev, VdevTree};
use super::stats::{Done, Op, Priority};
use crate::device::{Device, DeviceError, ReadRequest, read_across};
use format::{DeviceOffset, Txg};
use std::time::{Duration, Instant};

/// Equally good sides of a mirror alternate after this many bytes.
const TURN_SHIFT: u32 = 20;

/// A leaf and a byte position on its device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'t> {
    pub(super) leaf: &'t Leaf,
    pub(super) at: DeviceOffset,
    pub(super) trust: Trust,
}

impl Source<'_> {
    /// The fault to report. Leaves that are not expected to be right are not blamed.
    pub(super) fn fault(&self, kind: FaultKind) -> Option<Fault> {
        let kind = match self.trust {
            Trust::Good => kind,
            Trust::Missing | Trust::OutOfService => FaultKind::Missing,
            Trust::Stale if kind == FaultKind::Io => kind,
            Trust::Stale => return None,
        };
        Some(Fault { leaf: self.leaf.guid, offset: self.at, kind })
    }
}

/// A read of one source, and its result.
pub(super) struct Pull<'t, 'b> {
    pub(super) source: Source<'t>,
    pub(super) buf: &'b mut [u8],
    pub(super) result: Result<(), DeviceError>,
}

impl<'t, 'b> Pull<'t, 'b> {
    pub(super) fn new(source: Source<'t>, buf: &'b mut [u8]) -> Pull<'t, 'b> {
        Pull { source, buf, result: Err(DeviceError::NotRead) }
    }
}

/// Reads all at once, each from its leaf.
pub(super) fn pull_all(pulls: &mut [Pull<'_, '_>]) {
    let priority = Priority::of_read();
    let mut batch: Vec<(&dyn Device, ReadRequest<'_>)> = Vec::with_capacity(pulls.len());
    let mut which = Vec::with_capacity(pulls.len());
    for (i, pull) in pulls.iter_mut().enumerate() {
        match pull.source.leaf.readable(pull.source.at, pull.buf.len() as u64) {
            Ok(device) => {
                pull.source.leaf.memory().io.begin(priority);
                batch.push((device, ReadRequest::new(pull.source.at, pull.buf)));
                which.push(i);
            }
            Err(error) => pull.result = Err(error),
        }
    }
    let start = Instant::now();
    read_across(&mut batch);
    let took = start.elapsed();
    let results: Vec<_> = batch.into_iter().map(|(_, request)| request.result).collect();
    for (i, result) in which.into_iter().zip(results) {
        if let Some(pull) = pulls.get_mut(i) {
            let (op, bytes, queued) = (Op::Read, pull.buf.len() as u64, Duration::ZERO);
            pull.source.leaf.note_done(Done { op, priority, bytes, queued, took, is_joined: false });
            pull.result = result;
        }
    }
}

impl VdevTree {
    /// The sources of the bytes at `at` of `vdev`, best first. Empty for vdevs other than leaves and mirrors
    /// of leaves.
    pub(super) fn sources<'t>(&'t self, vdev: &'t Vdev, at: i64, len: u64, birth: Txg) -> Vec<Source<'t>> {
        let mut sources = Vec::with_capacity(1);
        self.collect_sources(vdev, at, len, birth, 0, &mut sources);
        if sources.len() > 1 {
            let turn = (at >> TURN_SHIFT).rem_euclid(sources.len() as i64) as usize;
            sources.rotate_left(turn);
            sources.sort_by_key(|source| (source.trust, source.leaf.error_count()));
        }
        sources
    }

    fn collect_sources<'t>(
        &'t self,
        vdev: &'t Vdev,
        at: i64,
        len: u64,
        birth: Txg,
        depth: usize,
        out: &mut Vec<Source<'t>>,
    ) {
        if depth > DEPTH_MAX {
            return;
        }
        match &vdev.body {
            Body::Leaf(leaf) => {
                if let Some(at) = on_device(at) {
                    out.push(Source { leaf, at, trust: leaf.trust(birth) });
                }
            }
            Body::Mirror(children) => {
                children.iter().for_each(|child| self.collect_sources(child, at, len, birth, depth + 1, out));
            }
            Body::DistributedSpare(spare) => {
                let Some(child) = self.spare_child(spare, at, len) else { return };
                let before = out.len();
                self.collect_sources(child, at, len, birth, depth + 1, out);
                // At most as trusted as the spare itself, which may not be rebuilt yet.
                let trust = spare.state.trust(birth);
                out.iter_mut().skip(before).for_each(|source| source.trust = source.trust.max(trust));
            }
            _ => {}
        }
    }

    /// The child of a dRAID that serves as its distributed spare in a range.
    fn spare_child(&self, spare: &DistributedSpare, at: i64, len: u64) -> Option<&Vdev> {
        let top = self.tops.get(*self.draids.get(&spare.draid)?)?;
        let Body::Draid(draid, children) = &top.vdev.body else { return None };
        let at = u64::try_from(at).ok()?;
        let within_slice = at.checked_add(len)? <= draid.spare_end(at);
        children.get(draid.spare_child(spare.index, at).filter(|_| within_slice)?)
    }

    /// The sources of a block that each hold it completely.
    pub(super) fn copies<'t>(&'t self, vdev: &'t Vdev, at: &Extent) -> Copies<'t> {
        let place = i64::try_from(at.offset.0).unwrap_or(i64::MAX);
        Copies::new(self.sources(vdev, place, at.psize.0, at.birth), at.psize.0 as usize)
    }

    /// Reads a block that each source holds completely.
    pub(super) fn read_copies(&self, vdev: &Vdev, at: &Extent, how: How<'_>) -> Read {
        let copies = self.copies(vdev, at);
        if how.every_copy {
            check_copies(&copies.sources, at.psize.0 as usize, how)
        } else {
            copies.read_rest(how)
        }
    }

    /// Reads a block from a mirror of RAID-Zs (test pools have such): each side is read by itself.
    pub(super) fn read_sides(&self, sides: &[Vdev], at: &Extent, how: How<'_>, depth: usize) -> Read {
        let mut all = Read { data: Err(VdevError::NoCopies), faults: Vec::new() };
        for side in sides {
            let read = self.read_vdev(side, at, how, depth + 1);
            all.faults.extend(read.faults);
            match (read.data, &all.data) {
                (Ok(data), Err(_)) => all.data = Ok(data),
                (Err(VdevError::WrongChecksum), Err(_)) => all.data = Err(VdevError::WrongChecksum),
                _ => {}
            }
            if all.data.is_ok() && !how.every_copy {
                break;
            }
        }
        all
    }
}

/// Copies of a block, tried one after the other, the best first.
pub(super) struct Copies<'t> {
    sources: Vec<Source<'t>>,
    /// Number of sources tried so far.
    tried: usize,
    data: Vec<u8>,
    faults: Vec<Fault>,
    error: VdevError,
}

impl<'t> Copies<'t> {
    pub(super) fn new(sources: Vec<Source<'t>>, len: usize) -> Copies<'t> {
        Copies { sources, tried: 0, data: vec![0; len], faults: Vec::new(), error: VdevError::NoCopies }
    }

    /// The read of the next source; `None`: all were tried.
    pub(super) fn pull(&mut self) -> Option<Pull<'t, '_>> {
        Some(Pull::new(*self.sources.get(self.tried)?, &mut self.data))
    }

    /// Judges the read of the next source. Returns true if the data are right.
    pub(super) fn judge(&mut self, result: &Result<(), DeviceError>, how: How<'_>) -> bool {
        let Some(source) = self.sources.get(self.tried) else { return false };
        self.tried += 1;
        let kind = match result {
            Ok(()) if (how.verify)(&self.data) => return true,
            Ok(()) => {
                self.error = VdevError::WrongChecksum;
                FaultKind::Checksum
            }
            Err(_) => FaultKind::Io,
        };
        self.faults.extend(source.fault(kind));
        false
    }

    /// The result, once the data are right.
    pub(super) fn into_read(self) -> Read {
        Read { data: Ok(self.data), faults: self.faults }
    }

    /// Tries the remaining sources until one is right.
    pub(super) fn read_rest(mut self, how: How<'_>) -> Read {
        while let Some(pull) = self.pull() {
            let mut pull = [pull];
            pull_all(&mut pull);
            let [Pull { result, .. }] = pull;
            if self.judge(&result, how) {
                return self.into_read();
            }
        }
        Read { data: Err(self.error), faults: self.faults }
    }
}

/// Reads all sources that should be right, and the others if none is.
fn check_copies(sources: &[Source<'_>], len: usize, how: How<'_>) -> Read {
    let good = sources.partition_point(|source| source.trust == Trust::Good);
    let (good, rest) = sources.split_at(good);
    let mut copies: Vec<Vec<u8>> = good.iter().map(|_| vec![0; len]).collect();
    let mut pulls: Vec<_> =
        good.iter().zip(&mut copies).map(|(source, buf)| Pull::new(*source, buf)).collect();
    pull_all(&mut pulls);
    let mut read = Read { data: Err(VdevError::NoCopies), faults: Vec::new() };
    let results: Vec<_> = pulls.into_iter().map(|pull| pull.result).collect();
    for ((source, copy), result) in good.iter().zip(copies).zip(results) {
        match result {
            Ok(()) if (how.verify)(&copy) => {
                if read.data.is_err() {
                    read.data = Ok(copy);
                }
            }
            Ok(()) => {
                read.faults.extend(source.fault(FaultKind::Checksum));
                if read.data.is_err() {
                    read.data = Err(VdevError::WrongChecksum);
                }
            }
            Err(_) => read.faults.extend(source.fault(FaultKind::Io)),
        }
    }
    if read.data.is_ok() {
        read.faults.extend(rest.iter().filter_map(|source| source.fault(FaultKind::Checksum)));
    } else {
        let last = Copies::new(rest.to_vec(), len).read_rest(how);
        read.faults.extend(last.faults);
        if last.data.is_ok() || last.data == Err(VdevError::WrongChecksum) {
            read.data = last.data;
        }
    }
    read
}
