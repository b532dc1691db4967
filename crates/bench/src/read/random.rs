//! Reads 8 KiB at random offsets with very many threads.

use super::Choices;
use crate::Failure;
use crate::pools::{NAME, cool, one_file};
use crate::report::{Goal, Line, Report};
use cenote::{OpenOptions, Pool};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vdev::env::Random;
use vdev::tree::Op;

const RECORD: u64 = 8 << 10;
const THREADS: u64 = 200;

/// Results of a run with Cenote.
#[derive(Debug, Clone, Copy, Default)]
struct Ran {
    reads_a_second: f64,
    device_reads_each: f64,
    cpu_us_each: f64,
}

pub(super) fn run(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes: u64 = if choices.quick { 256 << 20 } else { 4 << 30 };
    let time = Duration::from_secs(if choices.quick { 2 } else { 10 });
    let made = one_file(dir, "table", bytes, RECORD)?;
    let (mut us, mut them) = (Ran::default(), 0f64);
    for _ in 0..choices.rounds {
        cool(made.path())?;
        let now = read(made.path(), bytes, time)?;
        if now.reads_a_second > us.reads_a_second {
            us = now;
        }
        cool(made.path())?;
        them = them.max(fio(&made.path().join("disk0"), time)?.unwrap_or(0.0));
    }
    report.add(Line {
        what: format!("8 KiB at random, {THREADS} threads"),
        unit: "1000/s",
        ours: us.reads_a_second / 1e3,
        peer: (them > 0.0).then(|| ("fio, the raw file".to_owned(), them / 1e3)),
        goal: Some(Goal::AtLeast(0.85)),
        note: format!("{:.3} device reads each, CPU {:.1} us each", us.device_reads_each, us.cpu_us_each),
    });
    Ok(())
}

/// Reads for this time through the library, with a cache far smaller than the file.
fn read(folder: &Path, bytes: u64, time: Duration) -> Result<Ran, Failure> {
    let cache = (bytes / 32).max(64 << 20);
    let options = OpenOptions::new().search(folder).direct(true).cache_bytes(usize::try_from(cache)?);
    let pool = Pool::open(NAME, &options)?;
    let files = pool.dataset(NAME)?.filesystem()?;
    let root = files.node(files.root())?;
    let id = files.lookup(&root, b"table")?.ok_or("the file is gone")?;
    let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |seed: u64| -> Result<(), String> {
        let node = files.node(id).map_err(|error| error.to_string())?;
        let (mut random, mut buffer) = (Random::from_seed(seed + 1), vec![0; RECORD as usize]);
        while !stop.load(Ordering::Relaxed) {
            let at = random.below(bytes / RECORD) * RECORD;
            let read = node.read_at(at, &mut buffer).map_err(|error| error.to_string())?;
            if read as u64 != RECORD {
                return Err(format!("{read} bytes at {at}"));
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let device_reads =
        || pool.spa().tree().io_stats().values().map(|leaf| leaf.stats.ops[Op::Read as usize]).sum::<u64>();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || work(seed))).collect();
        // Indirect blocks are read first: they are few, and stay in the cache.
        std::thread::sleep(time / 4);
        let (reads, devices, meter, begun) =
            (count.load(Ordering::Relaxed), device_reads(), crate::cost::Meter::start(), Instant::now());
        std::thread::sleep(time);
        let reads = count.load(Ordering::Relaxed) - reads;
        let (devices, cost, wall) = (device_reads() - devices, meter.stop(), begun.elapsed());
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(Ran {
            reads_a_second: reads as f64 / wall.as_secs_f64(),
            device_reads_each: devices as f64 / reads.max(1) as f64,
            cpu_us_each: cost.cpu.as_secs_f64() * 1e6 / reads.max(1) as f64,
        })
    })
}

/// The same number of threads on the raw file. `None`: fio is not installed.
fn fio(image: &Path, time: Duration) -> Result<Option<f64>, Failure> {
    let mut command = Command::new("fio");
    command.args(["--name=raw", "--rw=randread", "--bs=8k", "--direct=1", "--ioengine=psync", "--thread"]);
    command.args([
        "--group_reporting",
        "--time_based",
        "--readonly",
        "--output-format=json",
        "--norandommap",
    ]);
    command.arg(format!("--numjobs={THREADS}")).arg(format!("--runtime={}", time.as_secs()));
    command.arg(format!("--filename={}", image.display()));
    let Ok(output) = command.output() else {
        println!("random: fio is not here (Debian: apt install fio)");
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (count, wall, _) =
        crate::fio::result(&text, "randread").ok_or("fio printed something else than it should")?;
    Ok(Some(count as f64 / wall.as_secs_f64()))
}
