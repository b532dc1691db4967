//! Signals that ask a server to end, delivered as calls on a thread of their own.
//!
//! Signal handlers may do very little, so the signals are blocked in all threads, and one thread waits for
//! them.

use std::io;

use nix::sys::signal::{SigSet, Signal};

/// SIGINT, SIGTERM and SIGHUP, blocked so that they do not end the process.
pub struct Terminator {
    signals: SigSet,
    /// Action for SIGHUP; `None`: SIGHUP asks for the end like the others.
    hangup: Option<Box<dyn FnMut() + Send>>,
}

impl Terminator {
    /// Blocks the signals in this thread and in threads that it starts later. Signals that the process was
    /// started with as ignored (`nohup`, a background job of a shell) stay ignored.
    ///
    /// # Errors
    /// The system cannot block the signals.
    pub fn new() -> io::Result<Terminator> {
        let ignored = ignored();
        let mut signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        // An ignored signal that is blocked would still be waited for.
        let unwanted: Vec<Signal> = signals.iter().filter(|s| ignored >> (*s as i32 - 1) & 1 != 0).collect();
        unwanted.into_iter().for_each(|signal| signals.remove(signal));
        signals.thread_block()?;
        Ok(Terminator { signals, hangup: None })
    }

    /// Lets pending signals end the process, as if they had not been blocked. Must be called by the thread
    /// that made this value.
    ///
    /// # Errors
    /// The system cannot change the signal mask.
    pub fn let_through(&self) -> io::Result<()> {
        self.signals.thread_unblock()?;
        Ok(self.signals.thread_block()?)
    }

    /// Unblocks the signals, which then end the process again. Must be called by the thread that made this
    /// value.
    ///
    /// # Errors
    /// The system cannot change the signal mask.
    pub fn release(self) -> io::Result<()> {
        Ok(self.signals.thread_unblock()?)
    }

    /// Gives SIGHUP another action than ending the server.
    #[must_use]
    pub fn on_hangup(self, hangup: impl FnMut() + Send + 'static) -> Terminator {
        Terminator { hangup: Some(Box::new(hangup)), ..self }
    }

    /// Starts a thread that calls `asked` for each signal, with the number of signals so far.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn watch(mut self, mut asked: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
        let wait = move || {
            let mut times = 0;
            while let Ok(signal) = self.signals.wait() {
                if let (Signal::SIGHUP, Some(hangup)) = (signal, &mut self.hangup) {
                    hangup();
                    continue;
                }
                times += 1;
                asked(times);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(|_| ())
    }
}

/// Has `asked` called, on a thread of its own, for each SIGUSR1, which no longer ends the process. Must be called
/// before the process starts other threads.
///
/// # Errors
/// The signal cannot be blocked, or the system has no more threads.
pub fn on_report(mut asked: impl FnMut() + Send + 'static) -> io::Result<()> {
    let signals: SigSet = [Signal::SIGUSR1].into_iter().collect();
    signals.thread_block()?;
    let wait = move || {
        while signals.wait().is_ok() {
            asked();
        }
    };
    std::thread::Builder::new().name("reports".into()).spawn(wait).map(|_| ())
}

/// The signals that this process ignores: one bit each, the lowest for signal 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
