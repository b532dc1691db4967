//! Running the commands.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder in memory, if it has room (a container's may have little), else that of temporary files.
pub(crate) fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let room = rustix::fs::statvfs(&memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if room >= 1 << 30 { memory } else { std::env::temp_dir() }
}

/// Outcome of a command.
pub(crate) struct Ran {
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
    /// Exit code.
    pub(crate) code: i32,
}

/// Runs `zpool …` or `zfs …` as `cenote zpool …`, with pools looked for in one folder only.
pub(crate) fn run(devices: &Path, words: &[&str]) -> Ran {
    run_with(devices, "", words)
}

/// [`run`] with keys: one `DATASET=FILE` a line.
pub(crate) fn run_with(devices: &Path, keys: &str, words: &[&str]) -> Ran {
    let output = Command::new(testkit::cenote())
        .args(words)
        .env_clear()
        .env("TZ", "UTC0")
        .env("CENOTE_DEVICES", devices)
        .env("CENOTE_STATE", "/nonexistent/state")
        .env("CENOTE_DIRECT", "1")
        .env("CENOTE_KEYS", keys)
        .output()
        .expect("the command starts");
    Ran {
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code().unwrap_or(-1),
    }
}
