//! The thread pool that serves all mounts over `/dev/fuse`. It belongs to the process, not to a mount.
//!
//! All mounts are registered in one epoll instance. A thread that waits there gets a mount with requests,
//! answers them until there are none, and waits again. The kernel wakes the thread that has waited for the
//! shortest time, which keeps the number of working threads small and their caches warm; threads that were
//! idle for a while end.
//!
//! # What always holds
//! - An idle mount takes one descriptor, and no thread.
//! - If no thread waits, another one is started, unless the bound is reached or the system has none: a
//!   request that takes long (it reads a disk, or its pool is suspended) delays no other.
//! - The number of threads that serve one mount is bounded. A thread beyond the bound sets a flag, and one of
//!   the others continues.
//! - Mounts whose requests wait for the same devices (the mounts of one pool) form a group. A group has at
//!   most as many threads as remain for all other groups, and a few in any case: half of all, if no others
//!   have any. When a pool is suspended, each thread of its group waits until the pool continues; all further
//!   requests queue, and take no thread.
//! - If the system has no more threads, it is asked again until some thread waits for events.
//! - An event is reported once (edge-triggered), for all requests that came until then. So a thread with a
//!   mount reads until there is no request left, and has the kernel wake another thread before it answers the
//!   first one: that request may wait for one that is not read yet.
//! - The end of a mount is reported once, when no thread serves it any more.
//!
//! Tests: here.

use super::classic::{Buffers, Next};
use super::dirty_pages::{self, Member};
use super::load::Load;
use super::ring_threads::RingThreads;
use super::service::Service;
use crate::affinity;
use admin::sync::{self, lock};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Threads that are kept when no mount has requests.
const FEW: usize = 2;
/// Most threads, for all mounts together.
const THREADS_MAX: usize = 4096;
/// Threads that a group may always have.
const FEW_OF_GROUP: usize = 2;
/// Threads that are not divided among groups: for the few that each group may always have, and for waiting
/// for events.
const SPARE: usize = 64;
/// Interval at which the system is asked again for a thread that it refused.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// A thread ends after being idle for this long.
const REST: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Time for which requests without a reply wait for more of their kind.
const GATHER: Duration = Duration::from_millis(2);

static POOL: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// The threads of the process, and the epoll instance that they wait on.
struct ThreadPool {
    epoll: OwnedFd,
    mounts: RwLock<HashMap<u64, Arc<Served>>>,
    next: AtomicU64,
    groups: Mutex<HashMap<u64, Weak<Group>>>,
    /// Greatest number of threads.
    max: AtomicUsize,
    /// Threads that wait for events, or were started for that.
    waiting: AtomicUsize,
    /// Threads that serve a mount at present.
    busy: AtomicUsize,
    alive: Mutex<usize>,
    /// No thread waits for events, and none could be started.
    lacks: Mutex<bool>,
    lacking: Condvar,
}

/// Mounts whose requests wait for the same devices.
#[derive(Default)]
struct Group(Mutex<Members>);

#[derive(Default)]
struct Members {
    /// Threads that serve a mount of the group.
    active: usize,
    /// Mounts with requests for which the group had no thread left.
    queue: VecDeque<Arc<Served>>,
}

/// The kinds of requests that come over `/dev/fuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requests {
    /// All requests of the mount.
    All,
    /// Requests without a reply; the others come over rings. One thread reads them, many at once, a few
    /// hundred times a second at most.
    Rest,
}

/// Parameters for serving a mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServeOptions {
    /// Requests that come over the descriptor of the mount.
    pub(super) requests: Requests,
    /// Most threads that serve the mount at once.
    pub(super) threads: usize,
    /// Called when it is busy, by a thread that serves it: gives it rings, on another thread.
    pub(super) when_busy: Option<fn(&Arc<Served>)>,
    /// Number of its group: mounts of one group wait for the same devices.
    pub(super) group: u64,
}

