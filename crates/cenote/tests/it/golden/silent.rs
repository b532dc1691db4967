//! Silent faults: golden pools on simulated disks that return wrong data without an error.
//!
//! # What always holds
//! - While no more devices are bad than the redundancy allows, every file is right to the last byte, and the faults
//!   are counted against the bad devices only.
//! - With one more bad device, reads of affected data return errors, never wrong bytes, and all other data is
//!   right. The affected block is known from the contents of the images, not from Cenote's own arithmetic.
//!
//! `CENOTE_SILENT_ROUNDS=N` tries all faults with all numbers of devices, and N rounds of random faults, devices
//! and locations; `CENOTE_SILENT_SEED` sets the seed.

use super::compare::{self, Open};
use cenote::Pool;
use cenote::inspect::{Check, blocks};
use format::DeviceOffset;
use pool::Which;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use testkit::{Fixture, keys};
use vdev::Device;
use vdev::device::sim::{Power, SimDisk};
use vdev::env::Random;
use vdev::scan::Search;
use vdev::tree::VdevStatus;

/// Fault of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Returns random bytes.
    Garbage,
    /// Flips a bit of every byte.
    Flips,
    /// Returns the original contents: every write was lost.
    Blank,
    /// Returns whole blocks of other locations, which have valid checksums.
    Elsewhere,
    /// Returns only the beginning of the requested bytes.
    Short,
    /// Returns errors.
    Errors,
    /// Disappears when the pool is being opened.
    Gone,
}

const FAULTS: [Fault; 7] =
    [Fault::Garbage, Fault::Elsewhere, Fault::Errors, Fault::Blank, Fault::Short, Fault::Gone, Fault::Flips];

/// Range of blocks: after the front labels and the boot area, before the back labels.
const DATA_START: u64 = 4 << 20;
const LABELS_END: u64 = 512 << 10;
/// Distance of misdirected reads in bytes: they return neighbours.
const DISTANCE: u64 = 64 << 10;
const SECTOR: usize = 512;
const RECORD: usize = 128 << 10;

/// Devices that hold parts of the same blocks, and how many of them may be bad at once.
struct Group {
    images: &'static [&'static str],
    spare: usize,
}

struct Layout {
    fixture: &'static str,
    groups: &'static [Group],
}

const fn group(images: &'static [&'static str], spare: usize) -> Group {
    Group { images, spare }
}

const D: [&str; 8] = ["d0.img", "d1.img", "d2.img", "d3.img", "d4.img", "d5.img", "d6.img", "d7.img"];
const D2: &[&str] = D.split_at(2).0;
const D3: &[&str] = D.split_at(3).0;
const D4: &[&str] = D.split_at(4).0;
const D5: &[&str] = D.split_at(5).0;
const D6: &[&str] = D.split_at(6).0;

const LAYOUTS: &[Layout] = &[
    Layout { fixture: "mirror", groups: &[group(D2, 1)] },
    Layout { fixture: "raid10", groups: &[group(D2, 1), group(&["d2.img", "d3.img"], 1)] },
    Layout { fixture: "classes", groups: &[group(D2, 1), group(&["s0.img", "s1.img"], 1)] },
    Layout { fixture: "raidz1", groups: &[group(D4, 1)] },
    Layout { fixture: "ashift12", groups: &[group(D3, 1)] },
    Layout { fixture: "raidz2", groups: &[group(D5, 2)] },
    Layout { fixture: "raidz3", groups: &[group(D6, 3)] },
    Layout { fixture: "raidz-expanded", groups: &[group(D4, 1)] },
    Layout { fixture: "removed-mirror", groups: &[group(D2, 1), group(&["d4.img", "d5.img"], 1)] },
    // All blocks are in one group of the first slice, of which d0 and d4 have no part.
    Layout { fixture: "draid1", groups: &[group(&["d1.img", "d2.img", "d3.img"], 1)] },
    // d1 has failed; d4 has no part.
    Layout { fixture: "draid1-spare", groups: &[group(&["d0.img", "d2.img", "d3.img"], 1)] },
    // d2 and d6 have failed; d4 has no part.
    Layout {
        fixture: "draid3-spare",
        groups: &[group(&["d0.img", "d1.img", "d3.img", "d5.img", "d7.img"], 3)],
    },
    Layout { fixture: "expanding", groups: &[group(D5, 2)] },
    Layout { fixture: "gangraidz-encrypted", groups: &[group(D3, 1)] },
    Layout { fixture: "removed-split", groups: &[group(D2, 1)] },
    // d3 has failed and a distributed spare replaces it; d4 has no part.
    Layout { fixture: "draid2", groups: &[group(&["d0.img", "d1.img", "d5.img", "d6.img", "d7.img"], 2)] },
];

