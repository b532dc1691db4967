//! Pools that were made to do harm: blocks whose checksums are right and whose contents are not.
//!
//! Golden pools are opened while a seeded part of their blocks is changed on the way up, after the
//! checksum was verified. Whatever then happens must be an error or data: no panic, no hang, no
//! memory beyond what the healthy pool needs.

use cenote::verify;
use cenote::{Dataset, Node, OpenOptions, Pool};
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::{Fixture, keys};

/// Most that the process may hold at any time, with all that the test itself needs.
const RESIDENT_MAX: u64 = 512 << 20;
/// Files that are looked into for each dataset; a mutated directory may name any number.
const FILES_MAX: usize = 200;

fn next(state: &mut u64) -> u64 {
    // SplitMix64: every seed gives a different, repeatable series.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Changes one block in `one_in`: some bytes, some whole words, to values that hurt.
fn spoil(seed: u64, one_in: u64) {
    let state = AtomicU64::new(seed);
    zio::testing::set_mutator(Some(Box::new(move |_, bytes| {
        let mut local = state.fetch_add(0x1234_5678_9abc_def1, Ordering::Relaxed);
        if bytes.len() < 8 || next(&mut local) % one_in != 0 {
            return;
        }
        for _ in 0..=next(&mut local) % 4 {
            let at = next(&mut local) as usize % (bytes.len() - 7);
            match next(&mut local) % 4 {
                0 => bytes[at] ^= 1 << (next(&mut local) % 8),
                1 => bytes[at] = next(&mut local) as u8,
                2 => bytes[at & !7..][..8].copy_from_slice(&u64::MAX.to_le_bytes()),
                _ => {
                    let small = (next(&mut local) % 300).to_le_bytes();
                    bytes[at & !7..][..8].copy_from_slice(&small);
                }
            }
        }
    })));
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Asks a pool for everything that the commands ask for. Results do not matter.
fn use_everything(name: &str, fixture: &Fixture) {
    let options = fixture.images().into_iter().fold(OpenOptions::new().cache_bytes(8 << 20), OpenOptions::search);
    let Ok(pool) = Pool::open(name, &options) else { return };
    for dataset in &fixture.manifest().datasets {
        if let Some(material) = dataset.property("keyformat").and_then(keys::material) {
            let _ = pool.load_key(&dataset.name, &material);
        }
    }
    let _ = pool.spa().space();
    let _ = pool.spa().history();
    for dataset in pool.datasets().unwrap_or_default().iter().take(40) {
        use_dataset(dataset);
    }
    let _ = cenote::inspect::census(&pool);
    let _ = cenote::inspect::blocks(&pool, cenote::inspect::Check::Nothing, true);
    let options = verify::Options { threads: 2, every_copy: false, ..verify::Options::default() };
    let _ = verify::verify(&pool, &options, &());
}

fn use_dataset(dataset: &Dataset) {
    let _ = dataset.dsl().holds();
    let _ = dataset.dsl().bookmarks();
    let _ = dataset.dsl().clones();
    if let Ok(volume) = dataset.volume() {
        let _ = volume.read_at(0, &mut [0; 8192]);
        let _ = volume.next_data(0).and_then(|at| volume.next_hole(at.unwrap_or(0)));
    }
    let Ok(fs) = dataset.filesystem() else { return };
    let mut todo = vec![fs.root()];
    let mut seen = 0;
    while let Some(id) = todo.pop() {
        seen += 1;
        let Ok(node) = fs.node(id) else { continue };
        use_node(&node);
        let _ = fs.path_of(id);
        if let (true, Ok(entries)) = (node.is_dir(), node.entries()) {
            for entry in entries.flatten().take(FILES_MAX) {
                let _ = fs.lookup(&node, &entry.name);
                if seen + todo.len() < FILES_MAX {
                    todo.push(entry.id);
                }
            }
        }
    }
}

fn use_node(node: &Node) {
    let mut buf = vec![0; 16384];
    let _ = node.read_at(0, &mut buf);
    let _ = node.read_at(node.attrs().size.saturating_sub(5000), &mut buf);
    let _ = node.next_data(1).and_then(|at| node.next_hole(at.unwrap_or(0)));
    let _ = node.readlink();
    let _ = node.xattr_values();
    let _ = node.acl();
}

fn spoiled(fixture: &str, seeds: std::ops::Range<u64>) {
    let fixture = Fixture::open(fixture);
    for seed in seeds {
        // From a single wrong block in a whole run to hardly a right one.
        let one_in = [400, 100, 30, 8, 3][seed as usize % 5];
        println!("{} seed {seed}, one block in {one_in}", fixture.name());
        spoil(seed, one_in);
        use_everything(&fixture.manifest().pool, &fixture);
    }
    zio::testing::set_mutator(None);
    assert!(resident() < RESIDENT_MAX, "{} bytes resident at the worst", resident());
}

/// One test, because the mutation is process-wide.
#[test]
fn wrong_blocks_with_right_checksums_are_errors() {
    for fixture in ["single", "snapshots", "dnodes", "raidz-expanded", "dedup-fast", "encryption", "legacy", "removed-vdev"] {
        spoiled(fixture, 0..12);
    }
}
