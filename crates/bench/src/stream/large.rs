//! A large file sent and received.

use super::Choices;
use crate::Failure;
use crate::cost::{Cost, Meter, best, cpu_note, peak_of};
use crate::pools::{Bench, NAME, Wanted};
use crate::report::{Goal, Line, Report};
use cenote::receive::{Receive, Watch};
use cenote::stream::Reader;
use cenote::stream::send::{Options, Source, send};
use cenote::{OpenOptions, Pool, PoolWriter};
use pool::Layout;
use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Rate that a send out of the cache is to reach, in MB/s.
const CACHED_GOAL: f64 = 3000.0;
/// Most memory of a command, in MiB.
const MEMORY_GOAL: f64 = 256.0;
/// Bytes that the commands read and write at once.
const BUFFER: usize = 128 << 10;
/// The snapshot.
const SNAPSHOT: &str = "s";

fn wanted(bytes: u64, record_size: u64) -> Wanted {
    let size = bytes + bytes / 8 + (512 << 20);
    let prefill = bytes + bytes / 16;
    Wanted { disks: 1, size, layout: Layout::Single, record_size, cache_bytes: 128 << 20, prefill }
}

/// A pool with a snapshot of a file.
fn snapshot_of_file(dir: &Path, bytes: u64, record_size: u64) -> Result<TempDir, Failure> {
    let bench = Bench::new(dir, &wanted(bytes, record_size))?;
    bench.fill("large", bytes)?;
    bench.snapshot(SNAPSHOT)?;
    bench.close()
}

fn open(dir: &Path, cache_bytes: usize) -> Result<Pool, Failure> {
    Ok(Pool::open(NAME, &OpenOptions::new().search(dir).cache_bytes(cache_bytes))?)
}

/// Sends the snapshot; returns the bytes of the stream.
fn send_to(pool: &Pool, out: &mut dyn Write) -> Result<u64, Failure> {
    let name = format!("{NAME}@{SNAPSHOT}");
    let dataset = pool.dataset(&name)?.dsl().clone();
    let set = dataset.open_objset()?;
    let source = Source { dataset, set, from: None, pool_features: Vec::new() };
    let options = Options { large_blocks: true, to_name: name, ..Options::default() };
    Ok(send(&source, &options, out, &mut |_| ControlFlow::Continue(()))?.bytes)
}

/// `send`: out of the cache.
pub(super) fn send_file(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes = choices.bytes();
    let made = snapshot_of_file(dir, bytes, 128 << 10)?;
    let pool = open(made.path(), bytes as usize * 2)?;
    let mut cached = None;
    for round in 0..=choices.rounds {
        let meter = Meter::start();
        send_to(&pool, &mut std::io::sink())?;
        // The first fills the cache.
        cached = if round == 0 { None } else { best(cached, meter.stop()) };
    }
    let Some(cost) = cached else { return Ok(()) };
    let peer = Some(("the goal".to_owned(), CACHED_GOAL));
    let note = format!("CPU {:.2} s", cost.cpu.as_secs_f64());
    report.add(rate("send, cached, to nowhere", bytes, cost.wall, peer, 1.0, note));
    Ok(())
}

/// A line about a rate, with the share of the peer's that is the goal.
pub(super) fn rate(
    what: &str,
    bytes: u64,
    wall: Duration,
    peer: Option<(String, f64)>,
    share: f64,
    note: String,
) -> Line {
    let ours = bytes as f64 / 1e6 / wall.as_secs_f64();
    Line { what: what.to_owned(), unit: "MB/s", ours, peer, goal: Some(Goal::AtLeast(share)), note }
}

struct NoWatch;

impl Watch for NoWatch {}

/// `receive`: a stream in memory, beside writes of the same bytes through the library.
pub(super) fn receive_file(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes = choices.bytes() / 2;
    let made = snapshot_of_file(dir, bytes, 128 << 10)?;
    let mut stream = File::from(rustix::fs::memfd_create("stream", rustix::fs::MemfdFlags::CLOEXEC)?);
    {
        let mut buffered = BufWriter::with_capacity(BUFFER, &mut stream);
        send_to(&open(made.path(), 128 << 20)?, &mut buffered)?;
        buffered.flush()?;
    }
    drop(made);
    let (mut us, mut them) = (None, None);
    for _ in 0..choices.rounds {
        stream.rewind()?;
        us = best(us, received(dir, bytes, &stream)?);
        them = best(them, written(dir, bytes)?);
    }
    let (Some(us), Some(them)) = (us, them) else { return Ok(()) };
    let peer = Some(("sequential writes".to_owned(), bytes as f64 / 1e6 / them.wall.as_secs_f64()));
    report.add(rate("receive of a large file", bytes, us.wall, peer, 0.8, cpu_note(us, them)));
    Ok(())
}

fn received(dir: &Path, bytes: u64, stream: &File) -> Result<Cost, Failure> {
    let bench = Bench::new(dir, &wanted(bytes, 128 << 10))?;
    bench.sync()?;
    let writer = PoolWriter::shared(Arc::clone(&bench.pool), None);
    let how =
        Receive { dataset: format!("{NAME}/copy"), snapshot: SNAPSHOT.to_owned(), ..Receive::default() };
    let meter = Meter::start();
    let mut reader = Reader::new(BufReader::with_capacity(BUFFER, stream));
    let begin = reader.next_frame()?.ok_or("an empty stream")?;
    writer.receive(&begin, &mut reader, &how, &mut NoWatch)?;
    bench.sync()?;
    let cost = meter.stop();
    drop(writer);
    bench.close()?;
    Ok(cost)
}

fn written(dir: &Path, bytes: u64) -> Result<Cost, Failure> {
    let bench = Bench::new(dir, &wanted(bytes, 128 << 10))?;
    bench.sync()?;
    let meter = Meter::start();
    bench.fill("large", bytes)?;
    bench.sync()?;
    let cost = meter.stop();
    bench.close()?;
    Ok(cost)
}

/// `memory`: the most that each command has at once, for a file of blocks of 16 MiB.
pub(super) fn memory(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes = choices.bytes();
    let source = snapshot_of_file(dir, bytes, 16 << 20)?;
    let target = Bench::new(dir, &wanted(bytes, 16 << 20))?.close()?;
    let command = |folder: &Path, words: &[&str]| {
        let mut command = Command::new(&choices.program);
        command.args(words).env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", folder).stderr(Stdio::inherit());
        command
    };
    let name = format!("{NAME}@{SNAPSHOT}");
    let mut sender = command(source.path(), &["zfs", "send", "-L", &name]).stdout(Stdio::piped()).spawn()?;
    let out = sender.stdout.take().ok_or("no pipe")?;
    let into = format!("{NAME}/copy");
    let mut receiver = command(target.path(), &["zfs", "receive", "-u", &into]);
    let mut receiver = receiver.stdin(out).stdout(Stdio::null()).spawn()?;
    let (mut sent, mut received) = (0, 0);
    loop {
        sent = sent.max(peak_of(sender.id()));
        received = received.max(peak_of(receiver.id()));
        if let Some(status) = receiver.try_wait()? {
            if !status.success() || !sender.wait()?.success() {
                return Err("the stream was not received".into());
            }
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for (what, peak) in [("zfs send -L, 16 MiB blocks", sent), ("zfs receive, 16 MiB blocks", received)] {
        report.add(Line {
            what: what.to_owned(),
            unit: "MiB",
            ours: (peak >> 20) as f64,
            peer: Some(("the goal".to_owned(), MEMORY_GOAL)),
            goal: Some(Goal::AtMost(1.0)),
            note: String::new(),
        });
    }
    Ok(())
}