fn layout(name: &str) -> &'static Layout {
    LAYOUTS.iter().find(|layout| layout.fixture == name).expect("a layout of the table")
}

/// The images of a fixture on simulated disks, by name.
struct Disks {
    fixture: Fixture,
    found: vdev::scan::Found,
    sims: BTreeMap<String, Arc<SimDisk>>,
}

impl Disks {
    fn of(name: &str) -> Disks {
        let fixture = Fixture::open(name);
        let mut found = Search::in_paths([fixture.dir()]).run();
        let mut sims = BTreeMap::new();
        for (seed, leaf) in found.leaves.iter_mut().enumerate() {
            let sim = Arc::new(SimDisk::over(Arc::clone(&leaf.device), seed as u64, Power::new()));
            leaf.device = Arc::clone(&sim) as Arc<dyn Device>;
            let image = leaf.path.file_name().and_then(|name| name.to_str()).expect("a name");
            sims.insert(image.to_owned(), sim);
        }
        Disks { fixture, found, sims }
    }

    fn sim(&self, image: &str) -> &Arc<SimDisk> {
        self.sims.get(image).unwrap_or_else(|| panic!("{} has no {image}", self.fixture.name()))
    }

    /// Makes a range of a device bad; some faults affect the whole device.
    fn spoil(&mut self, image: &str, fault: Fault, range: Range<u64>) {
        let sim = Arc::clone(self.sim(image));
        let (at, len) = (DeviceOffset(range.start), range.end - range.start);
        match fault {
            Fault::Garbage => sim.garble(at, len),
            Fault::Flips => sim.flip(at, len, 0x10),
            Fault::Elsewhere => sim.misdirect_reads(at, len, DISTANCE),
            Fault::Errors => sim.make_unreadable(at, len),
            Fault::Short => sim.cut_reads_short(SECTOR),
            Fault::Gone => sim.vanish(),
            Fault::Blank => {
                let blank: Arc<dyn Device> = Arc::new(SimDisk::new(sim.size(), 0));
                let leaves = self.found.leaves.iter_mut();
                leaves
                    .filter(|leaf| leaf.path.ends_with(image))
                    .for_each(|leaf| leaf.device = Arc::clone(&blank));
            }
        }
    }

    fn data_of(&self, image: &str) -> Range<u64> {
        DATA_START..self.sim(image).size() - LABELS_END
    }

    fn open(&self) -> Pool {
        let which = Which::Name(self.fixture.manifest().pool.clone());
        let options = pool::OpenOptions::default();
        let opened = pool::Pool::open(self.found.clone(), &which, &options);
        let pool = Pool::from(opened.unwrap_or_else(|error| panic!("{}", compare::chain(&error))));
        for dataset in &self.fixture.manifest().datasets {
            let root = dataset.property("encryptionroot") == Some(dataset.name.as_str());
            if let (true, Some(key)) = (root, dataset.property("keyformat").and_then(keys::material)) {
                pool.load_key(&dataset.name, &key).expect("its key");
            }
        }
        pool
    }
}

/// Leaves with errors: image, failed reads, wrong checksums.
fn errors(pool: &Pool) -> BTreeMap<String, (u64, u64)> {
    fn walk(vdev: &VdevStatus, all: &mut BTreeMap<String, (u64, u64)>) {
        if vdev.children.is_empty()
            && let Some(path) = &vdev.path
        {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            all.insert(name, (vdev.read_errors, vdev.checksum_errors));
        }
        vdev.children.iter().for_each(|child| walk(child, all));
    }
    let mut all = BTreeMap::new();
    walk(&pool.spa().tree().status(), &mut all);
    all
}

