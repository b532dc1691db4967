//! Runs commands that have a daemon of their own, below a folder of the test.

pub(crate) mod folder;

use std::path::Path;
use std::process::{Command, Output};

/// Outcome of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
    /// Exit code; `None`: a signal ended it.
    pub(crate) code: Option<i32>,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
    }
}

/// A `cenote` command with these words, in which `~` stands for the folder. Its socket and the state folder
/// `state` are in that folder, and its environment is otherwise empty.
pub(crate) fn cenote(folder: &Path, socket: &str, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let words = words.replace('~', folder.to_str().expect("text"));
    command.args(words.split_whitespace()).env_clear().env("TZ", "UTC0").env("PATH", "/usr/bin:/bin");
    command.env("CENOTE_SOCKET", folder.join(socket)).env("CENOTE_STATE", folder.join("state"));
    command
}

/// Whether file systems can be mounted where their properties say. If not, that was reported.
pub(crate) fn can_mount() -> bool {
    if !testkit::need_file("/dev/fuse") {
        return false;
    }
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        testkit::skip("only root mounts where properties say");
    }
    is_root
}
