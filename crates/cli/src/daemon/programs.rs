//! The programs that a daemon runs for its clients, as the layer above hands them in.

use std::ffi::OsString;

/// Runs a program with the console of this thread; its exit code.
pub(crate) type RunProgram = fn(&str, Vec<OsString>) -> u8;

/// What a daemon knows of the programs that its clients ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Programs {
    pub(crate) run: RunProgram,
    /// The pool that `cenote mount` is to mount from; `None` if it says on which devices that is, or makes no sense.
    pub(crate) pool_to_mount: fn(&[OsString]) -> Option<String>,
}
