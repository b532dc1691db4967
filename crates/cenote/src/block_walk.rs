//! A parallel walk of object sets: each thread walks a set or checks blocks, whichever is pending.
//!
//! Used by `verify`, which finds damage, and by `inspect`, which counts blocks.
//!
//! # What always holds
//! - Block pointers found by a walk go into one bounded queue. A walker that finds it full checks the block
//!   itself before it goes on: memory is bounded, no thread waits for free space in the queue, and no thread
//!   that panics or is slow stops the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use dmu::traverse::{self, Bookmark, Step, Visitor};
use dmu::{DmuError, ObjSet};
use format::dnode::Dnode;
use format::{BlockPtr, BpKind, Txg};
use vdev::sync::lock;

/// Maximum number of blocks that wait to be checked.
const QUEUE_MAX: usize = 4096;

/// An object set to walk.
pub(crate) struct Walk {
    /// Index of the set in the list of the checker.
    pub(crate) set: usize,
    pub(crate) objset: Arc<ObjSet>,
    /// Only blocks born after this txg are visited.
    pub(crate) newer_than: Txg,
}

/// The work on the blocks of a walk.
pub(crate) trait BlockChecker: Sync {
    /// A block to check.
    type Job: Send;
    /// Results of one thread.
    type Found: Default + Send;

    /// Called for each block that is not a hole. Returns the job that checks it, if it must be checked.
    fn visit(
        &self,
        found: &mut Self::Found,
        walk: &Walk,
        at: &Bookmark,
        bp: &BlockPtr,
        dnode: Option<&Dnode>,
    ) -> Option<Self::Job>;

    /// Reads and checks one block.
    fn check(&self, found: &mut Self::Found, job: Self::Job);

    /// Called for an indirect block that cannot be read: the blocks below it are not visited.
    fn unreadable(
        &self,
        found: &mut Self::Found,
        walk: &Walk,
        at: &Bookmark,
        bp: &BlockPtr,
        error: Arc<DmuError>,
    );

    /// True if the walk must end early.
    fn is_stopped(&self) -> bool {
        false
    }
}

struct Queue<J> {
    jobs: VecDeque<J>,
    /// Number of walks in progress, which may add jobs.
    walking: usize,
}

struct Engine<'s, S: BlockChecker> {
    checker: &'s S,
    walks: &'s [Walk],
    next: AtomicUsize,
    queue: Mutex<Queue<S::Job>>,
    changed: Condvar,
}

/// Walks all sets with `threads` threads, at least one. Returns the results of each thread.
pub(crate) fn run<S: BlockChecker>(checker: &S, walks: &[Walk], threads: usize) -> Vec<S::Found> {
    let queue = Mutex::new(Queue { jobs: VecDeque::new(), walking: 0 });
    let engine = Engine { checker, walks, next: AtomicUsize::new(0), queue, changed: Condvar::new() };
    // Scoped threads end with this call and may borrow the pool.
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(|| engine.work())).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, S::Found>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect()
    })
}

impl<S: BlockChecker> Engine<'_, S> {
    fn work(&self) -> S::Found {
        let mut found = S::Found::default();
        while !self.checker.is_stopped() {
            // An idle thread starts the next walk, which keeps more disks busy.
            let job = lock(&self.queue).jobs.pop_front();
            if let Some(job) = job {
                self.checker.check(&mut found, job);
            } else if !self.walk_next(&mut found) && !self.wait() {
                break;
            }
        }
        self.changed.notify_all();
        found
    }

    /// Walks the next object set, if one is left.
    fn walk_next(&self, found: &mut S::Found) -> bool {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(walk) = self.walks.get(index) else { return false };
        lock(&self.queue).walking += 1;
        traverse::walk(&walk.objset, walk.newer_than, &mut Walker { engine: self, walk, found });
        lock(&self.queue).walking -= 1;
        self.changed.notify_all();
        true
    }

    /// Waits for a job. Returns false if none can come.
    fn wait(&self) -> bool {
        let queue = lock(&self.queue);
        if queue.jobs.is_empty() && queue.walking == 0 {
            return false;
        }
        if queue.jobs.is_empty() {
            // The time-out only guards against a lost wake-up.
            let _ = self.changed.wait_timeout(queue, Duration::from_millis(50));
        }
        true
    }

    fn push(&self, found: &mut S::Found, job: S::Job) {
        let mut queue = lock(&self.queue);
        if queue.jobs.len() < QUEUE_MAX {
            queue.jobs.push_back(job);
            drop(queue);
            self.changed.notify_one();
            return;
        }
        drop(queue);
        self.checker.check(found, job);
    }
}

struct Walker<'e, 's, 'f, S: BlockChecker> {
    engine: &'e Engine<'s, S>,
    walk: &'e Walk,
    found: &'f mut S::Found,
}

impl<S: BlockChecker> Visitor for Walker<'_, '_, '_, S> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, dnode: Option<&Dnode>) -> Step {
        if self.engine.checker.is_stopped() {
            return Step::Stop;
        }
        if matches!(bp.kind(), BpKind::Hole | BpKind::Redacted) {
            return Step::Over;
        }
        if let Some(job) = self.engine.checker.visit(self.found, self.walk, at, bp, dnode) {
            self.engine.push(self.found, job);
        }
        Step::Into
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        self.engine.checker.unreadable(self.found, self.walk, at, bp, Arc::new(error));
        Step::Into
    }
}
