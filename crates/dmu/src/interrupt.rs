//! Interruption of requests whose caller has given up.
//!
//! A thread that works for a caller carries an [`Interrupt`]. Waits for a txg, for a transaction, or for a
//! [`Lock`] whose holder may wait for either, check it.
//!
//! # What always holds
//! - A signal that a program survives ends a wait only if the pool is suspended and the request has changed
//!   nothing: a program with timers sees no error of a write or an fsync that other file systems would not
//!   give.
//! - If the program is being killed, so that it sees no result, every wait ends.
//! - A wait that was ended has changed nothing itself, and returns [`crate::TxError::Interrupted`].

use crate::TxError;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, lock};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which a wait checks whether it must end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Interrupt>>> = const { RefCell::new(None) };
}

/// A cancellation flag for a request: whether its caller still waits for it.
#[derive(Debug)]
pub struct Interrupt {
    is_signalled: AtomicBool,
    has_changed: AtomicBool,
    has_ended: AtomicBool,
    is_command: bool,
    caller: u32,
    is_killed: fn(u32) -> bool,
}

impl Interrupt {
    /// For a request of a program to a file system. `is_killed` tells whether this caller is being killed; it
    /// is called while the request waits, after the caller got a signal.
    pub fn new(caller: u32, is_killed: fn(u32) -> bool) -> Arc<Interrupt> {
        let (is_signalled, has_changed, has_ended) = Default::default();
        Arc::new(Interrupt { is_signalled, has_changed, has_ended, is_command: false, caller, is_killed })
    }

    /// For a command, whose waits end if a pool is suspended, whatever it has changed before.
    pub fn of_command() -> Arc<Interrupt> {
        let (is_signalled, has_changed, has_ended) = Default::default();
        let is_killed = |_| false;
        Arc::new(Interrupt { is_signalled, has_changed, has_ended, is_command: true, caller: 0, is_killed })
    }

    /// Notes that the caller got a signal, or cancels the request.
    pub fn signal(&self) {
        self.is_signalled.store(true, Ordering::Release);
    }

    /// Whether this has ended a wait.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Runs `work`; this ends its waits on this thread.
    pub fn during<T>(self: &Arc<Interrupt>, work: impl FnOnce() -> T) -> T {
        within(Some(Arc::clone(self)), work)
    }

    fn ends(&self, is_suspended: bool) -> bool {
        let is_free = self.is_command || !self.has_changed.load(Ordering::Acquire);
        let ends = self.is_signalled.load(Ordering::Acquire)
            && ((is_suspended && is_free) || (self.is_killed)(self.caller));
        self.has_ended.fetch_or(ends, Ordering::AcqRel);
        ends
    }
}

/// Runs `work` with waits that cannot be ended, because it restores consistency.
pub fn shielded<T>(work: impl FnOnce() -> T) -> T {
    within(None, work)
}

fn within<T>(interrupt: Option<Arc<Interrupt>>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<Interrupt>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(|slot| *slot = self.0.take());
        }
    }
    let _restore = Restore(CURRENT.with_borrow_mut(|slot| std::mem::replace(slot, interrupt)));
    work()
}

/// Whether the calling thread must end its wait. `is_suspended`: whether the pool that it waits for is
/// suspended.
pub fn ends(is_suspended: bool) -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|interrupt| interrupt.ends(is_suspended)))
}

/// Notes that the calling thread's request makes changes from now on.
pub(crate) fn note_change() {
    CURRENT.with_borrow(|current| {
        if let Some(interrupt) = current {
            interrupt.has_changed.store(true, Ordering::Release);
        }
    });
}

/// Time that the calling thread may sleep before it checks whether its wait must end; `None`: until it is
/// woken.
pub fn look_again() -> Option<Duration> {
    CURRENT.with_borrow(|current| current.as_ref().map(|_| LOOK_EVERY))
}

/// Waits for the condition variable, or until it is time to check [`ends`].
pub fn wait<'l, T>(changed: &Condvar, guard: MutexGuard<'l, T>) -> MutexGuard<'l, T> {
    match look_again() {
        Some(time) => changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0,
        None => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}

/// A lock whose holder may wait for a txg or a device. Waiting for it can be interrupted.
#[derive(Debug, Default)]
pub struct Lock {
    state: Mutex<Held>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    is_held: bool,
    /// Number of waiting threads. Notifying without waiters would cost each release a system call.
    waiting: usize,
}

/// Guard of a [`Lock`], which it releases when dropped.
#[derive(Debug)]
pub struct Guard<'l>(&'l Lock);

impl Lock {
    /// Takes the lock. `is_suspended` tells whether the pool is suspended for which the holder may wait.
    ///
    /// # Errors
    /// [`TxError::Interrupted`] if the wait of the calling thread must end.
    pub fn lock(&self, is_suspended: impl Fn() -> bool) -> Result<Guard<'_>, TxError> {
        let mut state = self.state();
        while state.is_held {
            // If this thread was woken, no other need be: the present holder wakes one when it releases the
            // lock.
            if ends(is_suspended()) {
                return Err(TxError::Interrupted);
            }
            state.waiting += 1;
            state = wait(&self.released, state);
            state.waiting -= 1;
        }
        state.is_held = true;
        Ok(Guard(self))
    }

    fn state(&self) -> MutexGuard<'_, Held> {
        // Consistent between any two statements.
        lock(&self.state)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_held = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.0.released.notify_one();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod lock_tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_at_a_time_holds_a_lock_and_all_get_it() {
        let (lock, inside, times) = (Lock::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let held = lock.lock(|| false).expect("nobody ends it");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        times.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(times.into_inner(), 8000);
    }

    #[test]
    fn a_wait_for_a_lock_ends_for_who_is_killed_or_signalled_in_a_suspended_pool() {
        let lock = Lock::default();
        let held = lock.lock(|| true).expect("free");
        let killed = Interrupt::new(7, |_| true);
        killed.signal();
        assert_eq!(killed.during(|| lock.lock(|| false).err()), Some(TxError::Interrupted));
        let signalled = Interrupt::new(7, |_| false);
        signalled.signal();
        assert_eq!(signalled.during(|| lock.lock(|| true).err()), Some(TxError::Interrupted));
        // While the pool is not suspended, the wait goes on whatever signals a program gets.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| signalled.during(|| lock.lock(|| false).is_ok()));
            while lock.state().waiting == 0 {
                std::thread::yield_now();
            }
            drop(held);
            assert!(waits.join().expect("no panic"));
        });
        assert!(lock.lock(|| true).is_ok(), "whoever gave up holds nothing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_what_has_changed_nothing_in_a_suspended_pool() {
        let interrupt = Interrupt::new(7, |_| false);
        interrupt.during(|| {
            assert!(!ends(true) && look_again().is_some());
            interrupt.signal();
            assert!(!ends(false) && !interrupt.has_ended());
            assert!(ends(true) && interrupt.has_ended());
            note_change();
            assert!(!ends(true));
        });
        assert!(!ends(true) && look_again().is_none(), "it belongs to that work alone");
        let killed = Interrupt::new(7, |caller| caller == 7);
        killed.during(|| {
            note_change();
            assert!(!ends(true), "nobody has told of it");
            killed.signal();
            assert!(ends(false));
        });
        let command = Interrupt::of_command();
        command.signal();
        command.during(|| {
            note_change();
            assert!(ends(true) && !ends(false));
            assert!(!shielded(|| ends(true)) && ends(true), "what brings things in order is not ended");
        });
    }
}
