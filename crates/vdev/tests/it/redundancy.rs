//! Every layout with every set of failed, missing or lying leaves that it must survive, and some that it
//! cannot.

use crate::common::{DISK, Disks, Shape, extent, guid, subsets};
use cenote_vdev::VdevTree;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::device::sim::SimDisk;
use cenote_vdev::device::{Device, DeviceError, ReadRequest};
use cenote_vdev::geometry::{DraidParams, Expansion, ReflowState};
use cenote_vdev::tree::{BlockRead, Extent, FaultKind, Read, VdevError};
use format::{Ashift, DeviceOffset, Txg, VdevGuid, VdevId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Trouble of a leaf.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    Missing,
    Unreadable,
    Lies,
}

fn inflict(disk: &SimDisk, trouble: Trouble) {
    match trouble {
        Trouble::Missing => {}
        Trouble::Unreadable => disk.make_unreadable(DeviceOffset(0), DISK),
        Trouble::Lies => disk.garble(DeviceOffset(0), DISK),
    }
}

fn culprits(read: &Read, kind: FaultKind) -> Vec<VdevGuid> {
    let mut guids: Vec<VdevGuid> =
        read.faults.iter().filter(|fault| fault.kind == kind).map(|fault| fault.leaf).collect();
    guids.sort();
    guids.dedup();
    guids
}

/// For every set of troubled leaves up to the redundancy, the block is read, and a scrub names exactly the
/// troubled leaves that hold a part of it. With one leaf more, the block is lost.
fn survive(shape: Shape, ashift: Ashift, at: Extent) {
    let disks = Disks::new(shape, ashift);
    let block = disks.write(&at, 7);
    let verify = |data: &[u8]| data == block;
    let holders = disks.holders(&at);
    let redundancy = disks.shape.nparity();
    let n = disks.shape.children();
    let kinds = [Trouble::Missing, Trouble::Unreadable, Trouble::Lies];
    for set in subsets(n, redundancy + 1) {
        if set.iter().any(|i| !holders.contains(i)) {
            continue;
        }
        for mix in 0..kinds.len().pow(set.len() as u32) {
            let trouble = |k: usize| kinds[mix / kinds.len().pow(k as u32) % kinds.len()];
            // Beyond the redundancy, wrong bytes cannot be told from right ones; one mix will do.
            if set.len() > redundancy && mix != 0 {
                continue;
            }
            let sims = disks.simulated();
            for (k, i) in set.iter().enumerate() {
                inflict(&sims[*i], trouble(k));
            }
            let missing: Vec<usize> = set
                .iter()
                .enumerate()
                .filter(|(k, _)| trouble(*k) == Trouble::Missing)
                .map(|(_, i)| *i)
                .collect();
            let tree = disks.tree(&sims, &missing);
            let what = format!("{:?} {at:?}: {set:?} mix {mix}", disks.shape);
            let read = tree.read(&at, &verify);
            let scrub = tree.check_every_copy(&at, &verify);
            let again = disks.tree(&sims, &missing);
            let batch = again.read_many(&[BlockRead { at, verify: &verify, is_reused: &|| false }; 2]);
            assert_eq!(batch.len(), 2, "{what}");
            assert!(batch[0] == read, "{what}: {:?} in a batch, {:?} alone", batch[0].faults, read.faults);
            assert!(batch[1].data == read.data, "{what}");
            if disks.are_too_many(&at, &set) {
                assert_eq!(read.data.err(), Some(VdevError::NoCopies), "{what}");
                continue;
            }
            assert!(read.data.as_ref() == Ok(&block), "{what}");
            assert!(scrub.data.as_ref() == Ok(&block), "{what}");
            for (kind, fault) in [
                (Trouble::Missing, FaultKind::Missing),
                (Trouble::Unreadable, FaultKind::Io),
                (Trouble::Lies, FaultKind::Checksum),
            ] {
                let guilty: Vec<VdevGuid> = set
                    .iter()
                    .enumerate()
                    .filter(|(k, _)| trouble(*k) == kind)
                    .map(|(_, i)| guid(*i))
                    .collect();
                assert_eq!(culprits(&scrub, fault), guilty, "{what}: {fault:?}");
                assert!(culprits(&read, fault).iter().all(|leaf| guilty.contains(leaf)), "{what}: {fault:?}");
            }
        }
    }
}