/// Called when a mount has ended, with its first error.
type OnEnd = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A mount that the thread pool serves.
pub(super) struct Served {
    key: u64,
    group: Arc<Group>,
    /// The mount is in the queue of its group.
    is_queued: AtomicBool,
    service: Arc<dyn Service>,
    device: Arc<OwnedFd>,
    /// The expected requests are [`Requests::Rest`].
    is_rest: AtomicBool,
    /// Held while `is_rest` is changed and the kernel is told.
    turning: Mutex<()>,
    /// Most threads that serve the mount at once.
    threads: usize,
    /// Called when `load` says that it is busy.
    when_busy: Option<fn(&Arc<Served>)>,
    load: Load,
    /// Number of requests that the thread pool has answered.
    answered: AtomicU64,
    /// The threads of rings that it got while it was served.
    rings: Mutex<RingThreads>,
    /// Its threads, of which one at least does not wait until pages are written back.
    answering: Arc<dirty_pages::Group>,
    work: Mutex<Work>,
    ended: Condvar,
}

#[derive(Default)]
struct Work {
    /// Number of threads that serve the mount.
    active: usize,
    /// There may be requests that the active threads do not know of.
    again: bool,
    /// The kernel has ended the mount.
    is_over: bool,
    /// The mount has ended, and no thread serves it any more.
    has_ended: bool,
    /// First error of the connection to the kernel.
    error: Option<io::Error>,
    on_end: Option<OnEnd>,
}

impl Work {
    /// Whether the calling thread may serve the mount, as one of at most `most` threads.
    fn enter(&mut self, most: usize) -> bool {
        let may = !self.is_over && self.active < most;
        self.again |= !may;
        self.active += usize::from(may);
        may
    }

    /// Notes that a thread has answered all requests that it found; `done` is `Ok(false)` if the mount has
    /// ended. Returns whether there are more; if not, the thread no longer serves the mount.
    fn goes_on(&mut self, done: io::Result<bool>) -> bool {
        match done {
            Ok(true) => {}
            Ok(false) => self.is_over = true,
            Err(error) => {
                // The descriptor is closed when all threads know; programs that make requests then get an
                // error.
                self.is_over = true;
                self.error.get_or_insert(error);
            }
        }
        // Under one lock: a thread that comes later is counted as serving the mount.
        let goes_on = std::mem::take(&mut self.again) && !self.is_over;
        self.active -= usize::from(!goes_on);
        goes_on
    }

    /// The callback and its argument, if the mount has ended, no thread serves it, and the end was not
    /// reported yet.
    fn end(&mut self) -> Option<(Option<OnEnd>, io::Result<()>)> {
        if !self.is_over || self.active > 0 || self.has_ended {
            return None;
        }
        self.has_ended = true;
        let on_end = self.on_end.take();
        // Without a callback the error is kept for the thread that waits.
        let error = self.error.take_if(|_| on_end.is_some());
        Some((on_end, error.map_or(Ok(()), Err)))
    }
}

impl ThreadPool {
    fn get() -> io::Result<Arc<ThreadPool>> {
        let mut pool = lock(&POOL);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        Ok(Arc::clone(pool.insert(ThreadPool::new(THREADS_MAX)?)))
    }

    /// A pool with at most `max` threads.
    fn new(max: usize) -> io::Result<Arc<ThreadPool>> {
        let pool = Arc::new(ThreadPool {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            mounts: RwLock::default(),
            next: AtomicU64::new(0),
            groups: Mutex::default(),
            max: AtomicUsize::new(max),
            waiting: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            alive: Mutex::new(0),
            lacks: Mutex::new(false),
            lacking: Condvar::new(),
        });
        let starter = Arc::clone(&pool);
        // Before any other: it sees to it when there are none.
        affinity::spawn_anywhere("fuse-keeper", move || starter.start_missing())?;
        Ok(pool)
    }

