//! The contents of the disks after a cut, and the cuts whose contents a check cannot tell apart.
//!
//! Most writes of a txg have no visible effect until its uberblock is written: an import after a cut before
//! and one after such a write read the same. So all ranges that the check of an image reads are recorded
//! ([`Reads`]), and another image with the same bytes in all these ranges gives the same result: it is not
//! imported again.
//!
//! # What always holds
//! - Two images count as equal only if the writes that touch the recorded ranges are the same, in the same
//!   order and with the same sectors kept.
//! - Ranges that the check itself wrote before it read them are not recorded.

use crate::disks::Disks;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use vdev::device::sim::{Fate, Op, OpKind, SimDisk};
use vdev::device::{Device, DeviceError};
use vdev::env::Random;
use vdev::sync::lock;

const SECTOR: u64 = 512;

/// Ranges of bytes that do not touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range of bytes.
    fn add(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if let Some((first, last)) = self.0.range(..=start).next_back().filter(|(_, last)| **last >= start) {
            (start, end) = (*first, end.max(*last));
        }
        while let Some((first, last)) = self.0.range(start..=end).next().map(|(a, b)| (*a, *b)) {
            self.0.remove(&first);
            end = end.max(last);
        }
        self.0.insert(start, end);
    }

    /// Whether a range touches one of these.
    fn meets(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, last)| *last > range.start)
    }

    /// Calls `each` with the parts of a range that are in none of these.
    fn gaps(&self, range: Range<u64>, mut each: impl FnMut(Range<u64>)) {
        let mut at = range.start;
        let before = self.0.range(..=at).next_back().map(|(_, last)| *last);
        at = at.max(before.unwrap_or(0));
        if at >= range.end {
            return;
        }
        for (first, last) in self.0.range(at..range.end) {
            if *first > at {
                each(at..*first);
            }
            at = at.max(*last);
        }
        if at < range.end {
            each(at..range.end);
        }
    }
}

/// Ranges of a disk that were read, and ranges that were written meanwhile.
#[derive(Debug, Default)]
struct Seen {
    read: Ranges,
    written: Ranges,
}

/// A disk that records which ranges are read.
#[derive(Debug)]
struct NotingDisk {
    disk: Arc<SimDisk>,
    seen: Mutex<Seen>,
}

impl NotingDisk {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl Device for NotingDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.disk.sector_sizes()
    }

    fn read_at(&self, buf: &mut [u8], at: format::DeviceOffset) -> Result<(), DeviceError> {
        {
            let mut seen = self.lock();
            let Seen { read, written } = &mut *seen;
            written.gaps(at.0..at.0 + buf.len() as u64, |gap| read.add(gap));
        }
        self.disk.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: format::DeviceOffset) -> Result<(), DeviceError> {
        self.lock().written.add(at.0..at.0 + buf.len() as u64);
        self.disk.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush()
    }

    fn discard(&self, at: format::DeviceOffset, len: u64) -> Result<(), DeviceError> {
        self.disk.discard(at, len)
    }
}

/// Disks whose reads are recorded.
pub(crate) struct Reads(Vec<Arc<NotingDisk>>);

impl Reads {
    /// Replaces the devices of these disks by ones that record reads.
    pub(crate) fn of(disks: &mut Disks) -> Reads {
        let note =
            |disk: &Arc<SimDisk>| Arc::new(NotingDisk { disk: Arc::clone(disk), seen: Mutex::default() });
        let all: Vec<Arc<NotingDisk>> = disks.disks().iter().map(note).collect();
        disks.show(all.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect());
        Reads(all)
    }

    /// Continues with disks that have the data that was written to these.
    pub(crate) fn go_on(&self, disks: &mut Disks) -> Reads {
        let reads = Reads::of(disks);
        for (disk, before) in reads.0.iter().zip(&self.0) {
            let before = before.lock();
            *disk.lock() = Seen { read: before.read.clone(), written: before.written.clone() };
        }
        reads
    }

    /// The ranges that were read so far, by disk.
    pub(crate) fn ranges(&self) -> Vec<Ranges> {
        self.0.iter().map(|disk| disk.lock().read.clone()).collect()
    }
}

/// Which sectors of a write are present: all, or those in a bit set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum KeptSectors {
    Whole,
    Sectors(Vec<bool>),
}

/// A write that is not flushed yet.
#[derive(Debug, Clone)]
struct Unflushed {
    number: usize,
    at: u64,
    data: Arc<[u8]>,
}

