//! Workloads on data: streams, databases, durable writes.

use super::loop_image::warm_memory;
use super::meter::{Meter, Row, percentiles};
use super::providers::Purpose;
use super::site::{Site, System};
use crate::Failure;
use crate::pools::noise;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use vdev::env::Random;

const PAGE: usize = 8 << 10;
const CALL: usize = 1 << 20;
/// Alignment of buffers for O_DIRECT, in bytes.
const ALIGNMENT: usize = 4096;
/// Number of threads that write with O_DSYNC.
const WRITERS: u64 = 10;
/// Size of a record that a log writer appends, in bytes.
const LOG_RECORD: usize = 4096;
/// Number of bytes appended before each fdatasync.
const APPENDED: usize = 512;

/// Amount of work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Size of a streamed file and of a database in bytes.
    pub(super) bytes: u64,
    /// Duration of a workload with random offsets in seconds.
    pub(super) seconds: u64,
}

/// A buffer with the alignment that direct I/O needs.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(data: &[u8]) -> Aligned {
        let mut bytes = vec![0; data.len() + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes[start..start + data.len()].copy_from_slice(data);
        Aligned { bytes, start, len: data.len() }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Failure> {
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?)
}

fn write_all(file: &OwnedFd, data: &[u8], offset: u64) -> Result<(), Failure> {
    let done = rustix::io::pwrite(file, data, offset)?;
    if done == data.len() { Ok(()) } else { Err("a short write".into()) }
}

/// Creates a durable file of random bytes, written in large calls.
fn fill(path: &Path, bytes: u64) -> Result<(), Failure> {
    let file = open(path, OFlags::CREATE | OFlags::WRONLY)?;
    let data = noise(CALL * 8, 3);
    for call in 0..bytes / CALL as u64 {
        let at = (call % 8) as usize * CALL;
        write_all(&file, &data[at..at + CALL], call * CALL as u64)?;
    }
    rustix::fs::fsync(&file)?;
    Ok(())
}

