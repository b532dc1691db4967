//! Read-ahead: a few threads that read blocks which readers will probably request soon.
//!
//! [`Streams`] predicts the blocks of an object, `zpl` those of directories; both submit tasks.
//!
//! # What always holds
//! - Read-ahead is optional: before [`Prefetch::start`] (tests, tools) no block is read ahead, without
//!   further effect. Tasks that do not fit into the queue are dropped.
//! - Threads are started when there is work for them, so a command that reads little starts none.
//! - After [`Prefetch::stop`] no task is running and none will run.

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, lock};
use std::collections::VecDeque;
use zio::Tunable;

/// Turns read-ahead off.
pub static PREFETCH_DISABLE: Tunable = Tunable::new("zfs_prefetch_disable", 0, 0, 1);

/// Number of threads: enough reads to keep a disk busy, but few enough to leave it to others.
const THREADS: usize = 8;
/// Most waiting tasks.
const QUEUE_MAX: usize = 512;

/// Work of a read-ahead thread: reads some blocks into the cache.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    /// Whether tasks are accepted: between [`Prefetch::start`] and [`Prefetch::stop`].
    is_open: bool,
    /// Number of threads that have been started and have not ended.
    threads: usize,
    /// Number of running tasks.
    running: usize,
    /// Number of callers that wait until no task runs. No task starts meanwhile.
    draining: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The threads and their queue.
#[derive(Default)]
pub(crate) struct Prefetch {
    shared: Arc<Shared>,
}

/// Guard of a running task: it counts as running until this is dropped, also by a panic.
struct Running<'s>(&'s Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running -= 1;
        if state.running == 0 {
            self.0.idle.notify_all();
        }
    }
}

impl Prefetch {
    /// Accepts tasks from now on.
    pub(crate) fn start(&self) {
        self.shared.lock().is_open = true;
    }

    /// Starts a thread if tasks wait and no thread is free. Returns false if there is no thread and the
    /// system refuses one.
    fn staff(&self, state: &mut State) -> bool {
        if state.threads < THREADS && state.threads < state.running + state.queue.len() {
            let shared = Arc::clone(&self.shared);
            let spawned =
                std::thread::Builder::new().name("prefetch".to_owned()).spawn(move || serve(&shared));
            state.threads += usize::from(spawned.is_ok());
        }
        state.threads > 0
    }

    /// Accepts no more tasks and ends the threads. Returns when no task reads any more.
    pub(crate) fn stop(&self) {
        let mut state = self.shared.lock();
        state.is_open = false;
        let dropped = std::mem::take(&mut state.queue);
        self.shared.work.notify_all();
        while state.running > 0 {
            state = self.shared.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // Tasks may hold the last reference to an object, which must not be dropped under the lock.
        drop(dropped);
    }

    /// Drops the waiting tasks, and returns when none is running: no task holds a reference then.
    pub(crate) fn drain(&self) {
        let mut state = self.shared.lock();
        let dropped = std::mem::take(&mut state.queue);
        state.draining += 1;
        while state.running > 0 {
            state = self.shared.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.draining -= 1;
        self.shared.work.notify_all();
        drop(state);
        drop(dropped);
    }

    /// Whether tasks are accepted now.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.shared.lock();
        state.is_open && state.queue.len() < QUEUE_MAX && !PREFETCH_DISABLE.is_on()
    }

    /// Submits tasks to the read-ahead threads; those that do not fit into the queue are dropped.
    pub(crate) fn submit(&self, tasks: impl IntoIterator<Item = Task>) {
        let mut dropped = Vec::new();
        let mut state = self.shared.lock();
        for task in tasks {
            if !state.is_open || state.queue.len() >= QUEUE_MAX || PREFETCH_DISABLE.is_on() {
                dropped.push(task);
                continue;
            }
            state.queue.push_back(task);
            if self.staff(&mut state) {
                self.shared.work.notify_one();
            } else {
                dropped.extend(state.queue.drain(..));
            }
        }
        // Tasks may hold the last reference to an object, which must not be dropped under the lock.
        drop(state);
        drop(dropped);
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        // One of these threads may own the pool last, so none of them is joined.
        let mut state = self.shared.lock();
        state.is_open = false;
        let dropped = std::mem::take(&mut state.queue);
        self.shared.work.notify_all();
        drop(state);
        drop(dropped);
    }
}

fn serve(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let task = loop {
            if !state.is_open {
                state.threads -= 1;
                return;
            }
            match if state.draining == 0 { state.queue.pop_front() } else { None } {
                Some(task) => break task,
                None => state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.running += 1;
        drop(state);
        let running = Running(shared);
        // The panic hook has reported it; a failed task only costs a reader a slower read.
        drop(crate::panics::survive(task));
        drop(running);
    }
}

/// Number of streams of one object that are followed at the same time.
const STREAMS: usize = 4;
/// Most bytes that read-ahead is ahead of a stream.
const AHEAD_MAX: u64 = 16 << 20;
/// Bytes that are read ahead at first.
const AHEAD_FIRST: u64 = 256 << 10;
/// Number of reads at the same distance after which a stream counts as strided.
const STRIDES: u32 = 3;
/// Steps that are read ahead of a strided stream.
const STEPS_AHEAD: u64 = 8;

/// A reader of an object that reads its blocks in a predictable order.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Block at which the next read is expected.
    next: u64,
    /// First block that has not been read ahead.
    ahead: u64,
    /// Number of blocks to be ahead.
    window: u64,
    /// Number of reads that continued where the previous one had ended.
    hits: u32,
    /// Start of the last read, its distance from the previous one, and the number of repetitions of that
    /// distance.
    last: u64,
    stride: i64,
    strides: u32,
    /// Time of the last use; 0: never.
    used: u64,
}

/// Predicts the next blocks of an object from its reads.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

/// Blocks to be read ahead: `count` pieces of `len` blocks from `first` on, at a distance of `step` blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) first: u64,
    pub(crate) len: u64,
    pub(crate) step: i64,
    pub(crate) count: u64,
}

