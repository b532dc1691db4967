//! Counters of a leaf: operations, bytes, and histograms of times and sizes, for each priority.
//!
//! Filled by reads and writes of blocks in this tree and by trimming; read by `zpool iostat` and kstat files.
//! Labels are written to devices directly and not counted.
//!
//! # What always holds
//! - Counting never waits: counters are atomic and sharded, and threads are spread over the shards.
//! - A sample is the sum of the shards. It may contain parts of operations that end meanwhile: the operation,
//!   but not yet its bytes.
//! - Requests that were given to the devices together all count with the time until the last of them was
//!   done, which is the time that their caller waited.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Buckets of a histogram of times: bucket `i` counts 2^i to 2^(i+1) - 1 nanoseconds, the last one also all
/// longer times.
pub const TIME_BUCKETS: usize = 37;
/// Buckets of a histogram of sizes: bucket `i` counts 2^i to 2^(i+1) - 1 bytes, the last one also all larger
/// sizes.
pub const SIZE_BUCKETS: usize = 25;
/// Copies of the counters of a leaf; threads are spread over them, so that they seldom share a cache line.
const SHARDS: usize = 4;

/// Purpose of a request; requests are counted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Reads for which a caller waits.
    SyncRead,
    /// Writes for which a caller waits: the intent log.
    SyncWrite,
    /// Read-ahead.
    AsyncRead,
    /// Writes of a transaction group.
    AsyncWrite,
    /// Reads of scrubs and resilvers.
    Scrub,
    /// Discards of free space, by trim.
    Trim,
    /// Sequential rebuild of a device.
    Rebuild,
}

impl Priority {
    /// All priorities, in the order of `zpool iostat`.
    pub const ALL: [Priority; PRIORITIES] = [
        Priority::SyncRead,
        Priority::SyncWrite,
        Priority::AsyncRead,
        Priority::AsyncWrite,
        Priority::Scrub,
        Priority::Trim,
        Priority::Rebuild,
    ];

    /// Index of the priority in [`Priority::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Priority of reads of this thread; [`Priority::SyncRead`] without a [`PriorityGuard`].
    pub(super) fn of_read() -> Priority {
        PRIORITY.get().unwrap_or(Priority::SyncRead)
    }

    /// Priority of writes of this thread; [`Priority::AsyncWrite`] without a [`PriorityGuard`].
    pub(super) fn of_write() -> Priority {
        match PRIORITY.get() {
            // Repairs are writes of the scrub or read that found the damage.
            None | Some(Priority::Scrub | Priority::SyncRead | Priority::AsyncRead) => Priority::AsyncWrite,
            Some(priority) => priority,
        }
    }
}

/// Number of [`Priority`] values.
pub const PRIORITIES: usize = 7;

thread_local! {
    static PRIORITY: Cell<Option<Priority>> = const { Cell::new(None) };
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

/// A guard: while it lives, requests of this thread count with its priority.
pub struct PriorityGuard {
    before: Option<Priority>,
    /// Makes the guard stay on its thread.
    thread: PhantomData<*const ()>,
}

impl PriorityGuard {
    /// Sets the priority of this thread until the guard is dropped.
    #[must_use]
    pub fn begin(priority: Priority) -> PriorityGuard {
        PriorityGuard { before: PRIORITY.replace(Some(priority)), thread: PhantomData }
    }
}

impl Drop for PriorityGuard {
    fn drop(&mut self) {
        PRIORITY.set(self.before);
    }
}

/// The kind of a request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reading a range.
    Read,
    /// Writing a range.
    Write,
    /// Discarding a range of free space.
    Trim,
}

/// Number of kinds of operations.
pub(crate) const OPS: usize = 3;

/// A histogram of times: how many requests are in each bucket.
pub type Times = [u64; TIME_BUCKETS];
/// A histogram of sizes: how many requests are in each bucket.
pub type Sizes = [u64; SIZE_BUCKETS];

/// I/O counters of one or several leaves since they were opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoStats {
    /// Operations given to the device, by [`Op`].
    pub ops: [u64; OPS],
    /// Bytes of these operations, by [`Op`].
    pub bytes: [u64; OPS],
    /// Histograms for reads and writes: time from the call to the answer.
    pub total_wait: [Times; 2],
    /// Histograms for reads and writes: time in the device.
    pub disk_wait: [Times; 2],
    /// By [`Priority`]: time from the call to the submission to the device.
    pub queue_wait: [Times; PRIORITIES],
    /// By [`Priority`]: sizes of requests, including those that were joined to larger ones.
    pub individual: [Sizes; PRIORITIES],
    /// By [`Priority`]: sizes of requests that were joined from smaller ones.
    pub aggregated: [Sizes; PRIORITIES],
    /// By [`Priority`]: number of requests that wait for their submission.
    pub pending: [u64; PRIORITIES],
    /// By [`Priority`]: number of requests that the device has not answered yet.
    pub active: [u64; PRIORITIES],
}