    /// Starts a thread, unless the bound is reached.
    fn start_one(self: &Arc<ThreadPool>) -> io::Result<()> {
        {
            let mut alive = lock(&self.alive);
            if *alive >= self.max.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            *alive += 1;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let pool = Arc::clone(self);
        let started =
            Buffers::new().and_then(|buffers| affinity::spawn_anywhere("fuse", move || pool.run(buffers)));
        started.map(drop).inspect_err(|_| {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            *lock(&self.alive) -= 1;
        })
    }

    /// Starts threads that could not be started when they were needed, as soon as that can be.
    fn start_missing(self: Arc<ThreadPool>) {
        loop {
            let mut lacks = lock(&self.lacks);
            while !*lacks {
                lacks = self.lacking.wait(lacks).unwrap_or_else(PoisonError::into_inner);
            }
            *lacks = false;
            drop(lacks);
            while self.waiting.load(Ordering::Acquire) == 0 && self.start_one().is_err() {
                std::thread::sleep(ASK_AGAIN);
            }
        }
    }

    fn group(&self, number: u64) -> Arc<Group> {
        let mut groups = lock(&self.groups);
        if let Some(group) = groups.get(&number).and_then(Weak::upgrade) {
            return group;
        }
        groups.retain(|_, group| group.strong_count() > 0);
        let group = Arc::<Group>::default();
        groups.insert(number, Arc::downgrade(&group));
        group
    }

    /// Counts the calling thread as serving the group, and returns `true`, if the group may have one more
    /// thread.
    fn take_part(&self, members: &mut Members) -> bool {
        let shared = self.max.load(Ordering::Relaxed).saturating_sub(SPARE);
        let left = shared.saturating_sub(self.busy.load(Ordering::Acquire));
        let may = members.active < left.max(FEW_OF_GROUP);
        if may {
            members.active += 1;
            self.busy.fetch_add(1, Ordering::AcqRel);
        }
        may
    }

    /// Whether the calling thread may serve the mount. If not, the mount is queued, and a thread that has
    /// served another mount of the group takes it from the queue: there is such a thread, because the group
    /// has all threads that it may have.
    fn admit(&self, mount: &Arc<Served>) -> bool {
        let mut members = lock(&mount.group.0);
        let may = self.take_part(&mut members);
        if !may && !mount.is_queued.swap(true, Ordering::AcqRel) {
            members.queue.push_back(Arc::clone(mount));
        }
        may
    }

    /// Ends the service of the calling thread to a mount of this group. Returns the next mount of the queue,
    /// if the thread may serve that one.
    fn leave(&self, group: &Group) -> Option<Arc<Served>> {
        let mut members = lock(&group.0);
        members.active -= 1;
        self.busy.fetch_sub(1, Ordering::AcqRel);
        if members.queue.is_empty() || !self.take_part(&mut members) {
            return None;
        }
        let next = members.queue.pop_front()?;
        // Requests that come from here on cause an event.
        next.is_queued.store(false, Ordering::Release);
        Some(next)
    }

    /// Serves mounts until the thread was idle for a while. The thread counts as waiting when this is called.
    fn run(self: Arc<ThreadPool>, mut buffers: Buffers) {
        let mut events = Vec::with_capacity(1);
        loop {
            events.clear();
            let came = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&REST));
            match (came, events.first()) {
                (_, Some(event)) => {
                    if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 && self.start_one().is_err() {
                        // The existing threads serve the mounts meanwhile.
                        *lock(&self.lacks) = true;
                        self.lacking.notify_one();
                    }
                    let key = event.data.u64();
                    let mounts = sync::read(&self.mounts);
                    let mount = mounts.get(&key).cloned();
                    drop(mounts);
                    let mut mount = mount.filter(|mount| self.admit(mount));
                    while let Some(serves) = mount {
                        serves.serve(&self, &mut buffers);
                        mount = self.leave(&serves.group);
                    }
                    self.waiting.fetch_add(1, Ordering::AcqRel);
                }
                (Err(Errno::INTR), None) => {}
                (_, None) => {
                    let mut alive = lock(&self.alive);
                    if *alive > FEW && self.waiting.load(Ordering::Acquire) > FEW {
                        *alive -= 1;
                        self.waiting.fetch_sub(1, Ordering::AcqRel);
                        return;
                    }
                }
            }
        }
    }

    fn interest(requests: Requests) -> epoll::EventFlags {
        epoll::EventFlags::IN
            | match requests {
                Requests::All => epoll::EventFlags::ET,
                Requests::Rest => epoll::EventFlags::ONESHOT,
            }
    }
}

/// Adds a mount, whose device does not block, to the thread pool.
pub(super) fn serve(
    service: &Arc<dyn Service>,
    device: Arc<OwnedFd>,
    how: ServeOptions,
) -> io::Result<Arc<Served>> {
    ThreadPool::get()?.serve(service, device, how)
}

