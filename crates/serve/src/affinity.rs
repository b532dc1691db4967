//! Processor affinity of threads.
//!
//! # What always holds
//! - Only threads that answer requests of one processor stay on it. What they start would inherit that, and
//!   is started with [`spawn_anywhere`] instead.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::thread::{Builder, JoinHandle};

/// The calling thread stays on a processor from now on. One that is not there, or not ours, is left to the
/// scheduler.
pub(crate) fn stay_at(processor: u16) {
    let mut here = CpuSet::new();
    if usize::from(processor) < CpuSet::MAX_CPU {
        here.set(processor.into());
        let _ = sched_setaffinity(None, &here);
    }
}

/// Starts a thread that may run wherever the process may.
///
/// # Errors
/// The system has no thread to give.
pub(crate) fn spawn_anywhere<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        leave();
        work()
    })
}

/// The calling thread goes where the first one of the process may.
fn leave() {
    if let Ok(all) = sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = sched_setaffinity(None, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_starts_does_not_stay_where_that_one_must() {
        let own = || sched_getaffinity(None).unwrap();
        let all = sched_getaffinity(Some(rustix::process::getpid())).unwrap();
        let (mine, inherited, left) = std::thread::spawn(move || {
            let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            stay_at(u16::try_from(first).unwrap());
            let inherited = std::thread::spawn(own).join().unwrap();
            (own(), inherited, spawn_anywhere("helper", own).unwrap().join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(mine.count(), 1);
        assert_eq!(inherited, mine, "else there is nothing to prevent");
        assert_eq!(left, all);
    }
}
