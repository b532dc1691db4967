//! The log of a daemon: lines of fields, on standard error, which is a terminal, the journal or a file.
//!
//! # What always holds
//! - A line has a bound, and so has the file: when it is full it is put aside, and the one put aside before is gone.
//! - The file is known by its name only while it is opened: whoever moves it away and sends SIGHUP gets a new one.

use super::error::DaemonError;
use super::paths::log_path;
use rustix::fs::{Mode, OFlags, open};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tracing::level_filters::LevelFilter;

/// A log longer than this is put aside.
const KEEP_BYTES: u64 = 16 << 20;
/// Most bytes of a line, which may be that of a panic with all that led to it.
const LINE_MAX: usize = 64 << 10;

/// Whether standard error is the log file, and how long that is.
static IS_FILE: AtomicBool = AtomicBool::new(false);
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// Held while the file is replaced.
static REPLACING: Mutex<()> = Mutex::new(());

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
        .with_writer(|| Lines)
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

/// Standard error, a line at a time.
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
            // One that cannot be replaced goes on, and is tried again after as much.
            if replace(KEEP_BYTES).is_err() {
                LENGTH.store(0, Ordering::Relaxed);
            }
        }
        // What was left out is done with.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on standard error is the log file.
///
/// # Errors
/// It cannot be written.
pub(super) fn to_file() -> Result<(), DaemonError> {
    replace(KEEP_BYTES).map_err(|source| DaemonError::Folder { path: log_path(), source })?;
    IS_FILE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Opens the log file again, where it is the log.
pub(super) fn reopen() {
    if IS_FILE.load(Ordering::Relaxed) {
        match replace(KEEP_BYTES) {
            Ok(()) => tracing::info!("the log begins again"),
            Err(error) => tracing::warn!(%error, "the log cannot be opened again"),
        }
    }
}

/// Opens the log file as standard error; one that is longer than `most` is put aside before.
fn replace(most: u64) -> io::Result<()> {
    let _replacing = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
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