#[test]
fn single_leaf() {
    survive(Shape::Leaf, Ashift(9), extent(0, 512, 5));
    survive(Shape::Leaf, Ashift(12), extent(40960, 131072, 5));
}

#[test]
fn mirrors() {
    survive(Shape::Mirror(2), Ashift(9), extent(512, 1536, 5));
    survive(Shape::Mirror(3), Ashift(12), extent(8192, 20480, 5));
}

#[test]
fn raidz1() {
    for (offset, psize) in [(0, 512), (3584, 1536), (1 << 20, 4608), ((1 << 20) + 512, 20480), (5120, 131072)]
    {
        survive(Shape::raidz(4, 1), Ashift(9), extent(offset, psize, 5));
    }
    // A block smaller than a sector: for parity, the rest of the sector counts as zeros.
    survive(Shape::raidz(3, 1), Ashift(12), extent(0, 512, 5));
    survive(Shape::raidz(3, 1), Ashift(12), extent(4096, 6144, 5));
}

#[test]
fn raidz2() {
    for (offset, psize) in [(0, 4096), (28672, 16384), (1048576, 36864), (4096, 131072)] {
        survive(Shape::raidz(5, 2), Ashift(12), extent(offset, psize, 5));
    }
}

#[test]
fn raidz3() {
    for (offset, psize) in [(0, 512), (512, 1536), (3584, 9728)] {
        survive(Shape::raidz(6, 3), Ashift(9), extent(offset, psize, 5));
    }
}

fn expanded(children: usize, nparity: u8, txgs: &[u64], running: Option<ReflowState>) -> Shape {
    let expansion = Expansion { txgs: txgs.iter().map(|t| Txg(*t)).collect(), running };
    Shape::Raidz { children, nparity, expansion }
}

#[test]
fn expanded_raidz() {
    for birth in [49, 60, 95] {
        for (offset, psize) in [(0, 512), (5120, 3072), (1 << 20, 17408)] {
            survive(expanded(5, 1, &[50, 90], None), Ashift(9), extent(offset, psize, birth));
        }
        survive(expanded(6, 2, &[50, 90], None), Ashift(9), extent(4608, 8704, birth));
    }
}

#[test]
fn expanding_raidz() {
    let running = |offset| Some(ReflowState { offset, in_scratch: false });
    // The block starts at 64 KiB: not copied, being copied (some rows at each place), copied.
    for copied in [0, 65536 + 6 * 512, 65536 + 12 * 512, 1 << 20] {
        survive(expanded(5, 1, &[], running(copied)), Ashift(9), extent(65536, 8704, 30));
        survive(expanded(6, 2, &[20], running(copied)), Ashift(9), extent(65536, 8704, 30));
    }
}

#[test]
fn expanding_raidz_with_a_valid_scratch_copy() {
    let running = Some(ReflowState { offset: 7168 * 512 * 5, in_scratch: true });
    survive(expanded(5, 1, &[], running), Ashift(9), extent(5120, 3072, 30));
}

const DRAID: DraidParams =
    DraidParams { children: 8, ndata: 2, nparity: 2, nspares: 2, ngroups: 3, ashift: Ashift(12) };

#[test]
fn draid() {
    let stripe = 4 * 4096;
    for (offset, psize) in [(0, 4096), (stripe, 12288), (2 * stripe, 69632)] {
        survive(Shape::Draid(DRAID), Ashift(12), extent(offset, psize, 5));
    }
    // Across the end of a group: two rows on different children.
    survive(Shape::Draid(DRAID), Ashift(12), extent((64 << 20) - stripe, 20480, 5));
}