impl Default for IoStats {
    fn default() -> IoStats {
        IoStats {
            ops: [0; OPS],
            bytes: [0; OPS],
            total_wait: [[0; TIME_BUCKETS]; 2],
            disk_wait: [[0; TIME_BUCKETS]; 2],
            queue_wait: [[0; TIME_BUCKETS]; PRIORITIES],
            individual: [[0; SIZE_BUCKETS]; PRIORITIES],
            aggregated: [[0; SIZE_BUCKETS]; PRIORITIES],
            pending: [0; PRIORITIES],
            active: [0; PRIORITIES],
        }
    }
}

impl IoStats {
    /// Adds the counters of another leaf.
    pub fn add(&mut self, other: &IoStats) {
        self.change(other, u64::wrapping_add);
        each(&mut self.pending, &other.pending, u64::wrapping_add);
        each(&mut self.active, &other.active, u64::wrapping_add);
    }

    /// Differences to an earlier sample. `pending` and `active` stay those of now.
    pub fn since(&self, earlier: &IoStats) -> IoStats {
        let mut difference = self.clone();
        difference.change(earlier, u64::saturating_sub);
        difference
    }

    fn change(&mut self, other: &IoStats, how: fn(u64, u64) -> u64) {
        each(&mut self.ops, &other.ops, how);
        each(&mut self.bytes, &other.bytes, how);
        let rows = |to: &mut [Times], from: &[Times]| {
            to.iter_mut().zip(from).for_each(|(to, from)| each(to, from, how));
        };
        rows(&mut self.total_wait, &other.total_wait);
        rows(&mut self.disk_wait, &other.disk_wait);
        rows(&mut self.queue_wait, &other.queue_wait);
        let rows = |to: &mut [Sizes], from: &[Sizes]| {
            to.iter_mut().zip(from).for_each(|(to, from)| each(to, from, how));
        };
        rows(&mut self.individual, &other.individual);
        rows(&mut self.aggregated, &other.aggregated);
    }
}

fn each(to: &mut [u64], from: &[u64], how: fn(u64, u64) -> u64) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = how(*to, *from));
}

/// The counters of a leaf.
#[derive(Debug)]
pub(super) struct IoCounters {
    pub(super) born: Instant,
    shards: [OnceLock<Box<Shard>>; SHARDS],
}

impl Default for IoCounters {
    fn default() -> IoCounters {
        IoCounters { born: Instant::now(), shards: Default::default() }
    }
}

#[derive(Debug)]
struct Shard {
    ops: [AtomicU64; OPS],
    bytes: [AtomicU64; OPS],
    total_wait: [[AtomicU64; TIME_BUCKETS]; 2],
    disk_wait: [[AtomicU64; TIME_BUCKETS]; 2],
    queue_wait: [[AtomicU64; TIME_BUCKETS]; PRIORITIES],
    individual: [[AtomicU64; SIZE_BUCKETS]; PRIORITIES],
    aggregated: [[AtomicU64; SIZE_BUCKETS]; PRIORITIES],
    /// A thread may decrement what another has incremented: only the sum of all shards is meaningful.
    pending: [AtomicU64; PRIORITIES],
    active: [AtomicU64; PRIORITIES],
}

fn zeros<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

impl Shard {
    fn new() -> Box<Shard> {
        Box::new(Shard {
            ops: zeros(),
            bytes: zeros(),
            total_wait: [zeros(), zeros()],
            disk_wait: [zeros(), zeros()],
            queue_wait: std::array::from_fn(|_| zeros()),
            individual: std::array::from_fn(|_| zeros()),
            aggregated: std::array::from_fn(|_| zeros()),
            pending: zeros(),
            active: zeros(),
        })
    }

    fn sample(&self) -> IoStats {
        fn all<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
            std::array::from_fn(|i| counters[i].load(Ordering::Relaxed))
        }
        IoStats {
            ops: all(&self.ops),
            bytes: all(&self.bytes),
            total_wait: std::array::from_fn(|i| all(&self.total_wait[i])),
            disk_wait: std::array::from_fn(|i| all(&self.disk_wait[i])),
            queue_wait: std::array::from_fn(|i| all(&self.queue_wait[i])),
            individual: std::array::from_fn(|i| all(&self.individual[i])),
            aggregated: std::array::from_fn(|i| all(&self.aggregated[i])),
            pending: all(&self.pending),
            active: all(&self.active),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// Bucket of a number: the index of its highest bit, at most that of the last bucket.
fn bucket(number: u64, buckets: usize) -> usize {
    (number.max(1).ilog2() as usize).min(buckets - 1)
}

/// A request that the device has answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) op: Op,
    pub(super) priority: Priority,
    pub(super) bytes: u64,
    /// Time from the call until the submission to the device.
    pub(super) queued: Duration,
    /// Time from the submission to the device until its answer.
    pub(super) took: Duration,
    /// The request was joined from several smaller ones.
    pub(super) is_joined: bool,
}

impl IoCounters {
    fn shard(&self) -> &Shard {
        self.shards[SHARD.with(|shard| *shard)].get_or_init(Shard::new)
    }

    /// Counts a request that is being given to the device.
    pub(super) fn begin(&self, priority: Priority) {
        add(&self.shard().active[priority.index()], 1);
    }

