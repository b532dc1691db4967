//! Closes the pools of a daemon at its end.
//!
//! # What always holds
//! - No pool waits for another, except for pools whose devices are files on the other's mounts: those are
//!   closed first.
//! - A suspended pool is given up; a pool whose devices do not respond is left behind after some minutes. The
//!   next start treats both like pools after a crash.
//!
//! Tests: `cli/tests/commands/daemon.rs`.

use admin::mounting::Mounting;
use admin::{Namespace, Search, Unmount};
use cenote::LivePool;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// Time for closing all pools.
const CLOSING: Duration = Duration::from_secs(120);
/// Longest time that the end of a daemon takes, requests included.
pub(super) const ALL: Duration = Duration::from_secs(CLOSING.as_secs() + FORCING.as_secs() + 20);
/// Time for unmounting by force the mounts that programs still use.
const FORCING: Duration = Duration::from_secs(40);
/// Interval at which pools are checked for suspension.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The mounts of a namespace; `None`: it has no means to mount.
pub(super) fn mounting(namespace: &Arc<Namespace>) -> Option<Mounting> {
    Mounting::of(&Search { namespace: Some(Arc::clone(namespace)), ..Search::default() })
}

/// What has become of a pool.
enum Outcome {
    Closed,
    /// A program uses its mounts.
    Busy,
}

/// Unmounts all file systems and closes the pools.
pub(super) fn close_all(namespace: &Arc<Namespace>) {
    let mut left: BTreeSet<String> = namespace.names().into_iter().collect();
    let until = Instant::now() + CLOSING;
    // Each round may free files and folders that another pool waits for.
    loop {
        let rest = round(namespace, &left, until, Unmount::Normal);
        let is_progress = rest.len() < left.len();
        left = rest;
        if left.is_empty() || !is_progress {
            break;
        }
    }
    let stuck = round(namespace, &left, Instant::now() + FORCING, Unmount::Force);
    for pool in &stuck {
        tracing::error!(pool, "not closed: its devices do not answer");
    }
}

/// Closes these pools concurrently; returns those that could not be closed.
fn round(
    namespace: &Arc<Namespace>,
    pools: &BTreeSet<String>,
    until: Instant,
    how: Unmount,
) -> BTreeSet<String> {
    let (tell, told) = mpsc::channel();
    let (mut left, mut waiting) = (pools.clone(), 0);
    for pool in pools {
        let (tell, namespace, pool) = (tell.clone(), Arc::clone(namespace), pool.clone());
        let work = move || {
            let outcome = close(&namespace, &pool, how);
            let _ = tell.send((pool, outcome));
        };
        match std::thread::Builder::new().name("closing".to_owned()).spawn(work) {
            Ok(_) => waiting += 1,
            Err(error) => tracing::error!(%error, "no thread to close a pool"),
        }
    }
    while waiting > 0
        && let Ok((pool, outcome)) = told.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        waiting -= 1;
        if matches!(outcome, Outcome::Closed) {
            left.remove(&pool);
        }
    }
    left
}

/// Unmounts the file systems of a pool, and closes it.
fn close(namespace: &Arc<Namespace>, pool: &str, how: Unmount) -> Outcome {
    if let Some(mounting) = mounting(namespace) {
        let refused = mounting.unmount_all(Some(pool), true, how);
        for refusal in &refused {
            match how {
                Unmount::Normal => tracing::warn!(dataset = refusal.what, why = %refusal.why, "in use"),
                _ => tracing::error!(dataset = refusal.what, why = %refusal.why, "not unmounted"),
            }
        }
        if !refused.is_empty() && how == Unmount::Normal {
            return Outcome::Busy;
        }
    }
    if let Err(error) = namespace.leave(pool) {
        tracing::error!(pool, %error, "a pool could not be closed");
    }
    Outcome::Closed
}

/// Gives up every pool that is or becomes suspended, until this value is dropped: the devices will not be
/// repaired now, and threads that wait for them delay the end.
pub(super) struct GivingUp(Arc<AtomicBool>);

impl GivingUp {
    pub(super) fn begin(namespace: &Namespace) -> GivingUp {
        let done = Arc::new(AtomicBool::new(false));
        let live = |name: &String| namespace.live(name);
        let pools: Vec<Weak<LivePool>> =
            namespace.names().iter().filter_map(live).map(|pool| Arc::downgrade(&pool)).collect();
        let is_done = Arc::clone(&done);
        let look = move || {
            while !is_done.load(Ordering::Relaxed) {
                for pool in pools.iter().filter_map(Weak::upgrade) {
                    if let Some(why) = pool.suspended() {
                        tracing::warn!(pool = pool.name(), why, "suspended at the end: given up");
                        pool.give_up();
                    }
                }
                std::thread::sleep(LOOK_EVERY);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("giving-up".to_owned()).spawn(look) {
            tracing::error!(%error, "no thread to look after suspended pools");
        }
        GivingUp(done)
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
