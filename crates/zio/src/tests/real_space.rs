//! Writing with the real allocator on vdevs that are nearly full and fragmented.

use super::fake::{Pool, Top, Tx, block, policy, text};
use crate::alloc::{Allocator, MetaslabHint, SpaceSource, TopSpace};
use crate::{AllocClass, NewBlock, WritePolicy, Zio, ZioError};
use format::{Ashift, BlockPtr, BpKind, CompressionId, Txg, VdevId};
use std::error::Error;
use std::sync::Arc;
use vdev::env::Random;
use vdev::tree::RangeSet;

const SHIFT: u32 = 24;

/// A source in which every metaslab has holes of a few sectors, the same on every vdev.
struct Holes {
    unit: u64,
    seed: u64,
}

impl SpaceSource for Holes {
    fn free_space(&self, _: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        let mut random = Random::from_seed(self.seed + metaslab);
        let (start, end) = (metaslab << SHIFT, (metaslab + 1) << SHIFT);
        let mut free = RangeSet::new();
        let mut at = start;
        while at < end {
            let (hole, used) = (1 + random.below(24), 1 + random.below(200));
            free.insert(at..(at + hole * self.unit).min(end));
            at += (hole + used) * self.unit;
        }
        Ok(free)
    }
}

/// The pool with this many metaslabs on each vdev.
fn fragmented(tops: &[Top], ashift: u8, metaslabs: usize, seed: u64) -> (Pool, Arc<Allocator>) {
    let mut pool = Pool::new(tops, u64::from(ashift));
    let tree = pool.zio.tree();
    let spaces = (0..tops.len()).map(|i| TopSpace {
        vdev: VdevId(i as u32),
        class: AllocClass::Normal,
        ashift: Ashift(ashift),
        metaslab_shift: SHIFT,
        asize: (metaslabs as u64) << SHIFT,
        allocating: true,
        metaslabs: vec![MetaslabHint::default(); metaslabs],
    });
    // Granularity of the space of a block on a single-parity RAID-Z.
    let unit = 2 << ashift;
    let source = Arc::new(Holes { unit, seed });
    let allocator = Arc::new(Allocator::new(Arc::clone(&tree), spaces.collect(), source));
    pool.zio = Zio::new(tree);
    pool.zio.set_allocator(Arc::clone(&allocator));
    (pool, allocator)
}

fn sum(set: &RangeSet) -> u64 {
    set.iter().map(|range| range.end - range.start).sum()
}

/// Bytes that a txg allocated and freed.
fn changes(allocator: &Allocator, txg: u64) -> (u64, u64) {
    let changes = allocator.take_changes(Txg(txg));
    (changes.iter().map(|c| sum(&c.allocs)).sum(), changes.iter().map(|c| sum(&c.frees)).sum())
}

fn charged(bps: &[BlockPtr]) -> u64 {
    bps.iter().flat_map(BlockPtr::dvas).map(|dva| dva.asize.0).sum()
}

