//! Measures the speed of writing to a disk in memory: `cargo run --release -p cenote-zio --example
//! write_speed`.

use cenote_zio::alloc::{AllocClass, Allocator, MetaslabHint, SpaceSource, TopSpace};
use cenote_zio::{AllocTx, NewBlock, WritePolicy, Zio};
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{
    Ashift, BlockPtr, ChecksumId, CompressionId, Level, NvList, NvValue, ObjType, Txg, VdevGuid, VdevId,
};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use vdev::VdevTree;
use vdev::device::Device;
use vdev::device::memory::MemoryDevice;
use vdev::env::{Env, Random};
use vdev::tree::RangeSet;

const DISK: u64 = 8 << 30;
const METASLAB_SHIFT: u32 = 29;

struct Tx;

impl AllocTx for Tx {
    fn txg(&self) -> Txg {
        Txg(10)
    }
}

struct Empty;

impl SpaceSource for Empty {
    fn free_space(&self, _: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        let start = metaslab << METASLAB_SHIFT;
        let mut free = RangeSet::new();
        free.insert(start..start + (1 << METASLAB_SHIFT));
        Ok(free)
    }
}

fn pool() -> Result<Zio, Box<dyn Error>> {
    let mut disk = NvList::new();
    disk.push("type", "file");
    disk.push("id", 0u64);
    disk.push("guid", 1000u64);
    disk.push("ashift", 9u64);
    disk.push("asize", 0u64);
    let mut root = NvList::new();
    root.push("type", "root");
    root.push("id", 0u64);
    root.push("guid", 1u64);
    root.push("children", NvValue::ListArray(vec![disk]));
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK));
    let devices = HashMap::from([(VdevGuid(1000), device)]);
    let tree = VdevTree::open(&VdevNode::from_nvlist(&root)?, &devices, ReflowInfo::default())?;
    let hint = MetaslabHint { allocated: 0, largest_free: 1 << METASLAB_SHIFT, never_used: true };
    let top = TopSpace {
        vdev: VdevId(0),
        class: AllocClass::Normal,
        ashift: Ashift(9),
        metaslab_shift: METASLAB_SHIFT,
        asize: 15 << METASLAB_SHIFT,
        allocating: true,
        metaslabs: vec![hint; 15],
    };
    let zio = Zio::new(Arc::clone(&tree));
    zio.set_allocator(Arc::new(Allocator::new(tree, vec![top], Arc::new(Empty))));
    Ok(zio)
}

fn blocks(count: usize, size: usize, compression: CompressionId) -> Vec<NewBlock> {
    let policy = WritePolicy {
        checksum: ChecksumId::Fletcher4,
        compression,
        level: 0,
        copies: 1,
        gang_copies: 2,
        obj_type: ObjType::PLAIN_FILE,
        tree_level: Level(0),
        class: AllocClass::Normal,
        embed: true,
        hole_birth: true,
        small_blocks: 0,
        nopwrite: false,
    };
    let mut random = Random::from_seed(1);
    let mut block = |_| {
        let mut data = vec![0; size];
        random.fill(&mut data);
        data.chunks_mut(64).step_by(2).for_each(|chunk| chunk.fill(7));
        let policy = policy.clone();
        NewBlock {
            data: Arc::new(data),
            stored: None,
            seal: None,
            policy,
            old: BlockPtr::HOLE,
            in_place: false,
            fill: 1,
        }
    };
    (0..count).map(&mut block).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for workers in [1, 2] {
        let env = Env::system().with_workers(workers);
        for (count, size) in [(100_000, 512), (50_000, 4096), (4_000, 131_072)] {
            for compression in [CompressionId::Off, CompressionId::Lz4] {
                let (zio, blocks) = (pool()?, blocks(count, size, compression));
                let start = Instant::now();
                let results = zio.write_many(&blocks, &Tx, &env);
                let ns = start.elapsed().as_nanos() as f64;
                if results.iter().any(Result::is_err) {
                    return Err("a block was not written".into());
                }
                println!(
                    "{workers} workers, {count} x {size}, {compression}: {:.0} ns a block, {:.2} GB/s",
                    ns / count as f64,
                    (count * size) as f64 / ns
                );
            }
        }
    }
    Ok(())
}