/// The disks while the recorded operations are repeated one after the other.
pub(crate) struct Replay {
    /// Disks with all flushed writes.
    disks: Disks,
    /// Unflushed operations by disk.
    unflushed: Vec<Vec<Unflushed>>,
    next: usize,
}

/// An image, as the difference from the flushed writes.
pub(crate) struct Image {
    /// By disk, in order: the number of the write, where, and what of it is there.
    kept: Vec<Vec<(Unflushed, KeptSectors)>>,
}

impl Replay {
    /// Starts with empty disks and repeats the operations of `base`.
    pub(crate) fn new(count: usize, seed: u64, base: &[(usize, Op)]) -> Replay {
        let disks = Disks::new(count, seed);
        base.iter().for_each(|(disk, op)| disks.apply(*disk, op));
        disks.disks().iter().enumerate().for_each(|(i, _)| disks.flush(i));
        Replay { disks, unflushed: vec![Vec::new(); count], next: 0 }
    }

    /// Applies the next operation as far as it gets if the power goes off meanwhile: a write is in the cache
    /// of its disk.
    pub(crate) fn begin(&mut self, disk: usize, op: &Op) {
        if let (OpKind::Write, Some(data)) = (op.kind, &op.data) {
            let data = Arc::from(data.as_slice());
            self.unflushed[disk].push(Unflushed { number: self.next, at: op.at.0, data });
        }
        self.next += 1;
    }

    /// Completes the operation. Calls `settled` with what becomes durable: disk, number of the write, and
    /// range of bytes.
    pub(crate) fn finish(&mut self, disk: usize, op: &Op, mut settled: impl FnMut(usize, usize, Range<u64>)) {
        if op.kind == OpKind::Write {
            return;
        }
        // A discard follows the earlier writes.
        for write in self.unflushed[disk].drain(..) {
            self.disks.write(disk, write.at, &write.data);
            settled(disk, write.number, write.at..write.at + write.data.len() as u64);
        }
        self.disks.flush(disk);
        if op.kind == OpKind::Discard {
            self.disks.apply(disk, op);
            settled(disk, self.next - 1, op.at.0..op.at.0 + op.len);
        }
    }

    /// The image that a cut leaves now.
    pub(crate) fn image(&self, fate: Fate, seed: u64) -> Image {
        let mut random = Random::from_seed(seed);
        let mut kept = Vec::with_capacity(self.unflushed.len());
        for writes in &self.unflushed {
            let last = random.below(writes.len() as u64 + 1) as usize;
            let mut of_disk = Vec::new();
            for (i, write) in writes.iter().enumerate() {
                let what = match fate {
                    Fate::Kept => Some(KeptSectors::Whole),
                    Fate::Lost => None,
                    Fate::InOrder if i < last => Some(KeptSectors::Whole),
                    Fate::InOrder if i > last => None,
                    Fate::InOrder | Fate::Random => settle(&mut random, write.data.len() as u64),
                };
                of_disk.extend(what.map(|what| (write.clone(), what)));
            }
            kept.push(of_disk);
        }
        Image { kept }
    }

    /// The disks with the contents of this image.
    pub(crate) fn disks(&self, image: &Image, seed: u64) -> Disks {
        let after = self.disks.after_cut(Fate::Lost, seed);
        for (disk, writes) in image.kept.iter().enumerate() {
            for (write, what) in writes {
                match what {
                    KeptSectors::Whole => after.write(disk, write.at, &write.data),
                    KeptSectors::Sectors(kept) => {
                        for (sector, bytes) in write.data.chunks(SECTOR as usize).enumerate() {
                            if kept.get(sector) == Some(&true) {
                                after.write(disk, write.at + sector as u64 * SECTOR, bytes);
                            }
                        }
                    }
                }
            }
            after.flush(disk);
        }
        after
    }
}

/// Half of the writes are there whole, a quarter in part, a quarter not at all.
fn settle(random: &mut Random, len: u64) -> Option<KeptSectors> {
    match random.below(4) {
        0 | 1 => Some(KeptSectors::Whole),
        2 => {
            let sectors = len.div_ceil(SECTOR);
            let (is_scattered, prefix) = (random.one_in(2), random.below(sectors + 1));
            let keep = |sector| if is_scattered { random.one_in(2) } else { sector < prefix };
            let kept: Vec<bool> = (0..sectors).map(keep).collect();
            let (all, none) = (kept.iter().all(|kept| *kept), !kept.contains(&true));
            if none { None } else { Some(if all { KeptSectors::Whole } else { KeptSectors::Sectors(kept) }) }
        }
        _ => None,
    }
}