#[test]
fn until_the_pool_is_full() {
    for (seed, (tops, ashift)) in [
        (vec![Top::Single, Top::Single], 9),
        (vec![Top::Mirror(2)], 12),
        (vec![Top::Raidz(3, 1), Top::Raidz(3, 1)], 9),
    ]
    .into_iter()
    .enumerate()
    {
        let (pool, allocator) = fragmented(&tops, ashift, if ashift == 12 { 24 } else { 4 }, seed as u64);
        let mut random = Random::from_seed(seed as u64);
        let (mut written, mut gangs, mut full) = (Vec::new(), 0, false);
        while !full {
            let blocks: Vec<NewBlock> = (0..40)
                .map(|_| {
                    let compression = if random.one_in(2) { CompressionId::Off } else { CompressionId::Lz4 };
                    let copies = 1 + u8::from(random.one_in(5));
                    let policy = WritePolicy { compression, copies, ..policy() };
                    block(
                        text(512 * (1 + random.below(100 << (ashift - 7)) as usize), random.next()),
                        &policy,
                    )
                })
                .collect();
            for (result, new) in pool.zio.write_many(&blocks, &Tx(7), &pool.env).into_iter().zip(blocks) {
                match result {
                    Ok(bp) => {
                        gangs += usize::from(bp.kind() == BpKind::Gang);
                        written.push((bp, new));
                    }
                    Err(ZioError::Allocate { .. }) => full = true,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(gangs > 10, "{tops:?}: {gangs} gangs of {}", written.len());
        for (bp, new) in &written {
            pool.check(bp, new, 7);
        }
        let bps: Vec<BlockPtr> = written.iter().map(|(bp, _)| *bp).collect();
        let total = charged(&bps);
        assert_eq!(changes(&allocator, 7), (total, 0), "what failed holds nothing");
        allocator.synced(Txg(7));
        for bp in &bps {
            pool.zio.free(bp, &Tx(8)).unwrap();
            assert!(pool.zio.free(bp, &Tx(8)).is_err(), "freed twice");
        }
        assert_eq!(changes(&allocator, 8), (0, total));
    }
}

/// A pool with empty vdevs and the real allocator.
fn empty(tops: &[Top], metaslabs: usize) -> (Pool, Arc<Allocator>) {
    let mut pool = Pool::new(tops, 9);
    let tree = pool.zio.tree();
    let hint = MetaslabHint { never_used: true, largest_free: 1 << SHIFT, ..MetaslabHint::default() };
    let spaces = (0..tops.len()).map(|i| TopSpace {
        vdev: VdevId(i as u32),
        class: AllocClass::Normal,
        ashift: Ashift(9),
        metaslab_shift: SHIFT,
        asize: (metaslabs as u64) << SHIFT,
        allocating: true,
        metaslabs: vec![hint; metaslabs],
    });
    let allocator = Arc::new(Allocator::new(Arc::clone(&tree), spaces.collect(), Arc::new(AllFree)));
    pool.zio = Zio::new(tree);
    pool.zio.set_allocator(Arc::clone(&allocator));
    (pool, allocator)
}

struct AllFree;

impl SpaceSource for AllFree {
    fn free_space(&self, _: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        Ok(std::iter::once(metaslab << SHIFT..(metaslab + 1) << SHIFT).collect())
    }
}

#[test]
fn after_a_vdev_is_lost_its_blocks_go_to_another() {
    for lost in 0..2 {
        let (pool, allocator) = empty(&[Top::Single, Top::Single], 4);
        let new = block(text(65_536, 1), &policy());
        pool.disks[lost].vanish();
        let mut bps = Vec::new();
        for _ in 0..20 {
            bps.push(pool.write(&new, 12).unwrap());
        }
        for bp in &bps {
            assert_eq!(bp.dvas().next().unwrap().vdev, VdevId(1 - lost as u32));
            pool.check(bp, &new, 12);
        }
        assert_eq!(changes(&allocator, 12), (charged(&bps), 0), "what failed holds nothing");
    }
}

/// A source whose first metaslab has an empty hint but cannot be read; the others have holes.
struct FirstBroken(Holes);

impl SpaceSource for FirstBroken {
    fn free_space(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        if metaslab == 0 { Err("broken".into()) } else { self.0.free_space(vdev, metaslab) }
    }
}

#[test]
fn a_metaslab_that_cannot_be_read_leaves_the_pieces_of_the_others() {
    let mut pool = Pool::new(&[Top::Single], 9);
    let tree = pool.zio.tree();
    let empty = MetaslabHint { largest_free: 1 << SHIFT, ..MetaslabHint::default() };
    let space = TopSpace {
        vdev: VdevId(0),
        class: AllocClass::Normal,
        ashift: Ashift(9),
        metaslab_shift: SHIFT,
        asize: 2 << SHIFT,
        allocating: true,
        metaslabs: vec![empty, MetaslabHint::default()],
    };
    let source = Arc::new(FirstBroken(Holes { unit: 512, seed: 3 }));
    let allocator = Arc::new(Allocator::new(Arc::clone(&tree), vec![space], source));
    pool.zio = Zio::new(tree);
    pool.zio.set_allocator(allocator);
    let new = block(text(131_072, 1), &policy());
    let bp = pool.write(&new, 12).unwrap();
    assert_eq!(bp.kind(), BpKind::Gang);
    pool.check(&bp, &new, 12);
}
