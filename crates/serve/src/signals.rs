//! Signals that ask a server to end, as calls in a thread of their own.
//!
//! Handlers may do next to nothing; so the signals are blocked in all threads, and one waits for them.

use std::io;

use nix::sys::signal::{SigSet, Signal};

/// SIGINT, SIGTERM and SIGHUP, kept from ending the process.
pub struct Terminator {
    signals: SigSet,
    /// Action of SIGHUP, instead of asking for the end.
    hangup: Option<Box<dyn FnMut() + Send>>,
}

impl Terminator {
    /// Blocks the signals in this thread and in those that it starts from now on. Those that the process
    /// which started this process wants ignored (`nohup`, the background of a shell) stay ignored.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Terminator> {
        let ignored = ignored();
        let mut signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        // Blocked, they would be waited for all the same.
        let unwanted: Vec<Signal> = signals.iter().filter(|s| ignored >> (*s as i32 - 1) & 1 != 0).collect();
        unwanted.into_iter().for_each(|signal| signals.remove(signal));
        signals.thread_block()?;
        Ok(Terminator { signals, hangup: None })
    }

    /// Lets those signals end the process that have come until now, as if they were not kept from it. To be
    /// called by the thread that made this.
    ///
    /// # Errors
    /// The system refuses.
    pub fn let_through(&self) -> io::Result<()> {
        self.signals.thread_unblock()?;
        Ok(self.signals.thread_block()?)
    }

    /// The signals end the process again. To be called by the thread that made this.
    ///
    /// # Errors
    /// The system refuses.
    pub fn release(self) -> io::Result<()> {
        Ok(self.signals.thread_unblock()?)
    }

    /// SIGHUP asks for something else than the end.
    #[must_use]
    pub fn on_hangup(self, hangup: impl FnMut() + Send + 'static) -> Terminator {
        Terminator { hangup: Some(Box::new(hangup)), ..self }
    }

    /// Starts a thread that calls `asked` for each signal, with how many there were.
    ///
    /// # Errors
    /// There can be no more threads.
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

/// A bit for each signal that this process ignores, the first for signal 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
