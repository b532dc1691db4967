//! Measures the speed of allocating and freeing space: `cargo run --release -p cenote-zio --example
//! alloc_speed`.
//!
//! First on an empty vdev, then on one whose metaslabs are each fragmented into a million segments.

use cenote_zio::alloc::{AllocClass, Allocator, MetaslabHint, Request, SpaceSource, TopSpace};
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{Ashift, Dva, NvList, NvValue, Psize, Txg, VdevGuid, VdevId};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use vdev::device::Device;
use vdev::device::memory::MemoryDevice;
use vdev::env::Random;
use vdev::tree::{RangeSet, VdevTree};

const SHIFT: u32 = 34;
const METASLABS: u64 = 16;
const BLOCKS: usize = 100_000;

struct Tx(u64);

impl cenote_zio::AllocTx for Tx {
    fn txg(&self) -> Txg {
        Txg(self.0)
    }
}

struct Source {
    is_fragmented: bool,
}

impl SpaceSource for Source {
    fn free_space(&self, _: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        let (start, end) = (metaslab << SHIFT, (metaslab + 1) << SHIFT);
        if !self.is_fragmented {
            return Ok(std::iter::once(start..end).collect());
        }
        let mut random = Random::from_seed(metaslab);
        let (mut at, mut free) = (start, RangeSet::new());
        while at + (64 << 10) < end {
            let len = (1 + random.below(3)) << 12;
            free.insert(at..at + len);
            at += len + ((1 + random.below(4)) << 12);
        }
        Ok(free)
    }
}

fn tree() -> Arc<VdevTree> {
    let mut leaf = NvList::new();
    leaf.push("type", "file");
    leaf.push("id", 0_u64);
    leaf.push("guid", 2_u64);
    leaf.push("ashift", 12_u64);
    leaf.push("asize", METASLABS << SHIFT);
    let mut root = NvList::new();
    root.push("type", "root");
    root.push("id", 0_u64);
    root.push("guid", 1_u64);
    root.push("children", NvValue::ListArray(vec![leaf]));
    let root = VdevNode::from_nvlist(&root).expect("a configuration");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new((METASLABS << SHIFT) + (16 << 20)));
    let devices = HashMap::from([(VdevGuid(2), device)]);
    VdevTree::open(&root, &devices, ReflowInfo::default()).expect("a tree")
}

fn allocator(is_fragmented: bool) -> Allocator {
    let hint = MetaslabHint { allocated: 8 << 30, largest_free: 8 << 10, never_used: !is_fragmented };
    let top = TopSpace {
        vdev: VdevId(0),
        class: AllocClass::Normal,
        ashift: Ashift(12),
        metaslab_shift: SHIFT,
        asize: METASLABS << SHIFT,
        allocating: true,
        metaslabs: vec![hint; METASLABS as usize],
    };
    Allocator::new(tree(), vec![top], Arc::new(Source { is_fragmented }))
}

fn timed<T>(what: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what:40} {:8.0} ns each", start.elapsed().as_nanos() as f64 / count as f64);
    result
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4 / 1024
}

fn run(name: &str, alloc: &Allocator, psize: u64, copies: u8, txg: u64) {
    let want = Request { class: AllocClass::Normal, psize: Psize(psize), copies, near: None };
    let wants = vec![want; BLOCKS];
    println!("-- {name}: {BLOCKS} blocks of {psize}, {copies} copies");
    let dvas = timed("allocate_batch", BLOCKS, || alloc.allocate_batch(&wants, &Tx(txg)));
    let failed = dvas.iter().filter(|dvas| dvas.is_err()).count();
    let mut dvas: Vec<Dva> = dvas.into_iter().flatten().flatten().collect();
    timed("allocate", BLOCKS, || {
        for want in &wants {
            dvas.extend(alloc.allocate(want, &Tx(txg)).unwrap_or_default());
        }
    });
    let changes = timed("take_changes", dvas.len(), || alloc.take_changes(Txg(txg)));
    let pieces: usize = changes.iter().map(|change| change.allocs.iter().count()).sum();
    println!("{failed} failed, {} metaslabs, {pieces} pieces", changes.len());
    let mut random = Random::from_seed(1);
    for i in (1..dvas.len()).rev() {
        dvas.swap(i, random.below(i as u64 + 1) as usize);
    }
    timed("free, in random order", dvas.len(), || {
        dvas.iter().for_each(|dva| alloc.free(dva, &Tx(txg + 1)).expect("it was allocated"));
    });
    timed("take_changes", dvas.len(), || alloc.take_changes(Txg(txg + 1)));
    timed("synced", dvas.len(), || (txg..txg + 4).for_each(|txg| alloc.synced(Txg(txg))));
}

fn main() {
    let alloc = allocator(false);
    run("never used", &alloc, 4096, 1, 10);
    run("never used", &alloc, 128 << 10, 1, 20);
    run("never used", &alloc, 16 << 10, 3, 30);
    let shared: Vec<_> = (0..2).collect();
    let want = Request { class: AllocClass::Normal, psize: Psize(4096), copies: 1, near: None };
    timed("allocate, two threads", 2 * BLOCKS, || {
        std::thread::scope(|scope| {
            for _ in &shared {
                scope.spawn(|| (0..BLOCKS).for_each(|_| drop(alloc.allocate(&want, &Tx(40)))));
            }
        });
    });

    let alloc = allocator(true);
    let before = resident();
    timed("load a metaslab", 1, || alloc.allocate(&want, &Tx(10)).expect("room"));
    println!("{} MiB more are resident", resident() - before);
    run("fragmented", &alloc, 4096, 1, 10);
    run("fragmented", &alloc, 12 << 10, 1, 20);
    run("fragmented", &alloc, 8 << 10, 3, 30);
    println!("{} MiB more are resident", resident() - before);
    timed("a block that fits nowhere", 1, || {
        alloc.allocate(&Request { psize: Psize(1 << 20), ..want }, &Tx(50)).is_err()
    });
}
