//! Requests whose caller does not want to wait any longer.
//!
//! A thread that works for somebody carries an [`Interrupt`] along. What waits for a txg, or for the permission to change
//! something, looks at it.
//!
//! # What always holds
//! - A signal that a program survives ends a wait only where the pool is suspended and the request has changed nothing: a
//!   program that has timers sees no error of a write or an fsync that other file systems would not give.
//! - Of a program that is being killed, which sees no answer, every wait ends.
//! - A wait that ends so has changed nothing itself, and is [`crate::live::TxError::Interrupted`].

use crate::sync::{Condvar, MutexGuard, PoisonError};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often one that waits looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Interrupt>>> = const { RefCell::new(None) };
}

/// Whether the caller of a request still waits for it.
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
    /// For a request that a program makes of a file system. `is_killed`: whether this caller is being killed; it is asked
    /// while the request waits, after the caller got a signal.
    pub fn new(caller: u32, is_killed: fn(u32) -> bool) -> Arc<Interrupt> {
        let (is_signalled, has_changed, has_ended) = Default::default();
        Arc::new(Interrupt { is_signalled, has_changed, has_ended, is_command: false, caller, is_killed })
    }

    /// For a command, which is to end where a pool is suspended, whatever it has changed before.
    pub fn of_command() -> Arc<Interrupt> {
        let (is_signalled, has_changed, has_ended) = Default::default();
        let is_killed = |_| false;
        Arc::new(Interrupt { is_signalled, has_changed, has_ended, is_command: true, caller: 0, is_killed })
    }

    /// The caller got a signal, or wants the end.
    pub fn signal(&self) {
        self.is_signalled.store(true, Ordering::Release);
    }

    /// Whether a wait has ended for this.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Does `work`, whose waits on this thread end with this.
    pub fn during<T>(self: &Arc<Interrupt>, work: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Interrupt>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(|slot| *slot = self.0.take());
            }
        }
        let _restore = Restore(CURRENT.with_borrow_mut(|slot| slot.replace(Arc::clone(self))));
        work()
    }

    fn ends(&self, is_suspended: bool) -> bool {
        let is_free = self.is_command || !self.has_changed.load(Ordering::Acquire);
        let ends = self.is_signalled.load(Ordering::Acquire)
            && ((is_suspended && is_free) || (self.is_killed)(self.caller));
        self.has_ended.fetch_or(ends, Ordering::AcqRel);
        ends
    }
}

/// Whether the calling thread's wait is to end.
pub(crate) fn ends(is_suspended: bool) -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|interrupt| interrupt.ends(is_suspended)))
}

/// The calling thread's request changes something from now on.
pub(crate) fn note_change() {
    CURRENT.with_borrow(|current| {
        if let Some(interrupt) = current {
            interrupt.has_changed.store(true, Ordering::Release);
        }
    });
}

/// How long the calling thread may sleep before it looks whether its wait is to end; `None`: until it is woken.
pub(crate) fn look_again() -> Option<Duration> {
    CURRENT.with_borrow(|current| current.as_ref().map(|_| LOOK_EVERY))
}

/// Waits until something changes, or until it is time to ask [`ends`].
pub(crate) fn wait<'l, T>(changed: &Condvar, guard: MutexGuard<'l, T>) -> MutexGuard<'l, T> {
    match look_again() {
        Some(time) => changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0,
        None => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
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
        });
    }
}