#[test]
fn different_leaves_lie_in_different_stripes() {
    // No set of whole columns explains this; the stripes have to be solved one by one.
    for (shape, psize, pairs) in [
        (Shape::raidz(4, 1), 6 * 512, vec![(0, 0), (2, 1)]),
        (Shape::raidz(5, 1), 12 * 512, vec![(1, 0), (2, 1), (4, 2)]),
        (Shape::raidz(5, 2), 24 * 512, vec![(0, 0), (2, 1), (3, 2), (4, 3), (1, 4), (0, 5)]),
    ] {
        let disks = Disks::new(shape, Ashift(9));
        let at = extent(0, psize, 5);
        let block = disks.write(&at, 3);
        let sims = disks.simulated();
        for (disk, stripe) in &pairs {
            sims[*disk].flip(DeviceOffset(0x40_0000 + stripe * 512 + 5), 1, 0x40);
        }
        let tree = disks.tree(&sims, &[]);
        let read = tree.read(&at, &|data| data == block);
        assert!(read.data.as_ref() == Ok(&block), "{:?}", disks.shape);
        let mut guilty: Vec<VdevGuid> = pairs.iter().map(|(disk, _)| guid(*disk)).collect();
        guilty.sort();
        guilty.dedup();
        assert_eq!(culprits(&read, FaultKind::Checksum), guilty);
    }
}

#[test]
fn expanded_rows_with_different_liars() {
    let disks = Disks::new(expanded(5, 1, &[50], None), Ashift(9));
    let at = extent(0, 12 * 512, 40);
    let block = disks.write(&at, 3);
    let map = disks.shape.map(Ashift(9), &at).unwrap();
    let sims = disks.simulated();
    let mut guilty = Vec::new();
    for (row, column) in [(0, 1), (1, 2), (3, 3)] {
        let column = map.rows[row].columns[column];
        sims[column.child].garble(DeviceOffset((0x40_0000 + column.at) as u64), 512);
        guilty.push(guid(column.child));
    }
    guilty.sort();
    guilty.dedup();
    let read = disks.tree(&sims, &[]).read(&at, &|data| data == block);
    assert!(read.data.as_ref() == Ok(&block));
    assert_eq!(culprits(&read, FaultKind::Checksum), guilty);
}

#[test]
fn lies_beyond_the_redundancy_are_a_wrong_checksum_of_everybody() {
    for shape in [Shape::Leaf, Shape::Mirror(2), Shape::raidz(4, 1)] {
        let disks = Disks::new(shape, Ashift(9));
        let at = extent(0, 4096, 5);
        disks.write(&at, 3);
        let tree = disks.tree(&disks.simulated(), &[]);
        let read = tree.read(&at, &|_| false);
        assert_eq!(read.data.as_ref().err(), Some(&VdevError::WrongChecksum));
        let holders: Vec<VdevGuid> = disks.holders(&at).into_iter().map(guid).collect();
        assert_eq!(culprits(&read, FaultKind::Checksum), holders);
        assert_eq!(tree.read_quietly(&at, &|_| false), Err(VdevError::WrongChecksum));
    }
}

#[test]
fn a_scrub_finds_wrong_parity_and_padding() {
    let draid = Disks::new(Shape::Draid(DRAID), Ashift(12));
    let raidz = Disks::new(Shape::raidz(5, 2), Ashift(12));
    for (disks, psize) in [(draid, 12288), (raidz, 36864)] {
        let at = extent(0, psize, 5);
        let block = disks.write(&at, 3);
        let map = disks.shape.map(Ashift(12), &at).unwrap();
        for column in &map.rows[0].columns {
            for sector in 0..column.stored / 4096 {
                let sims = disks.simulated();
                let place = DeviceOffset((0x40_0000 + column.at) as u64 + sector * 4096 + 77);
                sims[column.child].flip(place, 1, 1);
                let tree = disks.tree(&sims, &[]);
                let scrub = tree.check_every_copy(&at, &|data| data == block);
                assert!(scrub.data.as_ref() == Ok(&block));
                assert_eq!(
                    culprits(&scrub, FaultKind::Checksum),
                    [guid(column.child)],
                    "{column:?} {sector}"
                );
                assert_eq!(scrub.faults.len(), 1);
                let counted = tree.status().find(guid(column.child)).unwrap().checksum_errors;
                assert_eq!(counted, 1);
            }
        }
    }
}

