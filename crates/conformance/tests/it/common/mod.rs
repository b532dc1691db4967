//! Running the commands.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder in memory, if it has room (a container's may have little), else that of temporary files.
pub(crate) fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let room = rustix::fs::statvfs(&memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if room >= 1 << 30 { memory } else { std::env::temp_dir() }
}

/// Runs a command to its end; returns its output, both streams mixed, and its exit code.
pub(crate) fn run_mixed(mut command: Command) -> (String, i32) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::null()).stdout(writer.try_clone().expect("a second end")).stderr(writer);
    let mut child = command.spawn().expect("it starts");
    // The child has the only writing end now.
    drop(command);
    let mut text = Vec::new();
    reader.read_to_end(&mut text).expect("its output");
    (String::from_utf8_lossy(&text).into_owned(), child.wait().expect("it ends").code().unwrap_or(-1))
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