/// For each disk, a hash of the writes to the recorded ranges, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trace(Vec<u64>);

impl Trace {
    fn note(&mut self, disk: usize, number: usize, kept: &KeptSectors) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.0[disk], number, kept).hash(&mut hasher);
        self.0[disk] = hasher.finish();
    }
}

/// The result for an image, with what is needed to recognize an equal one.
pub(crate) struct Known<T> {
    reads: Vec<Ranges>,
    /// Trace of the durable writes.
    durable: Trace,
    /// Trace of the whole image.
    whole: Trace,
    /// Result of the check of the image.
    pub found: T,
}

impl<T> Known<T> {
    /// The result for this image, whose check has read these ranges.
    pub(crate) fn new(image: &Image, reads: Vec<Ranges>, found: T) -> Known<T> {
        let durable = Trace(vec![0; reads.len()]);
        let mut known = Known { reads, whole: durable.clone(), durable, found };
        known.whole = known.trace(image);
        known
    }

    fn trace(&self, image: &Image) -> Trace {
        let mut trace = self.durable.clone();
        for (disk, writes) in image.kept.iter().enumerate() {
            for (write, kept) in writes {
                let end = write.at + write.data.len() as u64;
                if self.reads[disk].meets(&(write.at..end)) {
                    trace.note(disk, write.number, kept);
                }
            }
        }
        trace
    }

    /// Notes that a write becomes durable.
    pub(crate) fn settled(&mut self, disk: usize, number: usize, range: &Range<u64>) {
        if self.reads[disk].meets(range) {
            self.durable.note(disk, number, &KeptSectors::Whole);
        }
    }

    /// Whether an image is equal to this one in the recorded ranges.
    pub(crate) fn is_like(&self, image: &Image) -> bool {
        self.trace(image) == self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_know_their_gaps() {
        let mut ranges = Ranges::default();
        for range in [10..20, 30..40, 20..30, 50..60] {
            ranges.add(range);
        }
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(10, 40), (50, 60)]);
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(30..40);
        assert!(ranges.meets(&(0..11)) && ranges.meets(&(19..25)));
        assert!(!ranges.meets(&(20..30)) && !ranges.meets(&(0..10)));
        let mut gaps = Vec::new();
        ranges.gaps(5..50, |gap| gaps.push(gap));
        assert_eq!(gaps, [5..10, 20..30, 40..50]);
        gaps.clear();
        ranges.gaps(12..35, |gap| gaps.push(gap));
        assert_eq!((gaps.len(), gaps.first()), (1, Some(&(20..30))));
        gaps.clear();
        ranges.gaps(11..15, |gap| gaps.push(gap));
        assert_eq!(gaps, []);
    }

    #[test]
    fn an_image_is_the_same_while_nothing_was_written_where_it_was_read() {
        let op = |kind, at: u64, data: &[u8]| Op {
            order: 0,
            kind,
            at: format::DeviceOffset(at),
            len: data.len() as u64,
            data: (kind == OpKind::Write).then(|| data.to_vec()),
            ok: true,
        };
        let mut replay = Replay::new(1, 1, &[]);
        let write = op(OpKind::Write, 4096, &[1; 512]);
        replay.begin(0, &write);
        let (kept, lost) = (replay.image(Fate::Kept, 0), replay.image(Fate::Lost, 0));
        let mut reads = Ranges::default();
        reads.add(4096..5000);
        let mut known = Known::new(&kept, vec![reads], ());
        assert!(known.is_like(&kept) && !known.is_like(&lost));
        let elsewhere = op(OpKind::Write, 8192, &[2; 512]);
        replay.begin(0, &elsewhere);
        assert!(known.is_like(&replay.image(Fate::Kept, 0)));
        let flush = op(OpKind::Flush, 0, &[]);
        replay.begin(0, &flush);
        replay.finish(0, &flush, |disk, number, range| known.settled(disk, number, &range));
        assert!(known.is_like(&replay.image(Fate::Lost, 0)));
        let over = op(OpKind::Write, 4608, &[3; 512]);
        replay.begin(0, &over);
        assert!(!known.is_like(&replay.image(Fate::Kept, 0)) && known.is_like(&replay.image(Fate::Lost, 0)));
        let mut bytes = [0; 512];
        let image = replay.image(Fate::Kept, 0);
        replay.disks(&image, 1).disks()[0].read_at(&mut bytes, format::DeviceOffset(4608)).unwrap();
        assert_eq!(bytes, [3; 512]);
    }
}
