//! How fast blocks come up from the leaves and go down: `cargo run --release -p cenote-vdev --example
//! vdev_speed [FOLDER]`.
//!
//! Makes images in FOLDER (default: the system's temporary folder) and reads blocks of 128 KiB
//! through each layout with one and with four threads, without verifying: what is left is the cost
//! of this crate and of the kernel. Then writes batches of 1 MiB blocks one behind the other, with the
//! processor time that takes.
#![allow(clippy::disallowed_types, clippy::print_stdout)]

use cenote_vdev::VdevTree;
use cenote_vdev::device::Device;
use cenote_vdev::device::file::{Access, FileDevice, open_exclusive};
use cenote_vdev::tree::{Extent, Write};
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{AllocOffset, NvList, NvValue, Psize, Txg, VdevGuid, VdevId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const IMAGE: u64 = 256 << 20;
const BLOCK: u64 = 128 << 10;

fn node(kind: &str, id: u64, guid: u64) -> NvList {
    let mut list = NvList::new();
    list.push("type", kind);
    list.push("id", id);
    list.push("guid", guid);
    list
}

fn config(kind: &str, children: u64, nparity: u64) -> VdevNode {
    let mut top = node(kind, 0, 2);
    top.push("ashift", 12u64);
    if nparity > 0 {
        top.push("nparity", nparity);
    }
    if kind != "file" {
        let leaves = (0..children).map(|i| node("file", i, 10 + i)).collect();
        top.push("children", NvValue::ListArray(leaves));
    }
    let mut root = node("root", 0, 1);
    root.push("children", NvValue::ListArray(vec![top]));
    VdevNode::from_nvlist(&root).expect("a configuration")
}

fn measure(name: &str, folder: &Path, config: &VdevNode, width: u64, access: Access, missing: Option<u64>) {
    let mut devices: HashMap<VdevGuid, Arc<dyn Device>> = HashMap::new();
    for leaf in config.leaves() {
        if Some(leaf.guid.0) == missing {
            continue;
        }
        let path = folder.join(format!("{}", if leaf.guid.0 == 2 { 10 } else { leaf.guid.0 }));
        devices.insert(leaf.guid, Arc::new(FileDevice::open(&path, access).expect("an image")));
    }
    let tree = VdevTree::open(config, &devices, ReflowInfo::default()).expect("a tree");
    for threads in [1, 4] {
        let next = AtomicU64::new(0);
        let asize = tree.psize_to_asize(VdevId(0), Psize(BLOCK), Txg(5)).expect("a size").0;
        let blocks = (IMAGE - (8 << 20)) * width / asize;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let i = next.fetch_add(1, Ordering::Relaxed)
                        && i < blocks
                    {
                        let offset = AllocOffset(i * asize);
                        let at = Extent { vdev: VdevId(0), offset, psize: Psize(BLOCK), birth: Txg(5) };
                        tree.read(&at, &|data| data.len() as u64 == BLOCK).data.expect("a block");
                    }
                });
            }
        });
        let rate = (blocks * BLOCK) as f64 / start.elapsed().as_secs_f64() / 1e9;
        let state = tree.status().state;
        println!("{name:24} {access:?} {threads} threads: {rate:.2} GB/s {state:?} {blocks}");
    }
}

/// Seconds of processor time of this process so far, the kernel's work for it included.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // 14th and 15th of the line, in hundredths.
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn measure_writing(name: &str, folder: &Path, config: &VdevNode, width: u64, access: Access, batch: usize) {
    const LARGE: u64 = 1 << 20;
    let leaves = config.leaves().map(|leaf| {
        let path = folder.join(format!("{}", if leaf.guid.0 == 2 { 10 } else { leaf.guid.0 }));
        (leaf.guid, open_exclusive(&path, access).expect("an image"))
    });
    let tree = VdevTree::open(config, &leaves.collect(), ReflowInfo::default()).expect("a tree");
    let asize = tree.psize_to_asize(VdevId(0), Psize(LARGE), Txg(5)).expect("a size").0;
    let count = (IMAGE - (8 << 20)) * width / asize;
    // As a Vec of the caller comes: aligned to nothing in particular.
    let blocks: Vec<Vec<u8>> = (0..batch).map(|i| vec![i as u8; LARGE as usize]).collect();
    let extent = |i: u64| {
        let offset = AllocOffset(i * asize);
        Extent { vdev: VdevId(0), offset, psize: Psize(LARGE), birth: Txg(5) }
    };
    let since = tree.mark();
    let (start, processor) = (Instant::now(), processor_time());
    let all: Vec<u64> = (0..count).collect();
    for places in all.chunks(batch) {
        let writes: Vec<Write<'_>> =
            places.iter().zip(&blocks).map(|(i, data)| Write { at: extent(*i), data }).collect();
        assert!(tree.write_many(&writes).iter().all(Result::is_ok));
    }
    let written = start.elapsed().as_secs_f64();
    tree.flush(&[VdevId(0)], since).expect("flushed");
    let (elapsed, processor) = (start.elapsed().as_secs_f64(), processor_time() - processor);
    let gigabytes = (count * LARGE) as f64 / 1e9;
    println!(
        "write {name:20} {access:?} batches of {batch:2}: {:.2} GB/s, {:.2} with flush, {:.2} s processor per GB",
        gigabytes / written,
        gigabytes / elapsed,
        processor / gigabytes
    );
}

fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into).join("vdev-speed");
    std::fs::create_dir_all(&folder).expect("a folder");
    for i in 0..6 {
        let path = folder.join(format!("{}", 10 + i));
        std::fs::write(&path, vec![i as u8 + 1; IMAGE as usize]).expect("an image");
        std::fs::File::open(&path).and_then(|file| file.sync_all()).expect("written");
    }
    for access in [Access::Cached, Access::Direct] {
        measure("leaf", &folder, &config("file", 0, 0), 1, access, None);
        measure("mirror of 2", &folder, &config("mirror", 2, 0), 1, access, None);
        measure("raidz2 of 6", &folder, &config("raidz", 6, 2), 6, access, None);
        measure("raidz2 of 6, one missing", &folder, &config("raidz", 6, 2), 6, access, Some(11));
    }
    for access in [Access::Cached, Access::Direct] {
        for batch in [1, 16] {
            measure_writing("leaf", &folder, &config("file", 0, 0), 1, access, batch);
            measure_writing("mirror of 2", &folder, &config("mirror", 2, 0), 1, access, batch);
            measure_writing("raidz1 of 5", &folder, &config("raidz", 5, 1), 5, access, batch);
            measure_writing("raidz2 of 6", &folder, &config("raidz", 6, 2), 6, access, batch);
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