    /// Counts a request that the device has answered, with success or not.
    pub(super) fn end(&self, done: Done) {
        let shard = self.shard();
        let Done { op, priority, bytes, queued, took, is_joined } = done;
        shard.active[priority.index()].fetch_sub(1, Ordering::Relaxed);
        add(&shard.ops[op as usize], 1);
        add(&shard.bytes[op as usize], bytes);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let slot = |time: Duration| bucket(nanos(time), TIME_BUCKETS);
        if op != Op::Trim {
            add(&shard.total_wait[op as usize][slot(queued.saturating_add(took))], 1);
            add(&shard.disk_wait[op as usize][slot(took)], 1);
        }
        add(&shard.queue_wait[priority.index()][slot(queued)], 1);
        if is_joined {
            add(&shard.aggregated[priority.index()][bucket(bytes, SIZE_BUCKETS)], 1);
        } else {
            self.individual(priority, bytes);
        }
    }

    /// Counts a request that is a part of a larger one.
    pub(super) fn individual(&self, priority: Priority, bytes: u64) {
        add(&self.shard().individual[priority.index()][bucket(bytes, SIZE_BUCKETS)], 1);
    }

    /// The sum of all shards since the leaf was opened.
    pub(super) fn sample(&self) -> IoStats {
        let mut sum = IoStats::default();
        self.shards.iter().filter_map(OnceLock::get).for_each(|shard| sum.add(&shard.sample()));
        sum
    }

    /// Operations and bytes of one kind.
    pub(super) fn count(&self, op: Op) -> (u64, u64) {
        let shards = || self.shards.iter().filter_map(OnceLock::get);
        let sum = |of: fn(&Shard) -> &[AtomicU64; OPS]| {
            shards().map(|shard| of(shard)[op as usize].load(Ordering::Relaxed)).sum()
        };
        (sum(|shard| &shard.ops), sum(|shard| &shard.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(op: Op, priority: Priority, bytes: u64, queued: u64, took: u64) -> Done {
        let (queued, took) = (Duration::from_nanos(queued), Duration::from_nanos(took));
        Done { op, priority, bytes, queued, took, is_joined: false }
    }

    #[test]
    fn buckets_begin_at_powers_of_two() {
        for (number, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10)] {
            assert_eq!(bucket(number, TIME_BUCKETS), expected, "{number}");
        }
        assert_eq!(bucket(u64::MAX, TIME_BUCKETS), TIME_BUCKETS - 1);
        assert_eq!(bucket(16 << 20, SIZE_BUCKETS), SIZE_BUCKETS - 1);
        assert_eq!(bucket(64 << 20, SIZE_BUCKETS), SIZE_BUCKETS - 1);
    }

    #[test]
    fn all_threads_count_together() {
        let counters = IoCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.begin(Priority::SyncRead);
                        counters.end(done(Op::Read, Priority::SyncRead, 4096, 0, 5000));
                        counters.begin(Priority::Scrub);
                    }
                });
            }
        });
        let sum = counters.sample();
        assert_eq!((sum.ops, sum.bytes), ([8000, 0, 0], [8000 * 4096, 0, 0]));
        assert_eq!(sum.disk_wait[0][12], 8000);
        assert_eq!(sum.queue_wait[Priority::SyncRead.index()][0], 8000);
        assert_eq!(sum.individual[Priority::SyncRead.index()][12], 8000);
        assert_eq!((sum.active[0], sum.active[Priority::Scrub.index()]), (0, 8000));
        assert_eq!(counters.count(Op::Read), (8000, 8000 * 4096));
    }

    #[test]
    fn differences_are_of_counts_but_not_of_depths() {
        let counters = IoCounters::default();
        let one = |took| {
            counters.begin(Priority::AsyncWrite);
            counters.end(done(Op::Write, Priority::AsyncWrite, 512, 10, took));
        };
        one(100);
        let first = counters.sample();
        one(100);
        one(70_000);
        counters.begin(Priority::AsyncWrite);
        let later = counters.sample().since(&first);
        assert_eq!(later.ops, [0, 2, 0]);
        assert_eq!(later.disk_wait[1].iter().sum::<u64>(), 2);
        assert_eq!(later.disk_wait[1][16], 1);
        assert_eq!(later.active[Priority::AsyncWrite.index()], 1);
        let mut both = first.clone();
        both.add(&later);
        assert_eq!(both.ops, [0, 3, 0]);
    }

    #[test]
    fn what_a_thread_does_ends_with_the_guard() {
        assert_eq!((Priority::of_read(), Priority::of_write()), (Priority::SyncRead, Priority::AsyncWrite));
        {
            let _outer = PriorityGuard::begin(Priority::SyncWrite);
            assert_eq!(Priority::of_write(), Priority::SyncWrite);
            {
                let _inner = PriorityGuard::begin(Priority::Scrub);
                assert_eq!(
                    (Priority::of_read(), Priority::of_write()),
                    (Priority::Scrub, Priority::AsyncWrite)
                );
            }
            assert_eq!(Priority::of_write(), Priority::SyncWrite);
        }
        assert_eq!(Priority::of_write(), Priority::AsyncWrite);
    }
}
