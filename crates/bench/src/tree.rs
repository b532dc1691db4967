//! Trees of small files.

use crate::Failure;
use crate::cost::{Meter, memory_peak};
use crate::pools::{Bench, Wanted, noise};
use format::ObjectId;
use pool::Layout;
use std::path::Path;
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

/// Number of files in a leaf directory.
const LEAF: u64 = 30;
/// Number of directories in a directory.
const FOLDERS: u64 = 10;
/// Size of a file in bytes.
const FILE: usize = 512;
/// Number of parts whose rates are compared.
const PARTS: u64 = 20;

fn wanted(size: u64) -> Wanted {
    Wanted {
        disks: 1,
        size,
        layout: Layout::Single,
        record_size: 128 << 10,
        cache_bytes: 512 << 20,
        prefill: 0,
    }
}

/// Path of a leaf directory: the digits of its number in the tree.
fn leaf_path(number: u64, depth: u32) -> impl Iterator<Item = u64> {
    (0..depth).rev().map(move |digit| number / FOLDERS.pow(digit) % FOLDERS)
}

/// The depth at which there are enough leaf directories.
fn depth(leaves: u64) -> u32 {
    (1..).find(|depth| FOLDERS.pow(*depth) >= leaves).unwrap_or(1)
}

/// Creates directories as needed, and remembers the last path.
struct Maker<'b> {
    bench: &'b Bench,
    way: Vec<(u64, ObjectId)>,
    top: ObjectId,
}

impl<'b> Maker<'b> {
    fn new(bench: &'b Bench, top: ObjectId) -> Maker<'b> {
        Maker { bench, way: Vec::new(), top }
    }

    fn leaf(&mut self, number: u64, depth: u32) -> Result<ObjectId, Failure> {
        let mut at = self.top;
        for (level, digit) in leaf_path(number, depth).enumerate() {
            match self.way.get(level) {
                Some((known, id)) if *known == digit => at = *id,
                _ => {
                    self.way.truncate(level);
                    let new = NewFile::of(FileKind::Directory, 0o755);
                    at = self.bench.fs.fs.create(at, format!("d{digit}").as_bytes(), &new)?.id;
                    self.way.push((digit, at));
                }
            }
        }
        Ok(at)
    }

    /// Creates the files of a leaf directory.
    fn fill(&mut self, number: u64, depth: u32, data: &[u8]) -> Result<(), Failure> {
        let dir = self.leaf(number, depth)?;
        let fs = &self.bench.fs.fs;
        for i in 0..LEAF {
            let made =
                fs.create(dir, format!("file{i:04}").as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?;
            fs.write(made.id, 0, data, &WriteHow::default())?;
        }
        Ok(())
    }
}

/// Removes a directory and its contents.
fn remove(bench: &Bench, dir: ObjectId) -> Result<(), Failure> {
    let fs = &bench.fs.fs;
    loop {
        let entries = fs.read_dir(dir, 0, 1000)?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            if entry.kind_hint == Some(FileKind::Directory) {
                remove(bench, entry.id)?;
                fs.rmdir(dir, &entry.name)?;
            } else {
                fs.unlink(dir, &entry.name)?;
            }
        }
    }
}

/// `tree`: creates and removes this many files, with several threads if requested.
pub(crate) fn make_and_remove(dir: &Path, files: u64, threads: u64) -> Result<(), Failure> {
    let bench = Bench::new(dir, &wanted(8 << 30))?;
    let leaves = files.div_ceil(LEAF);
    let data = noise(FILE, 1);
    let tops: Vec<ObjectId> = (0..threads)
        .map(|t| {
            let new = NewFile::of(FileKind::Directory, 0o755);
            Ok(bench.fs.fs.create(bench.fs.fs.root(), format!("t{t}").as_bytes(), &new)?.id)
        })
        .collect::<Result<_, Failure>>()?;
    bench.sync()?;
    let share = leaves.div_ceil(threads);
    let depth = depth(share);
    let meter = Meter::start();
    in_parallel(&tops, |top| {
        let mut maker = Maker::new(&bench, top);
        (0..share).try_for_each(|leaf| maker.fill(leaf, depth, &data))
    })?;
    bench.sync()?;
    meter.stop().report("create", share * threads * LEAF);
    let meter = Meter::start();
    in_parallel(&tops, |top| remove(&bench, top))?;
    while !bench.fs.fs.drain(10_000)? {}
    bench.sync()?;
    meter.stop().report("remove", share * threads * LEAF);
    println!("memory: {} MiB at most", memory_peak() >> 20);
    Ok(())
}

fn in_parallel(
    tops: &[ObjectId],
    work: impl Fn(ObjectId) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = tops.iter().map(|top| scope.spawn(|| work(*top))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// `many`: the rate at which files are created, by part.
pub(crate) fn many(dir: &Path, files: u64) -> Result<(), Failure> {
    let bench = Bench::new(dir, &wanted((files * 6144).max(8 << 30)))?;
    let leaves = files.div_ceil(LEAF);
    let data = noise(FILE, 1);
    let depth = depth(leaves);
    let mut maker = Maker::new(&bench, bench.fs.fs.root());
    let part = leaves.div_ceil(PARTS);
    let mut rates = Vec::new();
    for first in (0..leaves).step_by(part as usize) {
        let last = leaves.min(first + part);
        let meter = Meter::start();
        (first..last).try_for_each(|leaf| maker.fill(leaf, depth, &data))?;
        bench.sync()?;
        let cost = meter.stop();
        cost.report(&format!("files up to {}", last * LEAF), (last - first) * LEAF);
        rates.push(((last - first) * LEAF) as f64 / cost.cpu.as_secs_f64());
    }
    if let (Some(first), Some(last)) = (rates.first(), rates.last()) {
        println!("files per CPU second at the end: {:.0} % of the beginning", last / first * 100.0);
    }
    println!("memory: {} MiB at most", memory_peak() >> 20);
    Ok(())
}
