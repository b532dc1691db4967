//! How a command ends early: bad usage (2) or a failure (1).

use crate::getopt::BadOption;
use std::fmt;

/// Why a command ends, when it does not end well.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A message, then the usage of the command, on standard error; exit code 2.
    Usage(String),
    /// A message on standard error; exit code 1. Without a message, all has been said.
    Failed(Option<String>),
    /// All has been said; this exit code.
    Code(u8),
}

impl Stop {
    /// Bad usage.
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

/// From now on a panic in any thread but the first ends the process: whoever waits for a thread that has died
/// would wait for good, and a pool is whole after an end at any moment.
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

/// What a command returns: its exit code.
pub(crate) type Outcome = Result<u8, Stop>;
