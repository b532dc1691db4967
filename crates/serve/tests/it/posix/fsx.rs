//! One file, which is changed by all kinds of calls, and a model in memory: after each step both are
//! compared.

use super::mounted_pool::MountedPool;
use super::random::Chance;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// Greatest length of the file in bytes.
const MAX: u64 = 600_000;

/// Whether pages are mapped. A process that maps a file of its own mount waits for itself, so this is for
/// servers in another process only.
const MAPS: bool = false;

/// A file and its model.
struct Pair {
    path: std::path::PathBuf,
    fd: OwnedFd,
    model: Vec<u8>,
    chance: Chance,
}

/// Calls `look` with a part of a file, through a mapping of its pages.
#[allow(unsafe_code)] // Mappings.
fn through_pages(fd: &OwnedFd, end: usize, look: impl FnOnce(&mut [u8])) {
    // SAFETY: a new mapping of `end` bytes, all within the file, which only this thread changes; it is used
    // while it exists, and removed here.
    unsafe {
        let at = rustix::mm::mmap(
            std::ptr::null_mut(),
            end,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            0,
        )
        .unwrap();
        look(std::slice::from_raw_parts_mut(at.cast(), end));
        rustix::mm::msync(at, end, MsyncFlags::ASYNC).unwrap();
        rustix::mm::munmap(at, end).unwrap();
    }
}

impl Pair {
    fn new(root: &Path, seed: u64) -> Pair {
        let path = root.join(format!("fsx{seed}"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).unwrap();
        Pair { path, fd, model: Vec::new(), chance: Chance::new(seed) }
    }

    fn range(&mut self, end: u64) -> (usize, usize) {
        let at = self.chance.below(end.max(1));
        let len = [1, 4096, 60_000, 200_000][self.chance.below(4) as usize];
        let len = (1 + self.chance.below(len)).min(end.saturating_sub(at));
        (at as usize, len as usize)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first = self.chance.next();
        (0..len).map(|i| (first.wrapping_add(i as u64 * 7) >> (i % 3)) as u8).collect()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if self.model.len() < at + bytes.len() {
            self.model.resize(at + bytes.len(), 0);
        }
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn zero(&mut self, at: usize, len: usize) {
        let end = self.model.len().min(at + len);
        if at < end {
            self.model[at..end].fill(0);
        }
    }

    fn direct(&self, flags: OFlags) -> OwnedFd {
        rustix::fs::open(&self.path, flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// Makes one change or one comparison; returns its description.
    fn step(&mut self) -> String {
        let size = self.model.len() as u64;
        let (at, len) = self.range(MAX);
        let kind = self.chance.below(16);
        match kind {
            0..=2 => {
                let bytes = self.bytes(len);
                assert_eq!(rustix::io::pwrite(&self.fd, &bytes, at as u64).unwrap(), len);
                self.put(at, &bytes);
            }
            3 => {
                rustix::fs::ftruncate(&self.fd, at as u64).unwrap();
                self.model.resize(at, 0);
            }
            4 | 5 if MAPS && size > 0 => {
                let (at, len) = self.range(size);
                let bytes = self.bytes(len);
                through_pages(&self.fd, at + len, |pages| pages[at..].copy_from_slice(&bytes));
                self.put(at, &bytes);
            }
            6 if MAPS && size > 0 => {
                let (at, len) = self.range(size);
                let model = &self.model[at..at + len];
                through_pages(&self.fd, at + len, |pages| assert!(pages[at..] == *model, "pages {at}+{len}"));
            }
            7 | 8 => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.fd, how, at as u64, len as u64).unwrap();
                self.zero(at, len);
            }
            9 => {
                rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), at as u64, len as u64).unwrap();
                let end = self.model.len().max(at + len);
                self.model.resize(end, 0);
            }
            10 => {
                rustix::fs::fallocate(&self.fd, FallocateFlags::ZERO_RANGE, at as u64, len as u64).unwrap();
                let end = self.model.len().max(at + len);
                self.model.resize(end, 0);
                self.zero(at, len);
            }
            11 | 12 if size > 0 => self.copy(at),
            13 => {
                rustix::fs::fsync(&self.fd).unwrap();
            }
            14 => {
                let (at, len) = (at / 4096 * 4096, len.div_ceil(4096) * 4096);
                let fd = self.direct(OFlags::WRONLY);
                let bytes = self.bytes(len + 4096);
                // Buffers of direct I/O begin at a page.
                let skip = bytes.as_ptr().align_offset(4096);
                let bytes = bytes[skip..skip + len].to_vec();
                let mut room = vec![0_u8; len + 4096];
                let skip = room.as_ptr().align_offset(4096);
                room[skip..skip + len].copy_from_slice(&bytes);
                assert_eq!(rustix::io::pwrite(&fd, &room[skip..skip + len], at as u64).unwrap(), len);
                self.put(at, &bytes);
            }
            _ => {
                let flags = OFlags::RDWR | OFlags::CLOEXEC;
                self.fd = rustix::fs::open(&self.path, flags, Mode::empty()).unwrap();
            }
        }
        format!("{kind} {at}+{len}, size {} -> {}", size, self.model.len())
    }

