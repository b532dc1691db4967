//! The environment of a session: clock, random numbers, number of threads, and the source of its devices.
//!
//! A session takes all four from one [`Env`], so that a test can replay a run from its seed. [`Env::system`]
//! uses the machine's; [`Env::simulated`] has a clock that the caller advances, and numbers from a seed.

pub use crate::random::Random;
use crate::source::Devices;
use crate::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock: wall time and monotonic time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Time since the start of 1970, UTC.
    fn wall(&self) -> Duration;
    /// Time since a fixed instant before the first call; it never goes back.
    fn monotonic(&self) -> Duration;
}

/// The surroundings of a session. Cloning is cheap; clones share the clock, the random sequence and the
/// devices.
#[derive(Debug, Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<Mutex<Random>>,
    workers: usize,
    devices: Devices,
}

impl Env {
    /// The system's clock and devices, random numbers seeded by the system, one worker per processor.
    pub fn system() -> Env {
        Env {
            clock: Arc::new(SystemClock { start: std::time::Instant::now() }),
            random: Arc::new(Mutex::new(Random::from_system())),
            workers: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            devices: Devices::system(),
        }
    }

    /// A simulated environment: a clock that stands still until [`ManualClock::advance`], numbers from
    /// `seed`, one worker; the system's devices, unless [`Env::with_devices`] replaces them.
    pub fn simulated(seed: u64) -> (Env, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let random = Arc::new(Mutex::new(Random::from_seed(seed)));
        (
            Env {
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                random,
                workers: 1,
                devices: Devices::system(),
            },
            clock,
        )
    }

    /// The clock of the session.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// A random number other than 0, as guids need it.
    pub fn random(&self) -> u64 {
        let mut random = lock(&self.random);
        loop {
            let number = random.next();
            if number != 0 {
                return number;
            }
        }
    }

    /// Number of threads that work in parallel, at least 1.
    pub fn workers(&self) -> usize {
        self.workers.max(1)
    }

    /// The same environment with another number of workers.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Env {
        self.workers = workers.max(1);
        self
    }

    /// The same environment with another source of devices.
    #[must_use]
    pub fn with_devices(mut self, devices: Devices) -> Env {
        self.devices = devices;
        self
    }

    /// The source from which the session opens its devices.
    pub fn devices(&self) -> &Devices {
        &self.devices
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
                        lock(&results).push((i, result));
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

/// A clock for tests, which stands still until it is advanced.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward by a duration.
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
}
