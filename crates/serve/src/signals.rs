//! Signals that ask a server to end, as calls in a thread of their own.
//!
//! Handlers may do next to nothing; so the signals are blocked in all threads, and one waits for them.

use std::io;

use nix::sys::signal::{SigSet, Signal};

/// SIGINT, SIGTERM and SIGHUP, kept from ending the process.
#[derive(Debug)]
pub struct Terminator {
    signals: SigSet,
}

impl Terminator {
    /// Blocks the signals in this thread and in those that it starts from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Terminator> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        signals.thread_block()?;
        Ok(Terminator { signals })
    }

    /// Starts a thread that calls `asked` for each signal, with how many there were.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn watch(self, mut asked: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
        let wait = move || {
            let mut times = 0;
            while self.signals.wait().is_ok() {
                times += 1;
                asked(times);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(|_| ())
    }
}
