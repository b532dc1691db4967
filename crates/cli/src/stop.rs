//! The early end of a command: wrong usage (exit code 2) or a failure (exit code 1).

use crate::getopt::BadOption;
use std::fmt;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Wrong usage: prints the message, then the usage of the command, on standard error; exit code 2.
    Usage(String),
    /// A failure: prints the message on standard error; exit code 1. `None`: the messages have been printed.
    Failed(Option<String>),
    /// Ends with this exit code; the messages have been printed.
    Code(u8),
}

impl Stop {
    /// Wrong usage, with a message.
    pub(crate) fn usage(message: impl Into<String>) -> Stop {
        Stop::Usage(message.into())
    }

    /// A failure with a message.
    pub(crate) fn failed(message: impl fmt::Display) -> Stop {
        Stop::Failed(Some(message.to_string()))
    }
}

impl From<BadOption> for Stop {
    fn from(bad: BadOption) -> Stop {
        Stop::Usage(bad.to_string())
    }
}

/// From now on, a panic in any thread but the first ends the process: other threads could wait for the dead
/// one for ever, and a pool is consistent after an end at any moment.
pub(crate) fn end_on_panic() {
    let tell = std::panic::take_hook();
    let first = std::thread::current().id();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        if std::thread::current().id() != first {
            std::process::abort();
        }
    }));
}

/// Result of a command: its exit code, or why it ended early.
pub(crate) type Outcome = Result<u8, Stop>;
