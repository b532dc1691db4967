//! Processor affinity of threads.
//!
//! # What always holds
//! - Only a thread that answers the requests of one processor is bound to that processor. A thread that it
//!   starts would inherit the binding, so it starts threads with [`spawn_anywhere`].

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::thread::{Builder, JoinHandle};

/// Binds the calling thread to a processor. Leaves the choice to the scheduler if the processor does not
/// exist or this process may not use it.
pub(crate) fn stay_at(processor: u16) {
    let mut here = CpuSet::new();
    if usize::from(processor) < CpuSet::MAX_CPU {
        here.set(processor.into());
        let _ = sched_setaffinity(None, &here);
    }
}

/// Starts a thread that may run on every processor that the process may use.
///
/// # Errors
/// The system has no more threads.
pub(crate) fn spawn_anywhere<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        leave();
        work()
    })
}

/// Gives the calling thread the processors of the first thread of the process.
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
