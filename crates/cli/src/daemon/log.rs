//! The log of a daemon: lines of fields on standard error, which is a terminal, the journal or a file.
//!
//! # What always holds
//! - The length of a line is bounded, and so is that of the file: a full file is renamed, and replaces the
//!   one that was renamed before.
//! - The name of the file is used only to open it: after the file is moved away, SIGHUP opens a new one.

use super::error::DaemonError;
use super::paths::log_path;
use admin::sync::lock;
use rustix::fs::{Mode, OFlags, open};
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::level_filters::LevelFilter;

/// Length from which on a log file is renamed, in bytes.
const KEEP_BYTES: u64 = 16 << 20;
/// Longest line in bytes; long enough for a panic with its backtrace.
const LINE_MAX: usize = 64 << 10;

/// Whether standard error is the log file, and the length of the file.
static IS_FILE: AtomicBool = AtomicBool::new(false);
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// Held while the file is replaced.
static REPLACING: Mutex<()> = Mutex::new(());

/// Starts the log. `CENOTE_LOG` sets its level: off, error, warn, info (the default), debug, trace.
///
/// # Errors
/// [`DaemonError::LogLevel`] if `CENOTE_LOG` has another value.
pub(super) fn begin() -> Result<(), DaemonError> {
    let level = match std::env::var("CENOTE_LOG").unwrap_or_default() {
        text if text.is_empty() => LevelFilter::INFO,
        text => text.parse().map_err(|_| DaemonError::LogLevel { text })?,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Lines)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_thread_names(true);
    // The journal adds the time itself.
    let done = if std::env::var_os("JOURNAL_STREAM").is_some() {
        log.without_time().try_init()
    } else {
        log.try_init()
    };
    drop(done);
    Ok(())
}

/// Writes to standard error, one line at a time.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let kept = &line[..line.len().min(LINE_MAX)];
        let mut errors = io::stderr().lock();
        errors.write_all(kept)?;
        if kept.len() < line.len() {
            errors.write_all(b"\n")?;
        }
        drop(errors);
        let length = kept.len() as u64;
        if LENGTH.fetch_add(length, Ordering::Relaxed) + length > KEEP_BYTES
            && IS_FILE.load(Ordering::Relaxed)
        {
            // A file that cannot be replaced is used further; the next attempt comes after as many bytes
            // again.
            if replace(KEEP_BYTES).is_err() {
                LENGTH.store(0, Ordering::Relaxed);
            }
        }
        // Bytes that were cut off count as written.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the log file standard error.
///
/// # Errors
/// [`DaemonError::Folder`] if the file cannot be opened.
pub(super) fn to_file() -> Result<(), DaemonError> {
    replace(KEEP_BYTES).map_err(|source| DaemonError::Folder { path: log_path(), source })?;
    IS_FILE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Opens the log file again, if the log goes to it.
pub(super) fn reopen() {
    if IS_FILE.load(Ordering::Relaxed) {
        match replace(KEEP_BYTES) {
            Ok(()) => tracing::info!("the log begins again"),
            Err(error) => tracing::warn!(%error, "the log cannot be opened again"),
        }
    }
}

/// Opens the log file as standard error; renames a file that is longer than `most` bytes before.
fn replace(most: u64) -> io::Result<()> {
    let _replacing = lock(&REPLACING);
    let path = log_path();
    let length = || std::fs::symlink_metadata(&path).map_or(0, |found| found.len());
    if length() > most {
        std::fs::rename(&path, path.with_extension("log.old"))?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(&path, flags, Mode::from_raw_mode(0o600))?;
    rustix::stdio::dup2_stderr(&file)?;
    LENGTH.store(length(), Ordering::Relaxed);
    Ok(())
}
