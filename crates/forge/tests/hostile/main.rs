//! Pools that were made to do harm: blocks and labels whose checksums are right and whose contents are
//! not.
//!
//! Golden pools are used as the commands use them while a seeded part of their blocks is changed on the
//! way up, after the checksum was verified; and after their images were changed and sealed again. Whatever then happens must be an error or data: no
//! panic, no run of more than [`SECONDS_MAX`], no more memory than [`HELD_MAX`].
//!
//! `cargo test` runs few seeds. More: `CENOTE_HOSTILE_SEEDS=0..3000 cargo test -p cenote-forge --test hostile`,
//! for one pool with `CENOTE_HOSTILE_POOL=single`.

mod labels;
mod repeat;
mod resealed;
mod spoil;
mod work;

use spoil::Aim;
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

/// Most that a run may hold at any time: caches of 8 and 4 MiB, two threads that verify with a few
/// blocks of 16 MiB at most, and what a listing keeps.
const HELD_MAX: usize = 192 << 20;
/// Longest run.
const SECONDS_MAX: u64 = 20;

/// Pools with every kind of block among them, and a kind that each of them has and few others do: what
/// its first seed aims at.
const POOLS: [(&str, Aim); 16] = [
    ("single", Aim::Lists),
    ("snapshots", Aim::FreedBlocks),
    ("dnodes", Aim::Attributes),
    ("raidz-expanded", Aim::Indirect),
    ("dedup-fast", Aim::Words),
    ("encryption", Aim::ObjectSets),
    ("legacy", Aim::Bonuses),
    ("removed-vdev", Aim::Words),
    ("redacted", Aim::Pointers),
    ("properties", Aim::Zaps),
    ("zil-slog", Aim::Logs),
    ("posixacl", Aim::Dnodes),
    ("gang", Aim::Gangs),
    ("compression", Aim::Streams),
    ("zil-encrypted", Aim::Ciphers),
    ("draid1", Aim::Configs),
];

/// Changes what the whole process reads: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// What runs achieved.
#[derive(Default)]
struct Tally {
    runs: u64,
    opened: u64,
    listed: u64,
    read: u64,
    verified: u64,
    most_held: usize,
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
        self.most_held = self.most_held.max(held);
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
            self.most_held >> 20,
            self.longest,
            self.slowest
        );
        assert!(self.failures.is_empty(), "{title}: {:#?}", self.failures);
    }
}

/// Ends the process when a run does not end: there is no other way to name it.
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

/// The seeds of the environment, or these.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("CENOTE_HOSTILE_SEEDS") else { return usual };
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.expect("CENOTE_HOSTILE_SEEDS is FIRST..END")
}

fn pools() -> Vec<(Fixture, Aim)> {
    let only = std::env::var("CENOTE_HOSTILE_POOL").ok();
    let wanted = POOLS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name));
    wanted.map(|(name, aim)| (Fixture::open(name), *aim)).collect()
}

#[test]
fn wrong_blocks_with_right_checksums_are_errors() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    for (i, (fixture, first)) in pools().iter().enumerate() {
        // Each pool starts elsewhere, so that few seeds have every aim.
        let base = 5 * i as u64;
        for seed in seeds(0..8) {
            let plan = if seed == 0 { (*first, 1) } else { spoil::plan(base + seed) };
            let what = format!("{} seed {seed} ({:?}, one in {})", fixture.name(), plan.0, plan.1);
            spoil::start(base + seed, plan);
            tally.run(&what, || work::use_everything(fixture));
            spoil::stop();
        }
    }
    for aim in Aim::ALL {
        println!("{aim:?}: {} blocks changed", spoil::HITS[aim as usize].load(Ordering::Relaxed));
    }
    tally.report("blocks");
    let untouched = |aim: &Aim| spoil::HITS[*aim as usize].load(Ordering::Relaxed) == 0;
    let untouched: Vec<Aim> = Aim::ALL.into_iter().filter(untouched).collect();
    let is_whole = std::env::var_os("CENOTE_HOSTILE_POOL").is_none();
    assert!(untouched.is_empty() || !is_whole, "never changed: {untouched:?}");
    // A pool that does not open tests little.
    assert!(2 * tally.opened >= tally.runs && 2 * tally.listed >= tally.runs);
    assert!(5 * tally.read >= 2 * tally.runs);
}

#[test]
fn wrong_labels_with_right_checksums_are_errors() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    for fixture in ["raidz-expanded", "removed-vdev", "zil-slog", "draid1"].map(Fixture::open) {
        for seed in seeds(0..20) {
            let what = format!("{} label {seed}", fixture.name());
            tally.run(&what, || labels::use_spoiled(&fixture, seed));
        }
    }
    tally.report("labels");
    assert!(4 * tally.opened >= tally.runs);
}

#[test]
fn trees_that_repeat_themselves_are_errors() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    for fixture in ["snapshots", "removed-vdev", "dnodes"].map(Fixture::open) {
        for kind in repeat::TYPES {
            let what = format!("{} repeating {kind}", fixture.name());
            repeat::start(kind);
            tally.run(&what, || work::use_everything(&fixture));
            spoil::stop();
            let changed = repeat::CHANGED.load(Ordering::Relaxed);
            println!("{what}: {changed} dnodes and blocks changed");
        }
    }
    tally.report("repetitions");
}

#[test]
fn images_that_were_changed_and_sealed_again_are_errors() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tally = Tally::default();
    let mut changed = 0;
    for (i, (fixture, first)) in pools().iter().enumerate() {
        let base = 7 * i as u64;
        for seed in seeds(0..3) {
            let plan = if seed == 0 { (*first, 1) } else { spoil::plan(base + seed) };
            let what = format!("{} image {seed} ({:?}, one in {})", fixture.name(), plan.0, plan.1);
            let image = resealed::Changed::new(fixture, base + seed, plan);
            changed += image.outcome.changed;
            tally.run(&what, || image.use_it(fixture));
        }
    }
    println!("{changed} blocks changed");
    tally.report("images");
    assert!(changed >= tally.runs, "{changed} blocks changed in {} images", tally.runs);
    assert!(3 * tally.opened >= tally.runs && 3 * tally.listed >= tally.runs);
}
