//! Malicious pools: blocks and labels with valid checksums and wrong contents.
//!
//! The tests do what the commands do to golden pools, in two settings: a seeded part of the blocks is changed
//! in memory after its checksum was verified; or blocks of the images are changed and resealed beforehand.
//! The outcome of each operation must be data or an error: no panic, no run of more than [`SECONDS_MAX`]
//! seconds, no more memory than [`HELD_MAX`] bytes.
//!
//! `cargo test` runs few seeds. More: `CENOTE_HOSTILE_SEEDS=0..3000 cargo test -p cenote-pool-mutate --test
//! hostile`, for one pool with `CENOTE_HOSTILE_POOL=single`.

mod labels;
mod repeat;
mod resealed;
mod spoil;
mod work;

use spoil::Target;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use testkit::Fixture;
use testkit::alloc::{Counting, process_peak};
use work::Depth;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes that a run may hold at a time: block caches of 8 and 4 MiB, two verifying threads with a few
/// blocks of at most 16 MiB, and the memory of a listing.
const HELD_MAX: usize = 192 << 20;
/// The longest run in seconds.
const SECONDS_MAX: u64 = 20;

/// Pools that have every kind of block between them. The first seed of a pool targets the kind named beside
/// it, which that pool has and few others do.
const POOLS: [(&str, Target); 16] = [
    ("single", Target::Lists),
    ("snapshots", Target::FreedBlocks),
    ("dnodes", Target::Attributes),
    ("raidz-expanded", Target::Indirect),
    ("dedup-fast", Target::Words),
    ("encryption", Target::ObjectSets),
    ("legacy", Target::Bonuses),
    ("removed-vdev", Target::Words),
    ("redacted", Target::Pointers),
    ("properties", Target::Zaps),
    ("zil-slog", Target::Logs),
    ("posixacl", Target::Dnodes),
    ("gang", Target::Gangs),
    ("compression", Target::Streams),
    ("zil-encrypted", Target::Ciphers),
    ("draid1", Target::Configs),
];

/// Serializes the tests: block mutators act on the whole process.
static SERIAL: Mutex<()> = Mutex::new(());

/// The number of runs that reached each stage, and the most memory and time of a run.
#[derive(Default)]
struct Tally {
    runs: u64,
    opened: u64,
    listed: u64,
    read: u64,
    verified: u64,
    held_max: usize,
    longest: Duration,
    slowest: String,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, depth: Depth) {
        self.opened += u64::from(depth.opened);
        self.listed += u64::from(depth.listed);
        self.read += u64::from(depth.filesystems > 0 && depth.files > 0);
        self.verified += u64::from(depth.verified > 0);
    }

    fn run(&mut self, what: &str, work: impl FnOnce() -> Depth) {
        let begun = Instant::now();
        let watchdog = Watchdog::start(what);
        let (outcome, held) = process_peak(|| catch_unwind(AssertUnwindSafe(work)));
        drop(watchdog);
        self.runs += 1;
        match outcome {
            Ok(depth) => self.add(depth),
            Err(_) => self.failures.push(format!("{what}: panicked")),
        }
        if held > HELD_MAX {
            self.failures.push(format!("{what}: held {held} bytes"));
        }
        self.held_max = self.held_max.max(held);
        let elapsed = begun.elapsed();
        if elapsed > self.longest {
            self.longest = elapsed;
            self.slowest = what.to_owned();
        }
    }

    fn report(&self, title: &str) {
        println!(
            "{title}: {} runs, {} opened, {} listed their datasets, {} read files, {} verified blocks; \
             at most {} MiB and {:?} ({})",
            self.runs,
            self.opened,
            self.listed,
            self.read,
            self.verified,
            self.held_max >> 20,
            self.longest,
            self.slowest
        );
        assert!(self.failures.is_empty(), "{title}: {:#?}", self.failures);
    }
}

/// Aborts the process when a run takes too long: a stuck thread cannot be stopped or named otherwise.
struct Watchdog(std::sync::mpsc::Sender<()>);

