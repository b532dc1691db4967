//! The outside world of the engine: time, randomness, threads, devices that are opened by their path.
//!
//! They come in through one door so that a test can replay a run from its seed. [`Env::system`]
//! is the real thing, [`Env::simulated`] a clock that moves when told and numbers from a seed.

use crate::device::file::{self, Access};
use crate::device::{Device, DeviceError};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Since the start of 1970.
    fn wall(&self) -> Duration;
    /// Since some fixed instant; never goes back.
    fn monotonic(&self) -> Duration;
}

/// Opens devices for writing.
pub trait Opener: Send + Sync + std::fmt::Debug {
    /// Opens a file or block device for writing, alone: [`DeviceError::Busy`] if somebody else has it.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open_exclusive(&self, path: &Path, access: Access) -> Result<Arc<dyn Device>, DeviceError>;
}

/// The files and block devices of the system.
#[derive(Debug)]
struct SystemOpener;

impl Opener for SystemOpener {
    fn open_exclusive(&self, path: &Path, access: Access) -> Result<Arc<dyn Device>, DeviceError> {
        file::open_exclusive(path, access)
    }
}

/// Time, randomness, threads and devices.
#[derive(Debug, Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<Mutex<Random>>,
    workers: usize,
    opener: Arc<dyn Opener>,
}

impl Env {
    /// The system's clock, numbers seeded by the system, a worker per processor.
    pub fn system() -> Env {
        Env {
            clock: Arc::new(SystemClock { start: std::time::Instant::now() }),
            random: Arc::new(Mutex::new(Random::from_system())),
            workers: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            opener: Arc::new(SystemOpener),
        }
    }

    /// A clock that stands still until [`ManualClock::advance`], numbers from `seed`.
    pub fn simulated(seed: u64) -> (Env, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let random = Arc::new(Mutex::new(Random::from_seed(seed)));
        let opener = Arc::new(SystemOpener);
        (Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, random, workers: 1, opener }, clock)
    }

    /// Time.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// A random number, zero excluded: what guids are made of.
    pub fn random(&self) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let number = random.next();
            if number != 0 {
                return number;
            }
        }
    }

    /// How many threads work in parallel, at least 1.
    pub fn workers(&self) -> usize {
        self.workers.max(1)
    }

    /// The same with another number of workers.
    pub fn with_workers(mut self, workers: usize) -> Env {
        self.workers = workers.max(1);
        self
    }

    /// The same with another way to open devices.
    #[must_use]
    pub fn with_opener(mut self, opener: Arc<dyn Opener>) -> Env {
        self.opener = opener;
        self
    }

    /// Opens a file or block device for writing, alone, past the page cache unless [`Access::Cached`] is asked for.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if somebody else has it; otherwise why it cannot be opened.
    pub fn open_exclusive(&self, path: &Path, access: Access) -> Result<Arc<dyn Device>, DeviceError> {
        self.opener.open_exclusive(path, access)
    }

    /// Runs `work` on every item, several at a time, results in the order of the items.
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let threads = self.workers().min(items.len());
        if threads <= 1 {
            return items.iter().map(work).collect();
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(items.len()));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((i, item)) = {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        items.get(i).map(|item| (i, item))
                    } {
                        let result = work(item);
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(i, _)| *i);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl Default for Env {
    fn default() -> Env {
        Env::system()
    }
}

#[derive(Debug)]
struct SystemClock {
    start: std::time::Instant,
}

impl Clock for SystemClock {
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Duration {
        self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// Pseudo-random numbers (SplitMix64): for tests and identities, not for keys.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// Seeded by the operating system.
    pub fn from_system() -> Random {
        use std::hash::{BuildHasher, Hasher};
        // The standard library seeds its hash maps from the system's generator.
        Random(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // endless: an iterator would only add an Option
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True once in `of` times, never if `of` is 0.
    pub fn one_in(&mut self, of: u64) -> bool {
        of != 0 && self.below(of) == 0
    }

    /// Fills with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_keeps_the_order_and_does_all() {
        let items: Vec<u32> = (0..1000).collect();
        let doubled = Env::system().with_workers(4).map(&items, |x| x * 2);
        assert_eq!(doubled, items.iter().map(|x| x * 2).collect::<Vec<_>>());
    }

    #[test]
    fn simulated_world_replays() {
        let (one, clock) = Env::simulated(7);
        let (two, _) = Env::simulated(7);
        assert_eq!((one.random(), one.random()), (two.random(), two.random()));
        clock.advance(Duration::from_secs(3));
        assert_eq!(one.clock().wall(), Duration::from_secs(3));
    }

    #[test]
    fn splitmix_reference() {
        let mut random = Random::from_seed(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
