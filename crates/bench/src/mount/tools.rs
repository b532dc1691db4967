//! External programs that are measured, or that measure.

use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Paths of the programs.
pub(crate) struct Tools {
    /// Path of the cenote program.
    pub(super) cenote: PathBuf,
    pub(super) zfs_fuse: Option<ZfsFuse>,
    pub(super) fio: bool,
    pub(super) bonnie: bool,
}

impl Tools {
    /// Our program, and no other.
    pub(crate) fn only(cenote: PathBuf) -> Tools {
        Tools { cenote, zfs_fuse: None, fio: false, bonnie: false }
    }
}

/// Debian's package zfs-fuse, unpacked in a directory; if installed, it would replace OpenZFS's tools.
#[derive(Clone)]
pub(super) struct ZfsFuse(PathBuf);

impl ZfsFuse {
    pub(super) fn in_folder(folder: &Path) -> Option<ZfsFuse> {
        folder.join("sbin/zfs-fuse").is_file().then(|| ZfsFuse(folder.to_path_buf()))
    }

    /// A command that starts the server.
    pub(super) fn server(&self) -> Command {
        self.with_libraries(Command::new(self.0.join("sbin/zfs-fuse")))
    }

    /// A command that talks to the server.
    pub(super) fn command(&self, program: &str) -> Command {
        self.with_libraries(limited(&self.0.join("sbin").join(program)))
    }

    fn with_libraries(&self, mut command: Command) -> Command {
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|lib| self.0.join(lib));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap_or_default());
        command
    }
}

/// A program that is killed after some minutes, for requests to a server that may hang.
pub(super) fn limited(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(program);
    command
}

/// True if a program can be found.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a program. Returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    Err(format!("{name} {}: {}: {said}", words.join(" "), output.status).into())
}