/// Reads all copies of all data. Returns the differences from the manifest.
fn read_all(disks: &Disks, pool: &Pool) -> Vec<String> {
    let wrong = compare::differences(&disks.fixture, pool, &Open::default());
    blocks(pool, Check::Everything, false).expect("counted");
    wrong
}

/// With no more bad devices than the redundancy allows, all data is right and only bad devices are counted.
/// `everywhere`: every bad device must have been counted.
fn is_survived(disks: &Disks, bad: &BTreeMap<String, Fault>, everywhere: bool) {
    let what = format!("{}: {bad:?}", disks.fixture.name());
    let pool = disks.open();
    let wrong = read_all(disks, &pool);
    assert!(wrong.is_empty(), "{what}: {:#?}", &wrong[..wrong.len().min(5)]);
    for (image, (read, checksum)) in errors(&pool) {
        match bad.get(&image) {
            None => assert_eq!((read, checksum), (0, 0), "{what}: {image} is good"),
            Some(_) if !everywhere => {}
            Some(Fault::Errors | Fault::Gone) => {
                assert!(read > 0 && checksum == 0, "{what}: {image}: {read} reads, {checksum} checksums");
            }
            Some(_) => {
                assert!(read == 0 && checksum > 0, "{what}: {image}: {read} reads, {checksum} checksums");
            }
        }
    }
}

/// Up to `most` members of each group, rotated by `turn`.
fn members(layout: &Layout, turn: usize, most: usize) -> Vec<&'static str> {
    let of_group = |group: &Group| {
        let first = turn % group.images.len();
        let step = 1 + turn % 2;
        let mut chosen: Vec<&'static str> = Vec::new();
        for i in 0..group.images.len() * 2 {
            let image = group.images[(first + i * step) % group.images.len()];
            if chosen.len() < group.spare.min(most) && !chosen.contains(&image) {
                chosen.push(image);
            }
        }
        chosen
    };
    layout.groups.iter().flat_map(of_group).collect()
}

/// Tests one bad device in each group, then as many as the redundancy allows, with each fault in turn, and at last
/// with a mixture of faults.
fn survives(name: &str) {
    let layout = layout(name);
    let most = layout.groups.iter().map(|group| group.spare).max().unwrap_or(0);
    let long = rounds() > 0;
    // Short runs try every second fault with one number of devices; the next layout tries the other half.
    let half = LAYOUTS.iter().position(|one| one.fixture == name).unwrap_or(0) % 2;
    for (turn, fault) in FAULTS.into_iter().enumerate().filter(|(turn, _)| long || turn % 2 == half) {
        for count in (1..=most).filter(|count| long || *count == 1 + turn % most) {
            let mut disks = Disks::of(name);
            let mut bad = BTreeMap::new();
            for (i, image) in members(layout, turn, count).into_iter().enumerate() {
                let fault = if i == 0 { fault } else { FAULTS[(turn + 2 * i) % FAULTS.len()] };
                let range = disks.data_of(image);
                disks.spoil(image, fault, range);
                bad.insert(image.to_owned(), fault);
            }
            is_survived(&disks, &bad, true);
        }
    }
}

fn number(variable: &str) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn rounds() -> u64 {
    number("CENOTE_SILENT_ROUNDS")
}

