//! The end of a mount, whatever caused it: its dataset is closed, and its data are on disk.
//!
//! # What always holds
//! - The end is handled once for each mount, and by no thread that answers requests: closing waits for the
//!   pool, which may be suspended.
//! - Ended mounts of one pool never wait for another pool: each pool has a thread for them while there are
//!   any.

use super::Inner;
use super::mount::{Backend, End, Mount};
use admin::sync::lock;
use format::PoolGuid;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Queues of work, by pool. While a pool has an entry, a thread works off its queue.
#[derive(Default)]
pub(super) struct Ended(Mutex<HashMap<PoolGuid, VecDeque<Job>>>);

impl Ended {
    /// Has another thread do a job; returns at once.
    fn do_soon(self: &Arc<Ended>, pool: PoolGuid, job: Job) {
        let is_new = match lock(&self.0).entry(pool) {
            Entry::Occupied(mut queue) => {
                queue.get_mut().push_back(job);
                false
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([job]));
                true
            }
        };
        if !is_new {
            return;
        }
        let ended = Arc::clone(self);
        if crate::affinity::spawn_anywhere("mount-end", move || ended.work_for(pool)).is_err() {
            // Without a further thread, the calling one does the work.
            self.work_for(pool);
        }
    }

    fn work_for(&self, pool: PoolGuid) {
        loop {
            let next = match lock(&self.0).entry(pool) {
                Entry::Occupied(mut queue) => match queue.get_mut().pop_front() {
                    Some(job) => job,
                    None => {
                        queue.remove();
                        return;
                    }
                },
                Entry::Vacant(_) => return,
            };
            next();
        }
    }
}

impl Inner {
    /// Has another thread close a mount that has ended.
    pub(super) fn close_soon(self: &Arc<Inner>, mount: &Arc<Mount>) {
        let (inner, mount) = (Arc::clone(self), Arc::clone(mount));
        self.ended.do_soon(mount.backend.pool(), Box::new(move || inner.settle(&mount)));
    }

    /// Closes the dataset of a mount that has ended.
    pub(super) fn settle(&self, mount: &Arc<Mount>) {
        if mount.is_settled.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_on_disk = mount.close();
        mount.set_end(End::Gone);
        // A mount whose connection was aborted is still in the kernel's table, and returns errors.
        if mount.is_gone() {
            mount.spots().iter().for_each(|spot| self.note_gone(mount, &spot.at));
        }
        if let Backend::Live { pool, .. } = &mount.backend
            && !is_on_disk
            && let Err(error) = pool.sync()
        {
            tracing::error!(at = %mount.first().at.display(), %error, "what was written last is not on disk");
        }
        self.take_out(mount);
        mount.set_end(End::Durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn what_ends_of_a_suspended_pool_holds_up_nobody() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let ended = Arc::<Ended>::default();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let job = |name: &'static str| -> Job {
            let tell = tell.clone();
            Box::new(move || tell.send(name).expect("somebody listens"))
        };
        // No other job waits for the first one, which waits for its pool.
        ended.do_soon(PoolGuid(1), Box::new(move || goes_on.recv().expect("told")));
        ended.do_soon(PoolGuid(1), job("behind it"));
        ended.do_soon(PoolGuid(2), job("another pool"));
        assert_eq!(told.recv_timeout(PATIENCE), Ok("another pool"));
        assert!(told.try_recv().is_err());
        go_on.send(()).expect("it waits");
        assert_eq!(told.recv_timeout(PATIENCE), Ok("behind it"));
        while !lock(&ended.0).is_empty() {
            std::thread::yield_now();
        }
    }
}