/// `dd`: writes a file or the bare device sequentially in calls of 1 MiB, and reads it cold.
pub(super) fn stream(site: &mut Site<'_>, extent: Extent, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    let is_file = site.kind != System::Disk;
    let path = if is_file { site.dir().join("stream") } else { site.dir() };
    let calls = extent.bytes / CALL as u64;
    warm_memory(extent.bytes * 2)?;
    let meter = Meter::start(site);
    fill(&path, extent.bytes)?;
    rows.push(meter.stop(site, "dd write, MiB", calls));
    site.cool()?;
    let meter = Meter::start(site);
    let file = open(&path, OFlags::RDONLY)?;
    let mut buffer = vec![0; CALL];
    for _ in 0..calls {
        if rustix::io::read(&file, &mut buffer[..])? != CALL {
            return Err("a short read".into());
        }
    }
    rows.push(meter.stop(site, "dd read, MiB", calls));
    drop(file);
    if is_file {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// A thread's operations on random pages of a file.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    threads: u64,
    flags: OFlags,
    writes: Option<Writes>,
}

#[derive(Clone, Copy)]
enum Writes {
    Random,
    /// The same, with a file for each thread: the kernel makes changes of one FUSE file durable in one thread at a
    /// time.
    Own,
    Append,
}

/// Runs jobs in parallel for some seconds, on files that were opened before. Returns the latencies of each job's
/// operations.
fn run_jobs(path: &Path, jobs: &[Job], extent: Extent) -> Result<Vec<Vec<Duration>>, Failure> {
    let times: Vec<Mutex<Vec<Duration>>> = jobs.iter().map(|_| Mutex::default()).collect();
    let mut workers = Vec::new();
    for (job, times) in jobs.iter().zip(&times) {
        for _ in 0..job.threads {
            let seed = workers.len() as u64 + 1;
            workers.push((job, times, seed, open_for(path, job, seed)?));
        }
    }
    let end = Instant::now() + Duration::from_secs(extent.seconds);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (job, times, seed, file) in workers {
            threads.push(scope.spawn(move || {
                let own = run_job(&file, *job, extent.bytes, (seed, end))?;
                times.lock().map_err(|_| "a thread panicked")?.extend(own);
                Ok::<(), Failure>(())
            }));
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    times.into_iter().map(|times| times.into_inner().map_err(|_| "a thread panicked".into())).collect()
}

/// The file of one writer.
fn own_file(path: &Path, number: u64) -> PathBuf {
    path.with_extension(format!("{number}"))
}

/// The file that a thread works on.
fn open_for(path: &Path, job: &Job, seed: u64) -> Result<OwnedFd, Failure> {
    let path = match job.writes {
        Some(Writes::Append) => path.with_extension("log"),
        Some(Writes::Own) => own_file(path, seed),
        _ => path.to_path_buf(),
    };
    let access = if job.writes.is_some() { OFlags::WRONLY | OFlags::CREATE } else { OFlags::RDONLY };
    open(&path, access | job.flags)
}

fn run_job(
    file: &OwnedFd,
    job: Job,
    bytes: u64,
    (seed, end): (u64, Instant),
) -> Result<Vec<Duration>, Failure> {
    let len = if matches!(job.writes, Some(Writes::Append)) { LOG_RECORD } else { PAGE };
    let mut random = Random::from_seed(seed);
    let mut buffer = Aligned::new(&noise(len, seed));
    let (mut times, mut appended) = (Vec::new(), 0);
    while Instant::now() < end {
        let at = random.below(bytes / PAGE as u64) * PAGE as u64;
        let start = Instant::now();
        match job.writes {
            Some(Writes::Random | Writes::Own) => write_all(file, buffer.bytes(), at)?,
            Some(Writes::Append) => {
                write_all(file, buffer.bytes(), appended)?;
                appended += len as u64;
            }
            None => {
                if rustix::io::pread(file, buffer.bytes(), at)? != PAGE {
                    return Err("a short read".into());
                }
            }
        }
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Direct I/O on 8 KiB pages of a database: reads by 32 threads, durable writes by 10 threads, and both together
/// with a log.
pub(super) fn database(site: &mut Site<'_>, extent: Extent, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Database);
    let path = site.dir().join("table");
    fill(&path, extent.bytes)?;
    site.cool()?;
    let direct = OFlags::DIRECT;
    let reads = Job { name: "8 KiB direct reads, 32 threads", threads: 32, flags: direct, writes: None };
    measure(site, &path, &[reads], extent, rows)?;
    let writes = |name, writes| Job { name, threads: WRITERS, flags: OFlags::DSYNC, writes: Some(writes) };
    let one = writes("8 KiB O_DSYNC, 10 threads, a file", Writes::Random);
    measure(site, &path, &[one], extent, rows)?;
    let part = Extent { bytes: extent.bytes / WRITERS / CALL as u64 * CALL as u64, ..extent };
    let own: Vec<PathBuf> = (1..=WRITERS).map(|number| own_file(&path, number)).collect();
    own.iter().try_for_each(|path| fill(path, part.bytes))?;
    measure(site, &path, &[writes("8 KiB O_DSYNC, 10 threads, own", Writes::Own)], part, rows)?;
    own.iter().try_for_each(std::fs::remove_file)?;
    let durable = direct | OFlags::DSYNC;
    let oltp = [
        Job { name: "OLTP reads, 200 threads", threads: 200, flags: direct, writes: None },
        Job {
            name: "OLTP writes, 10 threads",
            threads: WRITERS,
            flags: direct,
            writes: Some(Writes::Random),
        },
        Job { name: "OLTP log, 1 thread", threads: 1, flags: durable, writes: Some(Writes::Append) },
    ];
    measure(site, &path, &oltp, extent, rows)?;
    std::fs::remove_file(path)?;
    Ok(())
}

/// CPU time and device use of jobs that run together are counted with the first.
fn measure(
    site: &mut Site<'_>,
    path: &Path,
    jobs: &[Job],
    extent: Extent,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let meter = Meter::start(site);
    let done = run_jobs(path, jobs, extent)?;
    let total = meter.stop(site, "", 0);
    for (i, (job, times)) in jobs.iter().zip(done).enumerate() {
        let mut row = if i == 0 {
            total.clone()
        } else {
            Row { system: total.system, wall: total.wall, ..Row::default() }
        };
        (row.what, row.count) = (job.name.to_owned(), times.len() as u64);
        row.latency = percentiles(times);
        rows.push(row);
    }
    Ok(())
}

/// Repeatedly appends a small record and makes it durable.
pub(super) fn fdatasync(site: &mut Site<'_>, extent: Extent, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    let path = site.dir().join("journal");
    let file = open(&path, OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND)?;
    let data = noise(APPENDED, 4);
    let end = Instant::now() + Duration::from_secs(extent.seconds);
    let mut times = Vec::new();
    let meter = Meter::start(site);
    while Instant::now() < end {
        let start = Instant::now();
        if rustix::io::write(&file, &data)? != data.len() {
            return Err("a short write".into());
        }
        rustix::fs::fdatasync(&file)?;
        times.push(start.elapsed());
    }
    let mut row = meter.stop(site, "append, fdatasync", times.len() as u64);
    row.latency = percentiles(times);
    rows.push(row);
    drop(file);
    std::fs::remove_file(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_buffers_are_aligned() {
        let mut buffer = Aligned::new(&[5; 100]);
        assert_eq!(buffer.bytes(), [5; 100]);
        assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
    }
}