impl ThreadPool {
    fn serve(
        self: &Arc<ThreadPool>,
        service: &Arc<dyn Service>,
        device: Arc<OwnedFd>,
        how: ServeOptions,
    ) -> io::Result<Arc<Served>> {
        while *lock(&self.alive) < FEW {
            if let Err(error) = self.start_one() {
                if *lock(&self.alive) == 0 {
                    return Err(error);
                }
                break;
            }
        }
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let served = Arc::new(Served {
            key,
            group: self.group(how.group),
            is_queued: AtomicBool::new(false),
            service: Arc::clone(service),
            device,
            is_rest: AtomicBool::new(how.requests == Requests::Rest),
            turning: Mutex::default(),
            threads: how.threads.max(1),
            when_busy: how.when_busy,
            load: Load::default(),
            answered: AtomicU64::new(0),
            rings: Mutex::default(),
            answering: dirty_pages::Group::of(how.threads.max(1)),
            work: Mutex::default(),
            ended: Condvar::new(),
        });
        sync::write(&self.mounts).insert(key, Arc::clone(&served));
        let data = epoll::EventData::new_u64(key);
        if let Err(error) = epoll::add(&self.epoll, &*served.device, data, ThreadPool::interest(how.requests))
        {
            sync::write(&self.mounts).remove(&key);
            return Err(error.into());
        }
        Ok(served)
    }
}

impl Served {
    /// Answers the requests of the mount that are there.
    fn serve(self: &Arc<Served>, pool: &ThreadPool, buffers: &mut Buffers) {
        let is_rest = self.requests() == Requests::Rest;
        if !lock(&self.work).enter(if is_rest { 1 } else { self.threads }) {
            return;
        }
        let _member = Member::of(&self.answering);
        if is_rest {
            std::thread::sleep(GATHER);
        }
        loop {
            let ran = catch_unwind(AssertUnwindSafe(|| self.answer_all(pool, buffers)));
            let done = ran.unwrap_or_else(|_| Err(io::Error::other("the server of the mount died")));
            if !lock(&self.work).goes_on(done) {
                break;
            }
        }
        let is_over = lock(&self.work).is_over;
        // The kind of expected requests may have changed by now.
        if self.requests() == Requests::Rest && !is_over {
            self.tell_again(pool);
        }
        self.end(pool);
    }

    /// Has the kernel send an event if requests are there.
    fn tell_again(&self, pool: &ThreadPool) {
        let data = epoll::EventData::new_u64(self.key);
        let _ = epoll::modify(&pool.epoll, &*self.device, data, ThreadPool::interest(self.requests()));
    }

    fn requests(&self) -> Requests {
        if self.is_rest.load(Ordering::Acquire) { Requests::Rest } else { Requests::All }
    }

    /// Answers requests until there are none. Returns whether the mount still exists.
    fn answer_all(self: &Arc<Served>, pool: &ThreadPool, buffers: &mut Buffers) -> io::Result<bool> {
        let mut is_first = true;
        loop {
            match buffers.next(&self.device)? {
                Next::Request(len) => {
                    // Requests that come later cause an event of their own.
                    if std::mem::take(&mut is_first) && self.requests() != Requests::Rest {
                        self.tell_again(pool);
                    }
                    if buffers.is_answered(len) {
                        self.answered.fetch_add(1, Ordering::Relaxed);
                        if self.requests() == Requests::Rest {
                            // The request came this way although there are rings, so all requests are
                            // expected again.
                            self.expect(pool, Requests::All);
                        }
                    }
                    if let Some(when_busy) = self.when_busy
                        && self.load.note()
                    {
                        when_busy(self);
                    }
                    buffers.answer(&*self.service, &self.device, len)?;
                }
                Next::Gone => return Ok(false),
                Next::Nothing => return Ok(true),
            }
        }
    }

    /// Reports the end of the mount, if this thread was the last to serve it.
    fn end(&self, pool: &ThreadPool) {
        let Some((on_end, result)) = lock(&self.work).end() else { return };
        let _ = epoll::delete(&pool.epoll, &*self.device);
        sync::write(&pool.mounts).remove(&self.key);
        self.ended.notify_all();
        if let Some(on_end) = on_end {
            on_end(result);
        }
    }

    /// The service that answers the requests.
    pub(super) fn service(&self) -> &Arc<dyn Service> {
        &self.service
    }

    /// The descriptor from which requests are read.
    pub(super) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// The measured load of the mount.
    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Number of requests that the thread pool has answered.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes the threads of its rings. Requests that come over `/dev/fuse` are answered all the same.
    pub(super) fn set_rings(&self, threads: RingThreads) {
        *lock(&self.rings) = threads;
    }

    /// Whether the mount has got rings while it was served.
    pub(super) fn has_rings(&self) -> bool {
        !lock(&self.rings).is_empty()
    }

