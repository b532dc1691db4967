//! Small writes at random offsets.

use crate::Failure;
use crate::cost::{Meter, bytes_written, memory_peak};
use crate::pools::{Bench, Wanted, noise};
use format::ObjectId;
use pool::Layout;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vdev::env::Random;
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

const RECORD: u64 = 8 << 10;

fn bench(dir: &Path, size: u64) -> Result<Bench, Failure> {
    let (layout, cache_bytes) = (Layout::Single, 512 << 20);
    let wanted = Wanted { disks: 1, size, layout, record_size: RECORD, cache_bytes, prefill: size };
    Bench::new(dir, &wanted)
}

/// Creates a file of this size and writes it to disk.
fn file(bench: &Bench, name: &str, bytes: u64) -> Result<ObjectId, Failure> {
    let fs = &bench.fs.fs;
    let file = fs.create(fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?.id;
    let data = noise(1 << 20, 7);
    for at in (0..bytes).step_by(1 << 20) {
        fs.write(file, at, &data, &WriteHow::default())?;
    }
    Ok(file)
}

/// Runs `overwrite`: random overwrites of one file.
pub(crate) fn overwrite(dir: &Path, threads: u64, writes: u64, bytes: u64) -> Result<(), Failure> {
    let bench = bench(dir, bytes * 4)?;
    let file = file(&bench, "table", bytes)?;
    bench.sync()?;
    let before = bytes_written();
    let meter = Meter::start();
    in_parallel(threads, |t| {
        let mut random = Random::from_seed(t + 1);
        let data = noise(RECORD as usize, t);
        for _ in 0..writes / threads {
            let at = random.below(bytes / RECORD) * RECORD;
            bench.fs.fs.write(file, at, &data, &WriteHow::default())?;
        }
        Ok(())
    })?;
    bench.sync()?;
    meter.stop().report("8 KiB overwritten", writes);
    let written = bytes_written() - before;
    println!("devices: {:.2} bytes for each", written as f64 / (writes * RECORD) as f64);
    println!("memory: {} MiB at most", memory_peak() >> 20);
    Ok(())
}

/// Runs `fsync`: small writes, each followed by fsync.
pub(crate) fn fsync(dir: &Path, threads: u64, seconds: u64) -> Result<(), Failure> {
    const FILE: u64 = 64 << 20;
    let bench = bench(dir, 2 << 30)?;
    let files = (0..threads).map(|t| file(&bench, &format!("table{t}"), FILE / threads.max(1) * 2));
    let files: Vec<ObjectId> = files.collect::<Result<_, Failure>>()?;
    bench.sync()?;
    bench.fs.sync()?;
    let before = bytes_written();
    let done = AtomicU64::new(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    let meter = Meter::start();
    in_parallel(threads, |t| {
        let mut random = Random::from_seed(t + 1);
        let data = noise(RECORD as usize, t);
        let file = files[t as usize];
        while Instant::now() < end {
            let at = random.below(FILE / threads.max(1) * 2 / RECORD) * RECORD;
            bench.fs.fs.write(file, at, &data, &WriteHow::default())?;
            bench.fs.fsync(file)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let cost = meter.stop();
    let count = done.into_inner();
    cost.report(&format!("8 KiB and fsync, {threads} threads"), count);
    let written = bytes_written() - before;
    println!("devices: {:.2} bytes for each", written as f64 / (count * RECORD).max(1) as f64);
    Ok(())
}

fn in_parallel(threads: u64, work: impl Fn(u64) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}
