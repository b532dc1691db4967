//! Requests that are being answered and may wait: the kernel reports when the program of one gets a signal.
//!
//! # What always holds
//! - A program gets `EINTR` only if nothing was changed; see [`cenote::interrupt`] for the waits that end.
//! - The report of a signal may arrive before its request is read: it is kept, for a bounded number of
//!   requests.
//! - If requests come over io_uring, signals are still reported over `/dev/fuse`.

use super::proto::input::Header;
use admin::sync::lock;
use cenote::interrupt::Interrupt;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of parts of the table; each has a lock of its own.
const PARTS: usize = 16;
/// Most early signals that a part keeps.
const EARLY_MAX: usize = 256;

/// A mount, and the kernel's number of a request, which is unique for the mount.
type Key = (usize, u64);

#[derive(Default)]
struct Part {
    waiting: HashMap<Key, Arc<Interrupt>>,
    early: VecDeque<Key>,
}

static TABLE: [Mutex<Option<Part>>; PARTS] = [const { Mutex::new(None) }; PARTS];

fn part(unique: u64) -> MutexGuard<'static, Option<Part>> {
    // Numbers of requests are even, so the lowest bit is left out. The data is consistent between any two
    // statements.
    let index = usize::try_from(unique >> 1 & (PARTS as u64 - 1)).unwrap_or(0);
    lock(&TABLE[index])
}

/// Runs `work`, which answers a request and may be interrupted; returns its result, and whether it ended
/// because of a signal.
pub(super) fn during<T>(mount: usize, header: &Header, work: impl FnOnce() -> T) -> (T, bool) {
    let key = (mount, header.unique);
    let interrupt = Interrupt::new(header.pid, is_killed);
    {
        let mut part = part(header.unique);
        let part = part.get_or_insert_default();
        if let Some(index) = part.early.iter().position(|early| *early == key) {
            part.early.remove(index);
            interrupt.signal();
        }
        part.waiting.insert(key, Arc::clone(&interrupt));
    }
    struct Leave(Key);
    impl Drop for Leave {
        fn drop(&mut self) {
            if let Some(part) = &mut *part(self.0.1) {
                part.waiting.remove(&self.0);
            }
        }
    }
    let leave = Leave(key);
    let done = interrupt.during(work);
    drop(leave);
    (done, interrupt.has_ended())
}

/// Notes that the program of this request got a signal.
pub(super) fn signal(mount: usize, unique: u64) {
    let key = (mount, unique);
    let mut part = part(unique);
    let part = part.get_or_insert_default();
    if let Some(interrupt) = part.waiting.get(&key) {
        return interrupt.signal();
    }
    // Its request may also be answered already, or never wait.
    if part.early.len() == EARLY_MAX {
        part.early.pop_front();
    }
    part.early.push_back(key);
}

/// Whether a thread is being killed: it reads no reply any more.
fn is_killed(thread: u32) -> bool {
    const KILL: u64 = 1 << 8;
    if thread == 0 {
        return false;
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else { return false };
    let pending = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_told_of_too_early_is_remembered() {
        let header =
            |unique| Header { len: 40, opcode: 0, unique, node: 1, uid: 0, gid: 0, pid: 0, extensions: 0 };
        let signalled = |unique| {
            let part = part(unique);
            let interrupt = part.as_ref().and_then(|part| part.waiting.get(&(7, unique)));
            format!("{interrupt:?}").contains("is_signalled: true")
        };
        signal(7, 100);
        assert!(during(7, &header(100), || signalled(100)).0);
        assert!(
            !during(8, &header(100), || signalled(100)).0 && !during(7, &header(100), || signalled(100)).0
        );
        let told = during(7, &header(102), || {
            let before = signalled(102);
            signal(7, 102);
            (before, signalled(102))
        });
        assert_eq!(told, ((false, true), false));
        // Signals whose requests never come are kept up to a bound.
        (0..100_000).for_each(|unique| signal(9, unique));
        let kept: usize = (0..PARTS as u64).filter_map(|i| Some(part(i << 1).as_ref()?.early.len())).sum();
        assert!(kept <= PARTS * EARLY_MAX);
        assert!(!is_killed(std::process::id()) && !is_killed(0));
    }
}
