//! Fuzz targets that get deep: a target takes raw bytes, and what random bytes would never be (a
//! structure with right magics, counts and lengths) comes from samples of real pools.
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;
//!
//! #[test]
//! fn leaves() {
//!     let target = testkit::fuzz::Target::new(env!("CARGO_MANIFEST_DIR"), "leaves");
//!     bolero::check!(name = "leaves").for_each(target.checked(|bytes| decode_and_check(bytes).is_ok()));
//! }
//! ```
//!
//! # What always holds
//! - Every file in `__fuzz__/TARGET/corpus`, beside the file of the target, is tried as it is, in every run.
//! - A plain `cargo test` then tries mutants of those files for a fifth of a second (`.cargo/config.toml`
//!   sets that, and `BOLERO_RANDOM_TEST_TIME_MS` in the environment overrides it): the random bytes that
//!   bolero gives are not the input but the recipe of changes, so that a failure shrinks to few
//!   changes. `cargo bolero test` gives the raw bytes to the target, as its engine made them.
//! - An input may not make the thread hold more than the stated bound ([`Target::bound`]).
//! - A run in which hardly any input got past the decoder fails: such a target tests nothing.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};

use bolero::{EngineKind, RunPhase};

use crate::alloc;

/// Greatest length of a mutant in bytes.
const LEN_MAX: usize = 1 << 18;
/// At least one in this many inputs must get past the decoder.
const DEEP_ONE_IN: u64 = 50;
/// Values with which sizes, counts and offsets are replaced.
const AWKWARD: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    0x1f,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x1ff,
    0x200,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// The function of a target that bolero calls with each input.
pub(crate) type Checked<'c> = Box<dyn FnMut(&[u8]) + RefUnwindSafe + 'c>;

/// A fuzz target: its samples, and the memory that its inputs may take.
#[derive(Debug)]
pub struct Target {
    name: String,
    samples: Vec<Vec<u8>>,
    base: usize,
    per_byte: usize,
    may_be_shallow: bool,
}

impl Target {
    /// The target `name` (that of its test function) of the crate in this folder, with its corpus. Unless
    /// [`Target::bound`] is called, an input may take 64 KiB and sixteen times its own length.
    ///
    /// # Panics
    /// If its corpus is missing or unreadable.
    #[must_use]
    pub fn new(crate_folder: &str, name: &str) -> Target {
        let folder = corpus(Path::new(crate_folder), name);
        let listing = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = listing.filter_map(Result::ok).map(|entry| entry.path()).collect();
        // Folders list files in any order, but a recipe must mean the same everywhere.
        paths.sort();
        let read = |path: &std::path::PathBuf| {
            fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let samples = paths.iter().map(read).collect();
        Target { name: name.to_owned(), samples, base: 64 << 10, per_byte: 16, may_be_shallow: false }
    }

    /// Sets the memory that the thread may hold for an input: `base` bytes, and `per_byte` for each byte of
    /// the input.
    #[must_use]
    pub fn bound(mut self, base: usize, per_byte: usize) -> Target {
        (self.base, self.per_byte) = (base, per_byte);
        self
    }

    /// For decoders that hardly any input gets past, such as those behind a checksum.
    #[must_use]
    pub fn may_be_shallow(mut self) -> Target {
        self.may_be_shallow = true;
        self
    }

    /// The function for bolero to call. `check` gets an input and returns whether the input got past the
    /// decoder; it panics if something is wrong.
    ///
    /// The result has the same type for every target, so that a test program has the code of bolero once and
    /// not once for each target.
    pub fn checked<'c>(self, check: impl Fn(&[u8]) -> bool + RefUnwindSafe + 'c) -> Checked<'c> {
        let tally = Tally { target: self, tried: Cell::new(0), deep: Cell::new(0), most: Cell::new(0) };
        let tally = std::panic::AssertUnwindSafe(tally);
        Box::new(move |given: &[u8]| {
            // As a whole: the closure then captures the wrapper, which makes it unwind safe.
            let tally = &tally;
            let (is_recipe, has_failed) = bolero::with_context(|context| {
                let is_recipe = context.engine == EngineKind::Test && context.input.file.is_none();
                (is_recipe, context.run_phase == RunPhase::Failure)
            })
            .unwrap_or((false, false));
            let made = is_recipe.then(|| mutant(&tally.target.samples, given));
            let input = made.as_deref().unwrap_or(given);
            if has_failed {
                keep(&tally.target.name, input);
            }
            let (is_deep, peak) = alloc::thread_peak(|| check(input));
            tally.count(is_deep, peak);
            let bound = tally.target.base + tally.target.per_byte * input.len();
            assert!(peak <= bound, "{} bytes of input took {peak} bytes, more than {bound}", input.len());
        })
    }
}

/// Folder of the corpus of a target: beside the file of the target, which is a module of the program `it` or
/// a program of its own.
#[must_use]
pub fn corpus(crate_folder: &Path, target: &str) -> PathBuf {
    let below = |folder: &str| crate_folder.join(folder).join("__fuzz__").join(target).join("corpus");
    let own = below("tests");
    if own.is_dir() { own } else { below("tests/it") }
}

/// Writes a failed input to a file.
fn keep(name: &str, input: &[u8]) {
    let path = std::env::temp_dir().join(format!("{name}-{}.input", std::process::id()));
    if fs::write(&path, input).is_ok() {
        let _ = writeln!(
            std::io::stderr(),
            "the input that failed is in {}: a file of __fuzz__/{name}/corpus, to be tried again",
            path.display()
        );
    }
}

/// Counts inputs; panics at the end if too few got past the decoder.
struct Tally {
    target: Target,
    tried: Cell<u64>,
    deep: Cell<u64>,
    most: Cell<usize>,
}