#[test]
fn attempts_are_bounded() {
    // Three lying leaves of twelve with triple parity take hundreds of attempts; a block without right bytes
    // must not exceed the limit.
    let disks = Disks::new(Shape::raidz(40, 3), Ashift(9));
    let at = extent(0, 37 * 512, 5);
    disks.write(&at, 3);
    let tree = disks.tree(&disks.simulated(), &[]);
    let attempts = std::cell::Cell::new(0);
    let read = tree.read(&at, &|_| {
        attempts.set(attempts.get() + 1);
        false
    });
    assert_eq!(read.data.as_ref().err(), Some(&VdevError::WrongChecksum));
    assert!(attempts.get() <= cenote_vdev::tree::ATTEMPTS_MAX + 2, "{}", attempts.get());
}

/// A disk that records the number of reads of each call.
#[derive(Debug)]
struct Counting {
    disk: Arc<MemoryDevice>,
    calls: Mutex<Vec<usize>>,
}

impl Device for Counting {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.calls.lock().unwrap().push(1);
        self.disk.read_at(buf, at)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        self.calls.lock().unwrap().push(requests.len());
        self.disk.read_many(requests);
    }
}

#[test]
fn all_leaf_reads_of_a_batch_are_handed_out_before_it_waits() {
    for (shape, reads) in [(Shape::Mirror(2), 8), (Shape::raidz(4, 1), 24)] {
        let disks = Disks::new(shape, Ashift(9));
        // Eight blocks of three sectors, spread over both sides of the mirror; one is on neither.
        let mut extents: Vec<Extent> = (0..8).map(|i| extent(i << 20, 1536, 5)).collect();
        let blocks: Vec<Vec<u8>> = extents.iter().map(|at| disks.write(at, at.offset.0)).collect();
        extents.push(Extent { vdev: VdevId(7), ..extents[0] });
        let counting: Vec<Arc<Counting>> = disks
            .media
            .iter()
            .map(|disk| Arc::new(Counting { disk: Arc::clone(disk), calls: Mutex::default() }))
            .collect();
        let devices: HashMap<VdevGuid, Arc<dyn Device>> = counting
            .iter()
            .enumerate()
            .map(|(i, disk)| (guid(i), Arc::clone(disk) as Arc<dyn Device>))
            .collect();
        let tree = VdevTree::open(&disks.shape.config(Ashift(9)), &devices, disks.shape.reflow()).unwrap();
        let verifies: Vec<_> = blocks.iter().map(|block| move |data: &[u8]| data == block).collect();
        let nothing = |_: &[u8]| false;
        let batch: Vec<BlockRead<'_>> = extents
            .iter()
            .enumerate()
            .map(|(i, at)| {
                let verify = verifies.get(i).map_or(&nothing as _, |verify| verify as _);
                BlockRead { at: *at, verify, is_reused: &|| false }
            })
            .collect();
        let done = tree.read_many(&batch);
        for (read, block) in done.iter().zip(&blocks) {
            assert!(read.data.as_ref() == Ok(block) && read.faults.is_empty(), "{:?}", disks.shape);
        }
        assert_eq!(done[8].data, Err(VdevError::NoVdev { vdev: VdevId(7) }));
        let calls: Vec<Vec<usize>> = counting.iter().map(|disk| disk.calls.lock().unwrap().clone()).collect();
        assert!(calls.iter().all(|calls| calls.len() == 1), "{:?}: {calls:?}", disks.shape);
        assert_eq!(calls.iter().flatten().sum::<usize>(), reads, "{:?}: {calls:?}", disks.shape);
    }
}
