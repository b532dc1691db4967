//! Cuts the power at every single operation of a small writer that keeps the order of a pool: blocks, flush,
//! configurations, uberblock, flush. All blocks of the newest uberblock must then be readable.

use crate::common::{Shape, extent, guid, leaf};
use cenote_vdev::VdevTree;
use cenote_vdev::device::Device;
use cenote_vdev::device::sim::{Fate, Power, SimDisk};
use cenote_vdev::env::Random;
use cenote_vdev::label;
use cenote_vdev::label_write::{LabelWriteError, PackedConfig, init, write_configs, write_uberblocks};
use cenote_vdev::tree::{Extent, Write};
use format::uberblock::{Mmp, ReflowInfo, Uberblock};
use format::{Ashift, BlockPtr, Endian, NvList, Psize, Txg, VdevGuid, VdevId};
use std::collections::HashMap;
use std::sync::Arc;

const ASHIFT: Ashift = Ashift(9);
const SIZE: u64 = 64 << 20;
const TXGS: u64 = 6;

fn uberblock(txg: u64) -> Uberblock {
    Uberblock {
        version: 5000,
        txg: Txg(txg),
        guid_sum: 1,
        timestamp: txg,
        root: BlockPtr::from_words([0; 16]),
        software_version: 5000,
        mmp: Some(Mmp::default()),
        checkpoint_txg: Txg(0),
        reflow: ReflowInfo::default(),
        order: Endian::Little,
    }
}

fn label_config(shape: &Shape, disk: usize, txg: u64) -> NvList {
    let mut list = NvList::new();
    list.push("version", 5000u64);
    list.push("name", "tank");
    list.push("state", 0u64);
    list.push("txg", txg);
    list.push("pool_guid", 1u64);
    list.push("top_guid", 2u64);
    list.push("guid", guid(disk).0);
    list.push("vdev_children", 1u64);
    let children = (0..shape.children()).map(|i| leaf(i, guid(i))).collect();
    list.push("vdev_tree", shape.node(ASHIFT, children));
    list
}

fn tree(shape: &Shape, disks: &[Arc<SimDisk>]) -> Arc<VdevTree> {
    let devices: HashMap<VdevGuid, Arc<dyn Device>> =
        disks.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk) as Arc<dyn Device>)).collect();
    VdevTree::open(&shape.config(ASHIFT), &devices, ReflowInfo::default()).unwrap()
}

/// The blocks of a txg: always the same, placed after those of the previous txgs.
fn blocks(tree: &VdevTree, txg: u64) -> Vec<(Extent, Vec<u8>)> {
    let mut random = Random::from_seed(txg);
    let mut place = txg << 20;
    (0..3 + txg % 4)
        .map(|_| {
            let at = extent(place, 1 + random.below(20_000), txg);
            place += tree.psize_to_asize(VdevId(0), Psize(at.psize.0), at.birth).unwrap().0;
            let mut data = vec![0; at.psize.0 as usize];
            random.fill(&mut data);
            (at, data)
        })
        .collect()
}

/// Writes txgs until the power is off. Returns the last one that was acknowledged.
fn work(shape: &Shape, disks: &[Arc<SimDisk>]) -> u64 {
    let tree = tree(shape, disks);
    let all: Vec<VdevGuid> = (0..disks.len()).map(guid).collect();
    let mut done = 0;
    for txg in 1..=TXGS {
        let blocks = blocks(&tree, txg);
        let writes: Vec<Write<'_>> = blocks.iter().map(|(at, data)| Write { at: *at, data }).collect();
        let since = tree.mark();
        if tree.write_many(&writes).iter().any(Result::is_err) || tree.flush(&[VdevId(0)], since).is_err() {
            return done;
        }
        let pack = |i| PackedConfig::new(&label_config(shape, i, txg));
        let configs: Vec<Result<PackedConfig, LabelWriteError>> = (0..disks.len()).map(pack).collect();
        let labels = |which: &[usize]| {
            let leaves: Vec<(&dyn Device, &Result<PackedConfig, LabelWriteError>)> =
                disks.iter().zip(&configs).map(|(disk, config)| (&**disk as &dyn Device, config)).collect();
            let written = write_configs(&leaves, which).iter().all(Result::is_ok);
            written && tree.flush_leaves(&all).iter().all(Result::is_ok)
        };
        // Configurations change in every other txg.
        if txg % 2 == 0 && !labels(&[0, 2]) {
            return done;
        }
        let leaves: Vec<(&dyn Device, Ashift)> =
            disks.iter().map(|disk| (&**disk as &dyn Device, ASHIFT)).collect();
        let taken = write_uberblocks(&leaves, &uberblock(txg));
        if taken.iter().sum::<usize>() == 0 || tree.flush_leaves(&all).iter().any(Result::is_err) {
            return done;
        }
        done = txg;
        if txg % 2 == 0 && !labels(&[1, 3]) {
            return done;
        }
    }
    done
}

