//! Reports of progress that a user asks for with SIGUSR1: the command's own process gets the signal, or its client
//! passes it on.

use super::{Console, current};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The wishes for reports of one command.
pub(crate) enum Reports {
    /// The command runs for a client.
    Client(Arc<Console>),
    /// The command runs in a process of its own, which has got a signal.
    Own(Arc<AtomicBool>),
}

impl Reports {
    /// Takes wishes from now on. Must be called before a command starts threads.
    ///
    /// # Errors
    /// The signal cannot be waited for.
    pub(crate) fn new() -> io::Result<Reports> {
        if let Some(console) = current() {
            return Ok(Reports::Client(console));
        }
        let wanted = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&wanted);
        serve::on_report(move || asked.store(true, Ordering::Relaxed))?;
        Ok(Reports::Own(wanted))
    }

    /// Whether a report was asked for since the last call.
    pub(crate) fn is_wanted(&self) -> bool {
        match self {
            Reports::Client(console) => console.link.takes_report(),
            Reports::Own(wanted) => wanted.swap(false, Ordering::Relaxed),
        }
    }
}