impl Watchdog {
    fn start(what: &str) -> Watchdog {
        let (alive, gone) = std::sync::mpsc::channel::<()>();
        let what = what.to_owned();
        std::thread::spawn(move || {
            let waited = gone.recv_timeout(Duration::from_secs(SECONDS_MAX));
            if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what}: more than {SECONDS_MAX} seconds");
                std::process::abort();
            }
        });
        Watchdog(alive)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// The range of seeds from the environment, or `usual`.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("CENOTE_HOSTILE_SEEDS") else { return usual };
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.expect("CENOTE_HOSTILE_SEEDS is FIRST..END")
}

fn pools() -> Vec<(Fixture, Target)> {
    let only = std::env::var("CENOTE_HOSTILE_POOL").ok();
    let wanted = POOLS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name));
    wanted.map(|(name, target)| (Fixture::open(name), *target)).collect()
}

#[test]
fn wrong_blocks_with_right_checksums_are_errors() {
    let _serial = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    for (i, (fixture, first)) in pools().iter().enumerate() {
        // Each pool starts with other seeds, so that few seeds for each pool cover every target.
        let base = 5 * i as u64;
        for seed in seeds(0..8) {
            let plan = if seed == 0 { (*first, 1) } else { spoil::plan(base + seed) };
            let what = format!("{} seed {seed} ({:?}, one in {})", fixture.name(), plan.0, plan.1);
            spoil::start(base + seed, plan);
            tally.run(&what, || work::exercise(fixture));
            spoil::stop();
        }
    }
    for target in Target::ALL {
        println!("{target:?}: {} blocks changed", spoil::HITS[target as usize].load(Ordering::Relaxed));
    }
    tally.report("blocks");
    let untouched = |target: &Target| spoil::HITS[*target as usize].load(Ordering::Relaxed) == 0;
    let untouched: Vec<Target> = Target::ALL.into_iter().filter(untouched).collect();
    let is_whole = std::env::var_os("CENOTE_HOSTILE_POOL").is_none();
    assert!(untouched.is_empty() || !is_whole, "never changed: {untouched:?}");
    // A pool that does not open tests little.
    assert!(2 * tally.opened >= tally.runs && 2 * tally.listed >= tally.runs);
    assert!(5 * tally.read >= 2 * tally.runs);
}

#[test]
fn wrong_labels_with_right_checksums_are_errors() {
    let _serial = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    for fixture in ["raidz-expanded", "removed-vdev", "zil-slog", "draid1"].map(Fixture::open) {
        for seed in seeds(0..20) {
            let what = format!("{} label {seed}", fixture.name());
            tally.run(&what, || labels::exercise_spoiled(&fixture, seed));
        }
    }
    tally.report("labels");
    assert!(4 * tally.opened >= tally.runs);
}

#[test]
fn trees_that_repeat_themselves_are_errors() {
    let _serial = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    for fixture in ["snapshots", "removed-vdev", "dnodes"].map(Fixture::open) {
        for kind in repeat::TYPES {
            let what = format!("{} repeating {kind}", fixture.name());
            repeat::start(kind);
            tally.run(&what, || work::exercise(&fixture));
            spoil::stop();
            let changed = repeat::CHANGED.load(Ordering::Relaxed);
            println!("{what}: {changed} dnodes and blocks changed");
        }
    }
    tally.report("repetitions");
}

#[test]
fn images_that_were_changed_and_sealed_again_are_errors() {
    let _serial = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    let mut changed = 0;
    for (i, (fixture, first)) in pools().iter().enumerate() {
        let base = 7 * i as u64;
        for seed in seeds(0..3) {
            let plan = if seed == 0 { (*first, 1) } else { spoil::plan(base + seed) };
            let what = format!("{} image {seed} ({:?}, one in {})", fixture.name(), plan.0, plan.1);
            let image = resealed::MutatedImage::new(fixture, base + seed, plan);
            changed += image.outcome.changed;
            tally.run(&what, || image.exercise(fixture));
        }
    }
    println!("{changed} blocks changed");
    tally.report("images");
    assert!(changed >= tally.runs, "{changed} blocks changed in {} images", tally.runs);
    assert!(3 * tally.opened >= tally.runs && 3 * tally.listed >= tally.runs);
}