    /// Copies one range over another; shares blocks where possible.
    fn copy(&mut self, to: usize) {
        let (from, len) = self.range(self.model.len() as u64);
        // Often whole records.
        let (from, to, len) = match self.chance.below(2) {
            0 => (from / 16_384 * 16_384, to / 16_384 * 16_384, len.div_ceil(16_384) * 16_384),
            _ => (from, to, len),
        };
        let len = len.min(self.model.len() - from).min(from.abs_diff(to));
        let (mut source, mut target) = (from as u64, to as u64);
        let mut left = len;
        while left > 0 {
            let done =
                rustix::fs::copy_file_range(&self.fd, Some(&mut source), &self.fd, Some(&mut target), left)
                    .unwrap();
            assert!(done > 0, "nothing is copied of {left} bytes");
            left -= done;
        }
        let bytes = self.model[from..from + len].to_vec();
        self.put(to, &bytes);
    }

    fn compare(&self, what: &dyn Fn() -> String) {
        let size = rustix::fs::fstat(&self.fd).unwrap().st_size;
        assert_eq!(size, self.model.len() as i64, "size: {}", what());
        let mut found = vec![0; self.model.len() + 1];
        let read = rustix::io::pread(&self.fd, &mut found, 0).unwrap();
        found.truncate(read);
        if found != self.model {
            let differs = found.iter().zip(&self.model).position(|(found, model)| found != model);
            panic!("byte {differs:?} of {read}, which should be {}: {}", self.model.len(), what());
        }
    }
}

/// Runs steps from a seed, and compares after each few.
pub(crate) fn run(home: &MountedPool, seed: u64, steps: u64) {
    let mut pair = Pair::new(&home.at(), seed);
    let mut so_far = Vec::new();
    for step in 0..steps {
        so_far.push(pair.step());
        if step % 4 == 0 {
            let last = so_far.len().saturating_sub(12);
            pair.compare(&|| format!("seed {seed}, step {step}, after\n{}", so_far[last..].join("\n")));
        }
    }
}

/// The expected contents of the files.
pub(crate) struct Left(Vec<(std::path::PathBuf, Vec<u8>)>);

/// Several threads, each with a file of its own.
pub(crate) fn run_many(home: &MountedPool, seeds: std::ops::Range<u64>, steps: u64) -> Left {
    std::thread::scope(|scope| {
        let runs: Vec<_> = seeds
            .map(|seed| {
                scope.spawn(move || {
                    run(home, seed, steps);
                    let path = home.at().join(format!("fsx{seed}"));
                    let content = std::fs::read(&path).unwrap();
                    (path, content)
                })
            })
            .collect();
        Left(runs.into_iter().map(|run| run.join().unwrap()).collect())
    })
}

impl Left {
    /// Checks that the contents are the same, read from the devices by a new mount.
    pub(crate) fn check(&self) {
        for (path, content) in &self.0 {
            assert!(std::fs::read(path).unwrap() == *content, "{}", path.display());
        }
    }
}
