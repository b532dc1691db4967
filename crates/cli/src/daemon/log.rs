//! The log of a daemon: lines of fields, on standard error, which is a terminal, the journal or a file.

use super::DaemonError;
use super::places::log_path;
use rustix::fs::{Mode, OFlags, open};
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;

/// A log longer than this is put aside at a start.
const KEEP_BYTES: u64 = 16 << 20;

/// Begins the log. `CENOTE_LOG` says how much it tells: off, error, warn, info (as usual), debug, trace.
///
/// # Errors
/// [`DaemonError::LogLevel`].
pub(super) fn begin() -> Result<(), DaemonError> {
    let level = match std::env::var("CENOTE_LOG").unwrap_or_default() {
        text if text.is_empty() => LevelFilter::INFO,
        text => text.parse().map_err(|_| DaemonError::LogLevel { text })?,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_thread_names(true);
    // The journal knows the time.
    let done = if std::env::var_os("JOURNAL_STREAM").is_some() {
        log.without_time().try_init()
    } else {
        log.try_init()
    };
    drop(done);
    Ok(())
}

/// From now on standard error is the log file.
///
/// # Errors
/// It cannot be written.
pub(super) fn to_file() -> Result<(), DaemonError> {
    let path = log_path();
    let failed = |source: std::io::Error| DaemonError::Folder { path: path.clone(), source };
    if std::fs::metadata(&path).is_ok_and(|found| found.len() > KEEP_BYTES) {
        std::fs::rename(&path, path.with_extension("log.old")).map_err(failed)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|e| failed(e.into()))?;
    rustix::stdio::dup2_stderr(&file).map_err(|e| failed(e.into()))
}