macro_rules! layouts {
    ($($test:ident = $fixture:literal;)*) => { $(#[test] fn $test() { survives($fixture); })* };
}

layouts! {
    two_way_mirror = "mirror";
    stripe_of_mirrors = "raid10";
    special_and_normal_mirrors = "classes";
    raidz1 = "raidz1";
    raidz1_with_large_sectors = "ashift12";
    raidz2 = "raidz2";
    raidz3 = "raidz3";
    raidz_of_two_widths = "raidz-expanded";
    removed_mirror = "removed-mirror";
    draid1 = "draid1";
    draid1_with_its_spare_in_use = "draid1-spare";
    draid2_with_a_spare_in_use = "draid2";
    draid3_with_both_spares_in_use = "draid3-spare";
    raidz2_while_it_expands = "expanding";
    gangs_on_raidz = "gangraidz-encrypted";
    split_blocks = "removed-split";
}

/// Random faults at random locations of random devices, up to the redundancy.
#[test]
fn random_faults() {
    let first = number("CENOTE_SILENT_SEED");
    for seed in first..first + rounds().max(4) {
        let mut random = Random::from_seed(seed);
        let mut below = |n: usize| random.below(n as u64) as usize;
        let layout = &LAYOUTS[below(LAYOUTS.len())];
        eprintln!("seed {seed}: {}", layout.fixture);
        let mut disks = Disks::of(layout.fixture);
        let mut bad = BTreeMap::new();
        for group in layout.groups {
            let mut images = group.images.to_vec();
            for _ in 0..1 + below(group.spare) {
                let image = images.swap_remove(below(images.len()));
                let fault = FAULTS[below(FAULTS.len())];
                bad.insert(image.to_owned(), fault);
                let data = disks.data_of(image);
                for _ in 0..1 + below(40) {
                    let start =
                        data.start + (below((data.end - data.start) as usize / SECTOR) * SECTOR) as u64;
                    let len = (SECTOR << below(16)) as u64;
                    disks.spoil(image, fault, start..data.end.min(start + len));
                }
            }
        }
        is_survived(&disks, &bad, false);
    }
}

/// Ranges of the sectors of a file's first record on each image; adjacent sectors are joined.
fn places(disks: &Disks, content: &[u8]) -> BTreeMap<String, Vec<Range<u64>>> {
    // By their first bytes: hashing whole sectors takes long.
    let wanted: BTreeMap<&[u8], &[u8]> =
        content[..RECORD].chunks_exact(SECTOR).map(|sector| (&sector[..8], sector)).collect();
    assert_eq!(wanted.len(), RECORD / SECTOR, "the contents are random");
    let is_wanted = |sector: &[u8]| wanted.get(&sector[..8]).is_some_and(|wanted| *wanted == sector);
    let mut places: BTreeMap<String, Vec<Range<u64>>> = BTreeMap::new();
    for (image, sim) in &disks.sims {
        let mut piece = vec![0; 1 << 20];
        for at in (DATA_START..sim.size() - LABELS_END).step_by(piece.len()) {
            let len = piece.len().min((sim.size() - LABELS_END - at) as usize);
            sim.read_at(&mut piece[..len], DeviceOffset(at)).expect("read");
            for (i, _) in
                piece[..len].chunks_exact(SECTOR).enumerate().filter(|(_, sector)| is_wanted(sector))
            {
                let start = at + (i * SECTOR) as u64;
                let ranges = places.entry(image.clone()).or_default();
                match ranges.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end += SECTOR as u64,
                    None => ranges.push(start..start + SECTOR as u64),
                }
            }
        }
    }
    // In a stripe with one data column, parity is a copy of it.
    places.retain(|_, ranges| ranges.iter().any(|range| range.end - range.start > 4096));
    places
}

/// The file for this test in the topology fixtures; it is not compressed.
fn victim(pool: &Pool, dataset: &str, path: &[u8]) -> Vec<u8> {
    let files = pool.dataset(dataset).expect("listed").filesystem().expect("a file system");
    let node = files.open(path).expect("there");
    let mut content = vec![0; node.attrs().size as usize];
    assert_eq!(node.read_at(0, &mut content).expect("readable"), content.len());
    content
}

/// The first record of the file cannot be read; all other data is right.
fn only_that_block_is_lost(disks: &Disks, dataset: &str, path: &str, content: &[u8], what: &str) {
    let pool = disks.open();
    let files = pool.dataset(dataset).expect("listed").filesystem().expect("a file system");
    let node = files.open(format!("/{path}").as_bytes()).expect("there");
    assert!(node.read_at(0, &mut [0; 1]).is_err(), "{what}: the block can be read");
    assert!(node.read_at(RECORD as u64 - 1, &mut [0; 1]).is_err(), "{what}: the block can be read");
    let mut rest = vec![0; content.len() - RECORD];
    assert_eq!(node.read_at(RECORD as u64, &mut rest).expect("another block"), rest.len(), "{what}");
    assert!(rest == content[RECORD..], "{what}");
    let wrong = read_all(disks, &pool);
    let name = format!("{dataset}/{path}:");
    assert!(!wrong.is_empty(), "{what}");
    for line in &wrong {
        assert!(line.starts_with(&name) && line.contains("sha256"), "{what}: {line}");
    }
    let mut report = blocks(&pool, Check::Everything, false).expect("counted");
    report.damaged.dedup_by_key(|damaged| damaged.bp);
    assert_eq!(report.damaged.len(), 1, "{what}: {:?}", report.damaged);
}

/// One bad device more than the redundancy allows, in the rows of one block.
fn loses_one_block(name: &str) {
    let clean = Disks::of(name);
    let pool = clean.open();
    let dataset = format!("{}/raw", clean.fixture.manifest().pool);
    let content = victim(&pool, &dataset, b"/plain");
    let places = places(&clean, &content);
    // All columns of a block have the same rows, except the first and the last.
    let row = 4096;
    let is_mirror =
        places.values().all(|ranges| ranges.iter().map(|r| r.end - r.start).sum::<u64>() >= RECORD as u64);
    let span = |ranges: &Vec<Range<u64>>| {
        let first = ranges.first().map_or(0, |range| range.start);
        (first, ranges.last().map_or(0, |range| range.end))
    };
    let start =
        places.values().map(|ranges| span(ranges).0).max().expect("found") + if is_mirror { 0 } else { row };
    let end =
        places.values().map(|ranges| span(ranges).1).min().expect("found") - if is_mirror { 0 } else { row };
    assert!(start < end, "{name}: {places:?}");
    let group = layout(name)
        .groups
        .iter()
        .find(|group| group.images.iter().any(|image| places.contains_key(*image)))
        .expect("the group that holds it");
    // Data columns first: of a dRAID only those are known to belong to the block.
    let mut order: Vec<&str> = group.images.to_vec();
    order.sort_by_key(|image| !places.contains_key(*image));
    for fault in [Fault::Garbage, Fault::Elsewhere, Fault::Errors, Fault::Flips] {
        let mut disks = Disks::of(name);
        let bad: BTreeSet<&str> = order.iter().take(group.spare + 1).copied().collect();
        for image in &bad {
            disks.spoil(image, fault, start..end);
        }
        only_that_block_is_lost(&disks, &dataset, "plain", &content, &format!("{name} {bad:?} {fault:?}"));
    }
    // With one of the devices good again, all data is readable.
    let mut disks = Disks::of(name);
    let mut bad = BTreeMap::new();
    for image in order.iter().take(group.spare) {
        disks.spoil(image, Fault::Garbage, start..end);
        bad.insert((*image).to_owned(), Fault::Garbage);
    }
    is_survived(&disks, &bad, true);
}

macro_rules! beyond {
    ($($test:ident = $fixture:literal;)*) => { $(#[test] fn $test() { loses_one_block($fixture); })* };
}

beyond! {
    one_block_of_a_mirror_is_lost = "mirror";
    one_block_of_raidz1_is_lost = "raidz1";
    one_block_of_raidz2_is_lost = "raidz2";
    one_block_of_raidz3_is_lost = "raidz3";
    one_block_of_draid1_is_lost = "draid1";
}

/// Copies on one disk: all data is right if any copy is good; without the last copy the block is lost.
#[test]
fn copies_on_one_disk() {
    for (dataset, copies) in [("t_copies/c2", 2), ("t_copies/c3", 3)] {
        let clean = Disks::of("copies");
        let content = victim(&clean.open(), dataset, b"/rand");
        let all = places(&clean, &content).remove("d0.img").expect("found");
        assert_eq!(all.len(), copies, "{dataset}: {all:?}");
        for fault in [Fault::Garbage, Fault::Elsewhere, Fault::Errors, Fault::Flips] {
            for good in 0..copies {
                let mut disks = Disks::of("copies");
                let bad = all.iter().enumerate().filter(|(i, _)| *i != good);
                bad.for_each(|(_, range)| disks.spoil("d0.img", fault, range.clone()));
                is_survived(&disks, &BTreeMap::from([("d0.img".to_owned(), fault)]), true);
            }
            let mut disks = Disks::of("copies");
            all.iter().for_each(|range| disks.spoil("d0.img", fault, range.clone()));
            only_that_block_is_lost(&disks, dataset, "rand", &content, &format!("{dataset} {fault:?}"));
        }
    }
}
