//! Why there is no daemon.

use admin::ParameterError;
use std::io;
use std::path::PathBuf;

/// Exit code when a daemon runs already: there is no need for this one.
pub(crate) const RUNNING: u8 = 3;

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// Another one has the state folder.
    #[error("cenoted is already running{} with the state folder {}", process(*.pid), .state.display())]
    Running {
        /// Its process.
        pid: Option<u32>,
        /// The folder.
        state: PathBuf,
    },
    /// One with another state folder answers at the socket.
    #[error("another cenoted answers at {}", .socket.display())]
    Answers {
        /// The socket.
        socket: PathBuf,
    },
    /// A folder or file cannot be used.
    #[error("{}: {source}", .path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot listen at {}: {source}", .socket.display())]
    Listen {
        /// Which.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It may run, and cannot be asked.
    #[error("cannot connect to cenoted at {}: {source}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `CENOTE_LOG` is none of its words.
    #[error("CENOTE_LOG is '{text}': it must be off, error, warn, info, debug or trace")]
    LogLevel {
        /// What it is.
        text: String,
    },
    /// `CENOTE_PARAMETERS` sets what there is not.
    #[error("CENOTE_PARAMETERS: {0}")]
    Parameters(#[from] ParameterError),
    /// What started it has limits that it would have too.
    #[error("{0}")]
    Limited(String),
    /// The system refuses something else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
