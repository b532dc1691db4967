//! Removed top-level vdevs: their contents were copied to others, and a mapping leads to the copies
//! (docs/on-disk/14-vdevs.md, section 6).
//!
//! A block may have been copied in several pieces, when its checksum was not known: the copies of a piece on
//! a mirror may differ. A block in one piece is read like any other; for a block in several pieces, the
//! distinct copies of each are collected and their combinations verified.

use super::block::{Extent, Fault, FaultKind, How, Read};
use super::candidates::Budget;
use super::copies::{Pull, Source, pull_all};
use super::error::{MappingFault, VdevError};
use super::leaf::Trust;
use super::node::{Body, DEPTH_MAX, VdevTree};
use format::{AllocOffset, DeviceOffset, Psize, VdevId};

/// A piece of a block on an existing vdev.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) at: Extent,
    /// First byte in the block.
    pub(super) start: usize,
}

impl VdevTree {
    /// Reads a block of a removed vdev.
    pub(super) fn read_indirect(&self, at: &Extent, how: How<'_>, depth: usize) -> Read {
        let mut segments = Vec::new();
        let failed = |error| Read { data: Err(error), faults: Vec::new() };
        if let Err(error) = self.resolve(at, 0, depth, &mut segments) {
            return failed(error);
        }
        if let [only] = segments.as_slice() {
            return self.read_extent(&only.at, how, depth + 1);
        }
        match self.load_segments(&segments) {
            Ok(loaded) => loaded.combine(at.psize.0 as usize, how),
            Err(error) => failed(error),
        }
    }

    /// The pieces of a block on existing vdevs: one for a block of a vdev that was not removed.
    pub(super) fn segments(&self, at: &Extent) -> Result<Vec<Segment>, VdevError> {
        let mut segments = Vec::new();
        self.resolve(at, 0, 0, &mut segments)?;
        Ok(segments)
    }

    /// Whether a top-level vdev was removed.
    pub(super) fn is_removed(&self, vdev: VdevId) -> bool {
        self.find_top(vdev).is_ok_and(|top| matches!(top.vdev.body, Body::Indirect))
    }

    /// Translates a range of a removed vdev to existing vdevs, through any number of removals.
    fn resolve(
        &self,
        at: &Extent,
        start: usize,
        depth: usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), VdevError> {
        let no_mapping = |offset| VdevError::NoMapping { vdev: at.vdev, offset };
        if depth > DEPTH_MAX {
            return Err(VdevError::BadMapping { vdev: at.vdev, fault: MappingFault::Circle });
        }
        let top = self.find_top(at.vdev)?;
        if !matches!(top.vdev.body, Body::Indirect) {
            out.push(Segment { at: *at, start });
            return Ok(());
        }
        let mapping = self.indirect(at.vdev).ok_or(no_mapping(at.offset))?;
        let mut done = 0;
        while done < at.psize.0 {
            let offset = AllocOffset(at.offset.0.checked_add(done).ok_or(no_mapping(at.offset))?);
            let entry = mapping.find(offset).ok_or(no_mapping(offset))?;
            let within = offset.0 - entry.src.0;
            let len = (entry.len - within).min(at.psize.0 - done);
            let piece = Extent {
                vdev: entry.dst.vdev,
                offset: AllocOffset(entry.dst.offset.0 + within),
                psize: Psize(len),
                birth: mapping.birth(offset).unwrap_or(at.birth),
            };
            self.resolve(&piece, start + done as usize, depth + 1, out)?;
            done += len;
        }
        Ok(())
    }