impl Ahead {
    /// The block numbers, none above `max`.
    pub(crate) fn blocks(self, max: u64) -> impl Iterator<Item = u64> {
        let start = move |i: u64| self.first.checked_add_signed(self.step.checked_mul(i.cast_signed())?);
        (0..self.count)
            .map_while(start)
            .flat_map(move |first| first..first.saturating_add(self.len))
            .filter(move |block| *block <= max)
    }
}

impl Streams {
    /// Notes a read of blocks `first..end` of `size` bytes. Returns the blocks to be read ahead, if any.
    pub(crate) fn note(&mut self, first: u64, end: u64, size: u64) -> Option<Ahead> {
        self.clock += 1;
        let clock = self.clock;
        let max = (AHEAD_MAX / size).max(1);
        // A kernel that reads ahead itself sends several requests, which may overtake each other.
        let found = self.streams.iter_mut().filter(|stream| stream.used > 0).find(|stream| {
            stream.next <= end && first <= stream.next.max(stream.next.saturating_add(stream.window.min(max)))
        });
        if let Some(stream) = found {
            stream.used = clock;
            return stream.go_on(first, end, size);
        }
        if let Some(ahead) = self.step(first, end, clock) {
            return Some(ahead);
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used)?;
        *oldest = Stream { next: end, ahead: end, last: first, used: clock, ..Stream::default() };
        // A reader that starts at the first block usually continues.
        if first == 0 { oldest.go_on(first, end, size) } else { None }
    }

    /// Follows a read at the same distance from the previous one as that from the one before.
    fn step(&mut self, first: u64, end: u64, clock: u64) -> Option<Ahead> {
        let stream =
            self.streams.iter_mut().filter(|stream| stream.used > 0).max_by_key(|stream| stream.used)?;
        let stride = first.cast_signed().wrapping_sub(stream.last.cast_signed());
        if stride == 0 || stream.hits > 1 {
            return None;
        }
        stream.strides = if stride == stream.stride { stream.strides + 1 } else { 1 };
        (stream.stride, stream.last, stream.used, stream.next, stream.ahead) =
            (stride, first, clock, end, end);
        (stream.window, stream.hits) = (0, 0);
        if stream.strides < STRIDES {
            return None;
        }
        // As many steps as allowed at once, then one more for each read.
        let count = if stream.strides == STRIDES { STEPS_AHEAD } else { 1 };
        let step = if count == 1 { STEPS_AHEAD.cast_signed() } else { 1 };
        let begin = first.checked_add_signed(stride.checked_mul(step)?)?;
        Some(Ahead { first: begin, len: end - first, step: stride, count })
    }
}