    /// Takes the threads of its rings, to be waited for when the mount is gone.
    pub(super) fn take_rings(&self) -> RingThreads {
        std::mem::take(&mut *lock(&self.rings))
    }

    /// Expects only requests without a reply from now on. If another one comes, all requests are expected
    /// again.
    pub(super) fn expect_rest(&self) {
        if let Ok(pool) = ThreadPool::get() {
            self.expect(&pool, Requests::Rest);
        }
    }

    fn expect(&self, pool: &ThreadPool, requests: Requests) {
        let _turning = lock(&self.turning);
        self.is_rest.store(requests == Requests::Rest, Ordering::Release);
        self.tell_again(pool);
    }

    /// Waits until the mount has ended; returns its first error.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut work = lock(&self.work);
        while !work.has_ended {
            work = self.ended.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        work.error.take().map_or(Ok(()), Err)
    }

    /// Calls `on_end` when the mount has ended, on the thread that notices it; on the calling thread if it
    /// has ended already.
    pub(super) fn when_ended(&self, on_end: impl FnOnce(io::Result<()>) + Send + 'static) {
        let mut work = lock(&self.work);
        if work.has_ended {
            let result = work.error.take().map_or(Ok(()), Err);
            drop(work);
            on_end(result);
        } else {
            work.on_end = Some(Box::new(on_end));
        }
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served({}, {:?})", self.key, self.requests())
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::op;
    use super::super::service::Answer;
    use super::*;
    use crate::export::{Attr, Caller, DirSink, Known, Seek, SpaceInfo, Stability};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A service that answers a look-up of `first` only after it was asked for `second`.
    #[derive(Default)]
    struct Waits(Mutex<bool>, Condvar);

    impl Service for Waits {
        fn abilities(&self, _: u64) -> u64 {
            0
        }

        fn lookup(&self, _: &Caller, _: u64, name: &[u8]) -> Answer<Option<Known>> {
            let mut came = lock(&self.0);
            if name == b"second" {
                *came = true;
                self.1.notify_all();
            }
            let patience = Duration::from_secs(20);
            let (came, _) = self.1.wait_timeout_while(came, patience, |came| !*came).unwrap();
            if *came { Ok(None) } else { Err(Errno::TIMEDOUT) }
        }

        fn attr(&self, _: u64, _: Option<u64>) -> Answer<(Attr, Stability)> {
            Err(Errno::NOSYS)
        }

        fn read_link(&self, _: u64) -> Answer<Vec<u8>> {
            Err(Errno::NOSYS)
        }

        fn read(&self, _: u64, _: u64, _: u64, _: &mut [u8]) -> Answer<usize> {
            Err(Errno::NOSYS)
        }

        fn read_dir(&self, _: u64, _: u64, _: &mut dyn DirSink) -> Answer<()> {
            Err(Errno::NOSYS)
        }

        fn space(&self, _: u64) -> Answer<SpaceInfo> {
            Err(Errno::NOSYS)
        }

        fn xattr_names(&self, _: u64) -> Answer<Vec<Vec<u8>>> {
            Err(Errno::NOSYS)
        }

        fn xattr(&self, _: u64, _: &[u8]) -> Answer<Option<Vec<u8>>> {
            Err(Errno::NOSYS)
        }

        fn seek(&self, _: u64, _: u64, _: Seek) -> Answer<u64> {
            Err(Errno::NOSYS)
        }
    }

    fn lookup(unique: u64, name: &[u8]) -> Vec<u8> {
        let mut all = u32::try_from(41 + name.len()).unwrap().to_ne_bytes().to_vec();
        all.extend(op::LOOKUP.to_ne_bytes());
        all.extend([unique, 1, 0, 0].iter().flat_map(|word| word.to_ne_bytes()));
        all.extend(name);
        all.push(0);
        all
    }

    fn how(group: u64) -> ServeOptions {
        ServeOptions { requests: Requests::All, threads: 4, when_busy: None, group }
    }

    /// The kernel reports both requests by one event.
    #[test]
    fn a_request_that_waits_for_the_next_one_gets_it() {
        let flags = SocketFlags::CLOEXEC;
        let (kernel, device) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::io::ioctl_fionbio(&device, true).unwrap();
        for (unique, name) in [(1, &b"first"[..]), (2, b"second")] {
            rustix::io::write(&kernel, &lookup(unique, name)).unwrap();
        }
        let service: Arc<dyn Service> = Arc::new(Waits::default());
        serve(&service, Arc::new(device), how(1)).unwrap();
        for _ in 0..2 {
            let mut reply = [0; 256];
            let len = rustix::io::read(&kernel, &mut reply).unwrap();
            assert!(len > 16 && reply[4..8] == [0; 4], "{:?}", &reply[..len]);
        }
        // Closing this end would count as a request without bytes.
        std::mem::forget(kernel);
    }

    /// Adds a mount to the thread pool; returns its kernel's end, which has sent a request for a name.
    fn asked(pool: &Arc<ThreadPool>, service: &Arc<dyn Service>, group: u64, name: &[u8]) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let (kernel, device) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::io::ioctl_fionbio(&device, true).unwrap();
        rustix::io::write(&kernel, &lookup(1, name)).unwrap();
        pool.serve(service, Arc::new(device), how(group)).unwrap();
        kernel
    }