fn cut_everywhere(shape: &Shape) {
    let new_disks = |power: &Arc<Power>| -> Vec<Arc<SimDisk>> {
        (0..shape.children())
            .map(|i| {
                let disk = SimDisk::powered(SIZE, i as u64, Arc::clone(power));
                init(&disk, &label_config(shape, i, 0), &uberblock(0)).unwrap();
                Arc::new(disk)
            })
            .collect()
    };
    let mut seen = vec![0; TXGS as usize + 1];
    for cut in 0.. {
        let power = Power::new();
        let disks = new_disks(&power);
        power.cut_after(cut);
        let done = work(shape, &disks);
        let is_complete = !power.is_off();
        power.cut();
        for (seed, fate) in
            [Fate::Random, Fate::Random, Fate::InOrder, Fate::Kept, Fate::Lost].into_iter().enumerate()
        {
            let what = format!("{shape:?}: cut at {cut}, {fate:?}, seed {seed}");
            let power = Power::new();
            let found: Vec<Arc<SimDisk>> = disks
                .iter()
                .map(|disk| Arc::new(disk.power_on_after(fate, cut + seed as u64 * 1000, Arc::clone(&power))))
                .collect();
            let probes: Vec<label::Probe> = found.iter().map(|disk| label::probe(&**disk)).collect();
            let newest = probes.iter().filter_map(label::Probe::newest_uberblock);
            let newest = newest.map(|found| found.uberblock.txg.0).max().unwrap_or(0);
            assert!(newest >= done, "{what}: {newest} is older than {done}");
            assert!(newest <= done + 1, "{what}");
            let tree = tree(shape, &found);
            for (at, data) in (1..=newest).flat_map(|txg| blocks(&tree, txg)) {
                let read = tree.check_every_copy(&at, &|bytes| bytes == data);
                assert!(read.data.is_ok() && read.faults.is_empty(), "{what}: {at:?}: {:?}", read.faults);
            }
            for probe in &probes {
                let config = probe.config_at_most(Txg(newest)).expect("a configuration that is old enough");
                assert!(config.txg.0 + 1 >= newest, "{what}: a configuration of {}", config.txg);
            }
            seen[newest as usize] += 1;
        }
        if is_complete {
            break;
        }
    }
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}

#[test]
fn mirror() {
    cut_everywhere(&Shape::Mirror(2));
}

#[test]
fn raidz() {
    cut_everywhere(&Shape::raidz(3, 1));
}

#[test]
fn single() {
    cut_everywhere(&Shape::Leaf);
}

/// Writes acknowledged by `flush` are durable, even if the flush of another thread wrote them.
#[test]
fn flushes_of_several_threads() {
    for cut in [50, 333, 700, 1500] {
        let power = Power::new();
        let shape = Shape::raidz(3, 1);
        let disks: Vec<Arc<SimDisk>> =
            (0..3).map(|i| Arc::new(SimDisk::powered(SIZE, i, Arc::clone(&power)))).collect();
        let tree = tree(&shape, &disks);
        power.cut_after(cut);
        let durable: Vec<Extent> = std::thread::scope(|scope| {
            let work = |thread: u64| -> Vec<Extent> {
                let mut done = Vec::new();
                for i in 0.. {
                    let at = extent((thread * 1000 + i) * 8192, 1000 + i, 7);
                    let block = vec![(thread * 31 + i) as u8; at.psize.0 as usize];
                    let since = tree.mark();
                    if tree.write(&at, &block).is_err() || tree.flush(&[VdevId(0)], since).is_err() {
                        return done;
                    }
                    done.push(at);
                }
                done
            };
            let threads: Vec<_> = (0..6).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let found: Vec<Arc<SimDisk>> =
            disks.iter().map(|disk| Arc::new(disk.power_on_after(Fate::Lost, 1, Power::new()))).collect();
        let after = self::tree(&shape, &found);
        assert!(!durable.is_empty());
        for at in durable {
            let (thread, i) = (at.offset.0 / 8192 / 1000, at.offset.0 / 8192 % 1000);
            let right = |bytes: &[u8]| bytes.iter().all(|byte| *byte == (thread * 31 + i) as u8);
            assert!(after.read(&at, &right).data.is_ok(), "cut at {cut}: {at:?}");
        }
    }
}