    /// Reads every copy of every segment.
    fn load_segments(&self, segments: &[Segment]) -> Result<Segments<'_>, VdevError> {
        let mut jobs: Vec<(usize, Source<'_>, Vec<u8>)> = Vec::new();
        for (i, segment) in segments.iter().enumerate() {
            let top = self.find_top(segment.at.vdev)?;
            if top.vdev.has_parity() {
                return Err(VdevError::BadMapping { vdev: segment.at.vdev, fault: MappingFault::OnRaidz });
            }
            let place = i64::try_from(segment.at.offset.0).unwrap_or(i64::MAX);
            for source in self.sources(&top.vdev, place, segment.at.psize.0, segment.at.birth) {
                jobs.push((i, source, vec![0; segment.at.psize.0 as usize]));
            }
        }
        let mut pulls: Vec<_> = jobs.iter_mut().map(|(_, source, buf)| Pull::new(*source, buf)).collect();
        pull_all(&mut pulls);
        let results: Vec<_> = pulls.into_iter().map(|pull| pull.result).collect();
        let mut loaded = Segments {
            segments: segments.to_vec(),
            copies: vec![Vec::new(); segments.len()],
            faults: Vec::new(),
        };
        for ((i, source, bytes), result) in jobs.into_iter().zip(results) {
            match (result, loaded.copies.get_mut(i)) {
                (Ok(()), Some(copies)) => copies.push((source, bytes)),
                _ => loaded.faults.extend(source.fault(FaultKind::Io)),
            }
        }
        Ok(loaded)
    }
}

/// The copies of each segment of a block.
struct Segments<'t> {
    segments: Vec<Segment>,
    copies: Vec<Vec<(Source<'t>, Vec<u8>)>>,
    faults: Vec<Fault>,
}

impl Segments<'_> {
    /// Tries the combinations of distinct copies.
    fn combine(mut self, psize: usize, how: How<'_>) -> Read {
        let distinct: Vec<Vec<usize>> = self.copies.iter().map(|copies| distinct(copies)).collect();
        if distinct.iter().any(Vec::is_empty) {
            return Read { data: Err(VdevError::NoCopies), faults: self.faults };
        }
        let mut budget = Budget::new(psize);
        let mut block = vec![0; psize];
        let mut choice = vec![0; distinct.len()];
        (0..choice.len()).for_each(|i| self.put(i, &distinct, &choice, &mut block));
        while budget.take() {
            if (how.verify)(&block) {
                self.judge(&block);
                return Read { data: Ok(block), faults: self.faults };
            }
            // Next combination, with the first segment changing fastest.
            let mut carried = false;
            for i in 0..choice.len() {
                let (Some(now), Some(copies)) = (choice.get_mut(i), distinct.get(i)) else { break };
                *now = if *now + 1 < copies.len() { *now + 1 } else { 0 };
                carried = *now == 0;
                self.put(i, &distinct, &choice, &mut block);
                if !carried {
                    break;
                }
            }
            if carried {
                break;
            }
        }
        let all = self.copies.iter().flatten().filter_map(|(source, _)| source.fault(FaultKind::Checksum));
        self.faults.extend(all.collect::<Vec<_>>());
        Read { data: Err(VdevError::WrongChecksum), faults: self.faults }
    }

    /// Puts the chosen copy of segment `i` into the block.
    fn put(&self, i: usize, distinct: &[Vec<usize>], choice: &[usize], block: &mut [u8]) {
        let copy = choice.get(i).and_then(|now| distinct.get(i)?.get(*now));
        let bytes = copy.and_then(|copy| self.copies.get(i)?.get(*copy)).map(|(_, bytes)| bytes);
        if let (Some(bytes), Some(segment)) = (bytes, self.segments.get(i))
            && let Some(part) = block.get_mut(segment.start..segment.start + bytes.len())
        {
            part.copy_from_slice(bytes);
        }
    }

    /// Reports the copies that differ from the right block.
    fn judge(&mut self, block: &[u8]) {
        for (segment, copies) in self.segments.iter().zip(&self.copies) {
            for (source, bytes) in copies {
                let right = block.get(segment.start..segment.start + bytes.len()).unwrap_or_default();
                if let Some(at) = bytes.iter().zip(right).position(|(a, b)| a != b) {
                    let at = DeviceOffset(source.at.0 + (at as u64 & !511));
                    self.faults.extend(Source { at, ..*source }.fault(FaultKind::Checksum));
                }
            }
        }
    }
}

/// The first copy of each content, trusted leaves first.
fn distinct(copies: &[(Source<'_>, Vec<u8>)]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let mut order: Vec<usize> = (0..copies.len()).collect();
    order.sort_by_key(|i| copies.get(*i).map_or(Trust::Missing, |(source, _)| source.trust));
    for i in order {
        let Some((_, bytes)) = copies.get(i) else { continue };
        if !found.iter().any(|known| copies.get(*known).is_some_and(|(_, same)| same == bytes)) {
            found.push(i);
        }
    }
    found
}