impl Tally {
    fn count(&self, is_deep: bool, peak: usize) {
        self.tried.set(self.tried.get() + 1);
        self.deep.set(self.deep.get() + u64::from(is_deep));
        self.most.set(self.most.get().max(peak));
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let (name, tried, deep) = (&self.target.name, self.tried.get(), self.deep.get());
        println!("{name}: {tried} inputs, {deep} got deep, {} bytes at the most", self.most.get());
        let is_shallow = deep * DEEP_ONE_IN < tried;
        assert!(self.target.may_be_shallow || !is_shallow, "{name}: of {tried} inputs {deep} got deep");
    }
}

/// Bytes of a recipe; zeros behind its end, so that a shorter recipe means fewer changes.
struct Recipe<'a>(&'a [u8]);

impl Recipe<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    /// An offset in `len` bytes: half of the offsets are near the start, where headers are.
    fn place(&mut self, len: usize) -> usize {
        let word = self.word();
        let near = len.min(64);
        match word % 2 {
            _ if len == 0 => 0,
            0 => word / 2 % near,
            // Scaled, so that offsets reach every part of a long input.
            _ if len > 1 << 15 => (word * (len / (1 << 16) + 1) + usize::from(self.byte())) % len,
            _ => word / 2 % len,
        }
    }
}

/// A sample, or random bytes, with the changes of a recipe.
fn mutant(samples: &[Vec<u8>], recipe: &[u8]) -> Vec<u8> {
    let mut recipe = Recipe(recipe);
    // One choice beyond the samples stands for random bytes.
    let choice = recipe.word() % (samples.len() + 1);
    let Some(sample) = samples.get(choice) else { return random(&mut recipe) };
    let mut bytes = sample.clone();
    let most = recipe.byte() % 8;
    for _ in 0..=most {
        if !recipe.0.is_empty() {
            change(&mut bytes, samples, &mut recipe);
        }
    }
    bytes.truncate(LEN_MAX);
    bytes
}

fn random(recipe: &mut Recipe<'_>) -> Vec<u8> {
    let len = recipe.word() % 5000;
    let mut state = recipe.0.iter().fold(len as u64, |seed, byte| seed.rotate_left(9) ^ u64::from(*byte));
    let mut next = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Writes the low bytes of `value` at `at`, as many as fit.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(value) {
        *to = *from;
    }
}

fn change(bytes: &mut Vec<u8>, samples: &[Vec<u8>], recipe: &mut Recipe<'_>) {
    let kind = recipe.byte();
    let at = recipe.place(bytes.len());
    let value = recipe.byte();
    match kind % 16 {
        0..=2 => put(bytes, at, &[value]),
        3 | 4 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (value % 8);
            }
        }
        5..=8 => {
            let width = 1 << (kind / 16 % 4);
            let awkward = AWKWARD[usize::from(value) % AWKWARD.len()].to_le_bytes();
            put(bytes, at / width * width, &awkward[..width]);
        }
        9 | 10 => nudge(bytes, at, 1 << (kind / 16 % 4), value),
        11 => {
            // Bytes from the same offset of another sample.
            let other = &samples[usize::from(value) % samples.len()];
            let piece = other.get(at..).map_or(&[][..], |rest| &rest[..rest.len().min(1 << (kind / 16))]);
            put(bytes, at, piece);
        }
        12 => {
            let from = recipe.place(bytes.len());
            let len = usize::from(value).min(bytes.len() - from).min(bytes.len() - at);
            bytes.copy_within(from..from + len, at);
        }
        13 => bytes.truncate(at),
        14 => {
            let end = (at + usize::from(value)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            let insert = vec![kind / 16; usize::from(value)];
            bytes.splice(at..at, insert);
        }
    }
}

/// Adds a small number to the integer of `width` bytes at `at`, in the byte order that `by` selects.
fn nudge(bytes: &mut [u8], at: usize, width: usize, by: u8) {
    let Some(field) = bytes.get_mut(at / width * width..).and_then(|rest| rest.get_mut(..width)) else {
        return;
    };
    let is_big = by & 1 == 1;
    let delta = i64::from(by.cast_signed() >> 1);
    let (old, new);
    let mut raw = [0; 8];
    if is_big {
        raw[8 - width..].copy_from_slice(field);
        old = u64::from_be_bytes(raw);
        new = old.wrapping_add_signed(delta).to_be_bytes();
        field.copy_from_slice(&new[8 - width..]);
    } else {
        raw[..width].copy_from_slice(field);
        old = u64::from_le_bytes(raw);
        new = old.wrapping_add_signed(delta).to_le_bytes();
        field.copy_from_slice(&new[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_recipe_is_the_first_sample() {
        let samples = [b"first".to_vec(), b"second".to_vec()];
        assert_eq!(mutant(&samples, b""), b"first");
        assert_eq!(mutant(&samples, &[1]), b"second");
    }

    #[test]
    fn recipes_of_any_bytes_work() {
        let samples = [vec![7; 3000], Vec::new(), vec![1; 40_000]];
        bolero::check!().for_each(|recipe: &[u8]| {
            assert!(mutant(&samples, recipe).len() <= LEN_MAX);
            assert!(mutant(&[], recipe).len() <= LEN_MAX);
        });
    }

    #[test]
    fn numbers_are_nudged_in_either_order() {
        let mut bytes = [0, 0, 0, 0xff, 0, 0, 0, 0];
        nudge(&mut bytes, 2, 4, 3);
        assert_eq!(bytes, [0, 0, 1, 0, 0, 0, 0, 0]);
        nudge(&mut bytes, 4, 4, 0xfe);
        assert_eq!(bytes[4..], [0xff; 4]);
        nudge(&mut bytes, 7, 1, 2);
        assert_eq!(bytes[7], 0);
    }
}