    /// Whether the request of a mount is answered without an error.
    fn is_answered(kernel: OwnedFd) -> bool {
        rustix::net::sockopt::set_socket_timeout(
            &kernel,
            rustix::net::sockopt::Timeout::Recv,
            Some(Duration::from_secs(15)),
        )
        .unwrap();
        let mut reply = [0; 256];
        let len = rustix::io::read(&kernel, &mut reply).unwrap_or(0);
        // Closing this end would count as a request without bytes.
        std::mem::forget(kernel);
        len > 16 && reply[4..8] == [0; 4]
    }

    #[test]
    fn a_group_that_waits_for_its_devices_leaves_threads_to_the_others() {
        const MAX: usize = SPARE + 16;
        let pool = ThreadPool::new(MAX).unwrap();
        let (stuck, other): (Arc<dyn Service>, Arc<Waits>) = (Arc::new(Waits::default()), Arc::default());
        let waiting: Vec<OwnedFd> = (0..2 * MAX).map(|_| asked(&pool, &stuck, 1, b"first")).collect();
        *lock(&other.0) = true;
        let other: Arc<dyn Service> = other;
        assert!((2..8).all(|group| is_answered(asked(&pool, &other, group, b"first"))), "they have threads");
        let threads = *lock(&pool.alive);
        // The group can continue: all requests are answered, also those for which it had no thread.
        assert!(is_answered(asked(&pool, &stuck, 2, b"second")));
        assert!(waiting.into_iter().all(is_answered));
        assert!(threads <= MAX / 2, "{threads} threads");
        assert!(lock(&pool.group(1).0).queue.is_empty());
    }

    #[test]
    fn a_thread_that_could_not_be_started_is_when_there_is_one() {
        let pool = ThreadPool::new(FEW).unwrap();
        let stuck: Arc<dyn Service> = Arc::new(Waits::default());
        let waiting: Vec<OwnedFd> = (0..FEW).map(|_| asked(&pool, &stuck, 1, b"first")).collect();
        while pool.waiting.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        let last = asked(&pool, &stuck, 2, b"second");
        pool.max.store(FEW + 1, Ordering::Relaxed);
        assert!(is_answered(last));
        assert!(waiting.into_iter().all(is_answered));
    }

    #[test]
    fn who_comes_too_late_leaves_a_note() {
        let mut work = Work::default();
        assert!(work.enter(2) && work.enter(2) && !work.enter(2));
        assert!(work.goes_on(Ok(true)), "there may be more");
        assert!(!work.goes_on(Ok(true)));
        assert!(work.enter(2), "there is room again");
        assert!(!work.goes_on(Ok(false)), "it is gone");
        assert!(!work.enter(2), "and nobody begins any more");
        assert!(!work.goes_on(Ok(true)));
        assert_eq!(work.active, 0);
    }

    #[test]
    fn the_end_is_told_once_and_with_the_first_error() {
        let mut work = Work { on_end: Some(Box::new(drop)), ..Work::default() };
        assert!(work.enter(2) && work.enter(2) && work.end().is_none());
        work.goes_on(Err(io::ErrorKind::BrokenPipe.into()));
        assert!(work.end().is_none(), "another thread serves it");
        work.goes_on(Err(io::ErrorKind::NotFound.into()));
        let (told, result) = work.end().unwrap();
        assert!(told.is_some() && work.end().is_none());
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