impl Stream {
    fn go_on(&mut self, first: u64, end: u64, size: u64) -> Option<Ahead> {
        if end > self.next || self.hits == 0 {
            self.hits += 1;
            let max = (AHEAD_MAX / size).max(1);
            let least = (AHEAD_FIRST / size).max(2 * (end - first)).max(1);
            self.window = (self.window * 2).clamp(least.min(max), max);
        }
        self.next = self.next.max(end);
        self.last = first;
        let (from, to) = (self.ahead.max(self.next), self.next.saturating_add(self.window));
        // At least half the window at a time: few large requests instead of many small ones.
        if to.saturating_sub(from) < self.window.div_ceil(2) {
            return None;
        }
        self.ahead = to;
        Some(Ahead { first: from, len: to - from, step: 1, count: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const BLOCK: u64 = 128 << 10;

    fn read_ahead(reads: impl IntoIterator<Item = (u64, u64)>) -> Vec<Vec<u64>> {
        let mut streams = Streams::default();
        let note = |(first, end)| {
            streams.note(first, end, BLOCK).map_or(Vec::new(), |ahead| ahead.blocks(u64::MAX).collect())
        };
        reads.into_iter().map(note).collect()
    }

    #[test]
    fn a_stream_is_read_ahead_further_and_further_each_block_once() {
        let all = read_ahead((0..1000).map(|block| (block, block + 1)));
        let mut seen: Vec<u64> = all.concat();
        assert!(seen.is_sorted() && !all[0].is_empty());
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count);
        // Every block was read ahead before its read, and never more than the bound.
        assert_eq!(seen[0], 1);
        let mut ahead = 0;
        for (block, asked) in (0..).zip(&all) {
            ahead = asked.last().map_or(ahead, |last| *last);
            assert!(ahead >= block && ahead <= block + AHEAD_MAX / BLOCK, "{ahead} at {block}");
        }
    }

    #[test]
    fn two_streams_and_requests_that_overtake_each_other() {
        let two = (0..100).flat_map(|i| [(i, i + 1), (10_000 + i, 10_001 + i)]);
        let all = read_ahead(two).concat();
        assert!(all.iter().any(|block| *block > 10_100) && all.iter().any(|block| (90..200).contains(block)));
        let swapped =
            (0..50).flat_map(|i| [(16 * i, 16 * i + 8), (16 * i + 8, 16 * i + 16)].into_iter().rev());
        let all = read_ahead(swapped).concat();
        assert!(all.contains(&790), "{:?}", all.last());
    }

    #[test]
    fn random_reads_are_left_alone() {
        let mut state = 7_u64;
        let random = (0..10_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (state >> 33) % 1_000_000 + 1;
            (block, block + 1)
        });
        let all = read_ahead(random).concat();
        assert!(all.len() < 20, "{} blocks", all.len());
    }

    #[test]
    fn strides_are_followed_forwards_and_backwards() {
        let all = read_ahead((0..20).map(|i| (1000 + 50 * i, 1002 + 50 * i))).concat();
        assert!(all.contains(&1500) && all.contains(&1501) && !all.contains(&1502));
        let all = read_ahead((0..20).map(|i| (100_000 - 70 * i, 100_001 - 70 * i))).concat();
        assert!(all.contains(&(100_000 - 70 * 10)));
    }

    #[test]
    fn tasks_run_and_none_after_the_end() {
        let prefetch = Prefetch::default();
        let done = Arc::new(AtomicU64::new(0));
        let task = || {
            let done = Arc::clone(&done);
            Box::new(move || {
                done.fetch_add(1, Ordering::Relaxed);
            }) as Task
        };
        prefetch.submit([task()]);
        assert!(!prefetch.has_room(), "nothing is read before it is started");
        prefetch.start();
        prefetch.submit((0..100).map(|_| task()));
        while done.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        prefetch.stop();
        prefetch.submit([task()]);
        assert_eq!(done.load(Ordering::Relaxed), 100);
    }
}
